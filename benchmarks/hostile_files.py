"""Files of strangers: cut, flipped, hostile, huge, of odd types. What reads them says a line, or what is in them.

Each kind of file that Strobe reads (recordings, results, traces, exports, checkpoints, recipes, sweeps, trials,
episodes, answers of policy servers) is written soundly, and changed by hypothesis over and over. No change may run
code, hang, take over 1 GB more, end in a traceback, or tell a better story than the sound file: of a recording any
change is told, or changes nothing of the answer; of what must be whole, a part is refused. Faults that no
chance would make follow, each with a sound twin.

    python benchmarks/hostile_files.py              2,500 changes, some minutes
    python benchmarks/hostile_files.py --quick      200
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from common.hostile_kinds import DAMAGED, KINDS, Kind
from common.hostile_planted import PLANTED
from common.hostile_planted import judge as judge_planted
from common.shared import finish

WHOLE, QUICK = 2_500, 200  # changes, of all kinds together
SHARES = {"recording": 3.0, "replay": 0.5}  # of the changes, where a kind has more or fewer than its share
LONGEST_S, MEMORY = 20.0, 2**30  # of one change: seconds, and bytes above those of the sound file
PRELOADED = (
    "hypothesis",
    "strobe.rollout.run",
    "strobe.replay.run",
    "strobe.core.kinds",
    "strobe.core.cli.summaries",
)
DEEP = "\x00deep"
ODD: list[Any] = [
    None, True, -1, 0, 3.5, 10**18, -(10**18), 10**30, 1e308, float("inf"), float("nan"), "", "x" * 5_000, "\ud800",
    "../../../etc/passwd", "/etc/passwd", "<script>alert(1)</script>", [], {}, [None], [[]], {"": None}, [1, "a", None],
    DEEP, list(range(3_000)), {"class": "subprocess.Popen", "config": {"args": "true"}},
    "!!python/object/apply:os.system [true]", "evil/policy",
]  # fmt: skip
BLOBS = [
    b"", b"\x00" * 64, b"\xff\xfe", b"[" * 20_000, b'{"a":' * 5_000, b"9" * 6_000, b"*a", b"&a [*a]", b"\x1f\x8b\x08",
    b",,,,\n" * 500,
]  # fmt: skip


class Hung(BaseException):
    """A change took too long."""


def nodes(value: Any) -> list[tuple[Any, Any]]:
    """Return each place in a JSON document: what holds it, and under which name or number."""
    found, open_ = [], [value]
    while open_:
        held = open_.pop()
        for name, inner in held.items() if isinstance(held, dict) else enumerate(held):
            found.append((held, name))
            if isinstance(inner, dict | list):
                open_.append(inner)
    return found


def change_file(sound: bytes, name: str, draw: Any, st: Any) -> tuple[str, bytes]:
    """Return how a file was changed, and the changed file."""
    how = draw(st.sampled_from(["cut", "flip", "blob", "again", "odd", "odd", "odd"]))
    at = draw(st.integers(0, len(sound) - 1))
    if how == "cut":
        return how, sound[:at]
    if how == "flip":
        data = bytearray(sound)
        for place in {at, *draw(st.lists(st.integers(0, len(sound) - 1), max_size=3))}:
            data[place] ^= draw(st.integers(1, 255))
        return how, bytes(data)
    if how == "blob":
        return how, sound[:at] + draw(st.sampled_from(BLOBS)) + sound[at + draw(st.integers(0, 40)) :]
    if how == "again":
        return how, sound[:at] + sound[max(0, at - draw(st.integers(1, 2_000))) :]
    lines = sound.splitlines(keepends=True) if name.endswith((".events", ".jsonl")) else [sound]
    place = draw(st.integers(0, len(lines) - 1))
    try:
        document = json.loads(lines[place])
        places = nodes(document)
        held, key = places[draw(st.integers(0, len(places) - 1))]
        held[key] = draw(st.sampled_from(ODD))
        text = json.dumps(document).replace(json.dumps(DEEP), "[" * 3_000 + "]" * 3_000)
        lines[place] = text.encode() + b"\n"
    except (ValueError, IndexError):  # no JSON: a word becomes another
        words = sound.split(b" ")
        word = draw(st.integers(0, len(words) - 1))
        odd = json.dumps(draw(st.sampled_from(ODD[:-1]))).encode()
        return how, b" ".join([*words[:word], odd, *words[word + 1 :]])
    return how, b"".join(lines)


def judge(kind: Kind, file: Path, sound: bytes, told: Any, how: str, data: bytes) -> str:
    """Return what is wrong with the way in which a changed file was read; '' for nothing."""
    file.write_bytes(data)
    begun = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
    try:
        says = kind.read(file)
    except kind.refuses as error:
        return "an error of several lines" if "\n" in str(error) else ""
    except Hung:
        return f"no answer within {LONGEST_S:g} s"
    except MemoryError:
        return "over 1 GB"
    except BaseException as error:  # what a user would see as a traceback
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace is not None else ""
        return f"{type(error).__name__} at {place}: {str(error)[:100]}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if (took := time.monotonic() - begun) > LONGEST_S / 2:
            print(f"{took:.0f} s for a file of {len(data):,} bytes, {how}", file=sys.stderr)
    if data.strip() == sound.strip():
        return ""
    if kind.exact and (says not in (told, DAMAGED) or (how == "cut" and says != DAMAGED)):
        return f"a better story: {says[:80]}"
    return "a part passes for the whole" if kind.whole and how == "cut" and says == told else ""


def limit_process(ran: list[str]) -> None:
    """Limit the memory of this process, let its alarm raise `Hung`, and note what it runs in ``ran``."""

    def alarm(*_: object) -> None:
        raise Hung

    def audit(event: str, given: tuple[Any, ...]) -> None:
        if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect"):
            ran.append(f"{event}{given}"[:200])

    signal.signal(signal.SIGALRM, alarm)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, resource.RLIM_INFINITY))
    sys.addaudithook(audit)


def plant(number: int) -> dict[str, Any]:
    """Return what is wrong with a planted fault and with its sound twin; run in a process of its own."""
    planted, ran, faults = PLANTED[number], list[str](), list[str]()
    kind = KINDS[planted.kind]
    for hostile, change in ((True, planted.hostile), (False, planted.twin)):
        with tempfile.TemporaryDirectory() as folder:
            file = kind.write(Path(folder))
            kind.read(file)  # what is imported for it is none of the file's memory
            try:
                change(file)
                if hostile:
                    limit_process(ran)
                signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
                says = kind.read(file)
                fault = judge_planted(planted, says) if hostile else None
            except kind.refuses as error:
                line = "\n" not in str(error)
                fault = None if hostile and line else f"an error of several lines: {error}" if hostile else str(error)
            except BaseException as error:
                fault = f"{type(error).__name__}: {error}"
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        faults += [f"{'hostile' if hostile else 'sound'}: {fault}"] if fault else []
    return {"faults": faults, "ran": ran}


def fuzz_kind(name: str, examples: int) -> dict[str, Any]:
    """Return what `examples` changes of a kind came to; run in a process of its own."""
    from hypothesis import HealthCheck, Phase, given, seed, settings
    from hypothesis import strategies as st

    kind, faults, ways, ran = KINDS[name], Counter[str](), Counter[str](), []
    with tempfile.TemporaryDirectory() as folder:
        file = kind.write(Path(folder))
        sound = file.read_bytes()
        told = kind.read(file)

        limit_process(ran)

        @seed(57)
        @settings(
            max_examples=examples, database=None, deadline=None, phases=[Phase.generate],
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        )  # fmt: skip
        @given(st.data())
        def change(data: Any) -> None:
            how, hostile = change_file(sound, file.name, data.draw, st)
            ways[how] += 1
            if fault := judge(kind, file, sound, told, how, hostile):
                faults[f"{how}: {fault}"] += 1

        change()
    return {"changes": sum(ways.values()), "faults": dict(faults), "ran": ran}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--kind", choices=KINDS, help="this one alone, in this process")
    parser.add_argument("--changes", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.kind:
        print(json.dumps(fuzz_kind(arguments.kind, arguments.changes or QUICK)))
        return
    total, weights = arguments.changes or (QUICK if arguments.quick else WHOLE), sum(SHARES.get(k, 1.0) for k in KINDS)
    figures: dict[str, Any] = {"changes": 0, "faults": {}, "ran": []}
    os.environ["HF_HUB_OFFLINE"] = "1"
    for module in PRELOADED:  # once, for all the processes that are forked
        importlib.import_module(module)
    for name in KINDS:
        examples = max(1, round(total * SHARES.get(name, 1.0) / weights))
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as alone:
            try:
                found = alone.submit(fuzz_kind, name, examples).result()
            except BrokenProcessPool:
                found = {"changes": 0, "faults": {"its process ended": 1}, "ran": []}
        print(f"{name}: {found['changes']:,} changes, {sum(found['faults'].values())} faults", flush=True)
        for fault, times in found["faults"].items():
            print(f"    {times} × {fault}", flush=True)
        figures["changes"] += found["changes"]
        figures["faults"] |= {f"{name}, {fault}": times for fault, times in found["faults"].items()}
        figures["ran"] += found["ran"]
    for number, planted in enumerate(PLANTED):
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as alone:
            try:
                found = alone.submit(plant, number).result()
            except BrokenProcessPool:
                found = {"faults": ["its process ended"], "ran": []}
        print(f"{planted.name}: {'; '.join(found['faults']) or 'refused or told, and its sound twin read'}", flush=True)
        figures["faults"] |= {f"{planted.name}, {fault}": 1 for fault in found["faults"]}
        figures["ran"] += found["ran"]
    figures["planted"] = len(PLANTED)
    finish(figures, holds=not figures["faults"] and not figures["ran"] and figures["changes"] >= 0.95 * total)


if __name__ == "__main__":
    main()
