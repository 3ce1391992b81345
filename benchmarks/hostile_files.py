"""Files of strangers, and damaged ones: does any run code, hang, take memory, end in a traceback, or look better?

Sound files of each kind that Strobe reads (results, events of rollouts, traces, recipes, checkpoints, data sets' texts,
episode logs, tables of trials) are mutated by hypothesis: cut, flipped, lines lost or doubled, values of odd and huge
types, hostile texts, YAML's tags and its bombs. Each goes through the command, or the reader, that a user gives it to.
All of it runs in a child process whose memory may grow by 1 GiB and of which each call may take 20 s; whatever starts a
program, opens a connection, or makes the canary's file is a fault.

Bars: of 2,200 mutations none is a fault; and of damaged events none gives a better answer than the sound ones do (fewer
ticks without an action) without saying that something is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _hostile import CANARY, mutations
from _shared import finish, need
from hypothesis import HealthCheck, Phase, given, seed, settings

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden"
GROWTH, CALL_S = 2**30, 20
MUTATIONS, QUICK = 200, 15  # of each kind
WATCHED = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "socket.connect", "pty.spawn")
Read = Callable[[Path], Any]


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Args:
        sound: its file.
        read: what a user would do with it; returns what it tells, or None.
        better: whether the second of two answers is better than the first, and says nothing of what is missing.
    """

    name: str
    sound: Path
    read: Read
    better: Callable[[Any, Any], bool] = lambda sound, seen: False


def command(*argv: str) -> Read:
    """Return a reader that runs a command with the file in place of FILE, and its folder in place of FOLDER."""

    def read(file: Path) -> Any:
        from strobe.cli.main import main

        out = io.StringIO()
        given = [word.replace("FILE", str(file)).replace("FOLDER", str(file.parent)) for word in argv]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()) as said:
            code = main(given)
        if "Traceback" in said.getvalue() + out.getvalue():
            raise AssertionError("a traceback was printed")
        if code not in (0, 1, 2, 3):
            raise AssertionError(f"it ends with {code}")
        try:
            return json.loads(out.getvalue())
        except ValueError:
            return None

    return read


def reader(function: Callable[[], Callable[[Path], Any]]) -> Read:
    """Return a reader that calls a function of Strobe's, whose refusal is one line."""

    def read(file: Path) -> None:
        from strobe.errors import UserError

        try:
            function()(file)
        except UserError as error:
            if "\n" in str(error):
                raise AssertionError(f"more than one line: {error}") from None

    return read


def starved_less(sound: Any, seen: Any) -> bool:
    """Return whether fewer ticks were without an action, and nothing is said to be missing."""
    if sound is None or seen is None:
        return False
    before, after = sound["rollout"], seen["rollout"]
    if not before["queue"] or not after["queue"]:
        return False
    return not after["lost"] and after["queue"]["starved"] < before["queue"]["starved"]


def kinds(folder: Path) -> Iterator[Kind]:
    """Yield the kinds of files; what must be made is made in ``folder``."""
    for name in ("compare", "sweep", "rollout", "train", "preflight", "trials"):
        yield Kind(f"result ({name})", GOLDEN / name / "result.json", command("report", "FOLDER", "--format=markdown"))
    yield Kind("result, judged", GOLDEN / "compare" / "result.json", command("diff", str(GOLDEN / "compare"), "FOLDER"))
    replay = command("replay", "FILE", "--draws=1", "--latency=x0.5", "--json", "--output_dir=FOLDER/runs")
    watch = command("rollout", "--events=FILE", "--json", "--output_dir=FOLDER/runs")
    for name in ("rtc", "sync"):
        events = _events(folder, GOLDEN / "events" / f"{name}.jsonl.gz")
        yield Kind(f"events ({name})", events, watch, starved_less)
    yield Kind("events, replayed", events, replay)
    trace = ROOT / "docs" / "examples" / "train-act" / "trace.json.gz"
    yield Kind("trace", trace, command("report", "FILE", "--output=FOLDER/trace.html"))
    yield Kind("recipe", ROOT / "docs" / "examples" / "optimize-act" / "recipe.yaml", reader(_recipe))
    yield Kind("episode log", _episodes(folder), reader(_episode_log))
    yield Kind("table of trials", _trials(folder), reader(_sheet))
    checkpoint = _checkpoint(folder)
    for file in ("config.json", "policy_preprocessor.json", "policy_postprocessor.json", "model.safetensors"):
        yield Kind(f"checkpoint, {file}", checkpoint / file, reader(_wiring))
    for file in ("info.json", "stats.json"):
        yield Kind(f"data set, {file}", _dataset(folder) / "meta" / file, reader(_recorded))


def _events(folder: Path, golden: Path) -> Path:
    """Return the events of an older Strobe as this one writes them, which tell their end."""
    from strobe.loops.event_log import Log, read

    header, rows = read(golden)
    log = Log(folder / golden.name.partition(".")[0] / "run.events")
    log.start(header)
    for row in rows:
        log.append(row)
    log.stop()
    packed = log.file.with_name("events.jsonl.gz")
    packed.write_bytes(gzip.compress(log.file.read_bytes()))
    log.remove()
    return packed


def _recipe() -> Callable[[Path], Any]:
    from strobe.treatments import recipe

    return lambda file: recipe.treatments_of(recipe.load(file), file.name)


def _episode_log() -> Callable[[Path], Any]:
    from strobe.runs import episode_log

    return episode_log.read


def _sheet() -> Callable[[Path], Any]:
    from strobe.studies.trials.sheet import Limits, read_sheet

    return lambda file: read_sheet(file, Limits(5, 60.0))


def _wiring() -> Callable[[Path], Any]:
    from strobe.findings.wiring import findings_of
    from strobe.wiring.read import read_wiring

    return lambda file: findings_of(read_wiring(file.parent))


def _recorded() -> Callable[[Path], Any]:
    from strobe.wiring.dataset import read_dataset

    return lambda file: read_dataset(file.parent.parent)


def _episodes(folder: Path) -> Path:
    asked = {
        "policy": "act", "weights": "0", "settings": {}, "environment": {}, "tasks": ["reach"], "variants": {"a": ""},
        "margin": 0.1, "seed": 0, "episodes": 5,
    }  # fmt: skip
    episode = {
        "variant": "a", "task": "reach", "start": "0", "success": True, "reward": 1.0, "ticks": 9, "call_ms": [1.0],
        "policy_ms": 9.0, "step_ms": 9.0, "reset_ms": 1.0,
    }  # fmt: skip
    lines = [{"asked": asked}, *(episode | {"seed": number} for number in range(5))]
    (folder / "log").mkdir()
    (folder / "log" / "episodes.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return folder / "log" / "episodes.jsonl"


def _trials(folder: Path) -> Path:
    rows = [f"{pair},{2 * pair - 1},A,,yes,12.5,\n{pair},{2 * pair},B,,no,60,slipped\n" for pair in range(1, 6)]
    (folder / "trials").mkdir()
    (folder / "trials" / "trials.csv").write_text("pair,trial,code,condition,success,seconds,note\n" + "".join(rows))
    return folder / "trials" / "trials.csv"


def _checkpoint(folder: Path) -> Path:
    from strobe.policies.loading import load_subject
    from strobe.policies.options import PolicyOptions

    made = folder / "checkpoint"
    subject: Any = load_subject(PolicyOptions(type="act", size="tiny"))
    for part in (subject.policy, subject.preprocessor, subject.postprocessor):
        part.save_pretrained(made)
    return made


def _dataset(folder: Path) -> Path:
    meta = folder / "data" / "meta"
    meta.mkdir(parents=True, exist_ok=True)
    vector = {"dtype": "float32", "shape": [2], "names": ["a.pos", "b.pos"]}
    info = {
        "codebase_version": "v3.0",
        "fps": 30,
        "total_episodes": 1,
        "total_frames": 9,
        "features": {"action": vector},
    }
    (meta / "info.json").write_text(json.dumps(info))
    numbers = {"mean": [0.0, 1.0], "std": [1.0, 1.0], "min": [-1.0, -1.0], "max": [1.0, 2.0], "count": [9]}
    (meta / "stats.json").write_text(json.dumps({"action": numbers}))
    return meta.parent


class _TooLongError(BaseException):
    """A call took longer than it may."""


def _too_long(*_: object) -> None:
    raise _TooLongError


class Guarded:
    """Calls of readers: what they start is refused and noted, and their time is bounded."""

    def __init__(self) -> None:
        self.allowed: set[str] | None = set()  # what sound files have started; None from then on
        self.started: list[str] = []
        self._known: set[str] = set()
        sys.addaudithook(self._hook)
        signal.signal(signal.SIGALRM, _too_long)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not event.startswith(WATCHED):
            return
        what = f"{event} {arguments[0] if arguments else ''!s}"[:80]
        if self.allowed is not None:
            self._known.add(what)
        elif what not in self._known:
            self.started.append(what)
            raise PermissionError(what)

    def arm(self) -> None:
        """Take whatever is started from now on, and was not so far, for a fault."""
        self.allowed = None

    def call(self, kind: Kind, file: Path) -> tuple[Any, str]:
        """Return what the file tells, and the fault of reading it; '' for none."""
        self.started.clear()
        signal.alarm(CALL_S)
        told, fault = None, ""
        try:
            told = kind.read(file)
        except _TooLongError:
            fault = f"took over {CALL_S} s"
        except MemoryError:
            fault = f"took over {GROWTH / 2**30:g} GiB"
        except (Exception, SystemExit) as error:
            fault = f"{type(error).__name__}: {str(error)[:160]}"
        finally:
            signal.alarm(0)
        if self.started:
            fault = f"started {self.started[0]}"
        if Path(CANARY).exists():
            Path(CANARY).unlink()
            fault = "ran the code in it"
        return told, fault


def tried(kind: Kind, guarded: Guarded, count: int, sound: Any) -> Iterator[str]:
    """Yield the faults of ``count`` mutations of a kind of file."""
    content, faults = kind.sound.read_bytes(), list[str]()

    @seed(20261127)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(mutations())
    def one(mutation: Any) -> None:
        words, change = mutation
        with tempfile.TemporaryDirectory() as folder:
            place = Path(shutil.copytree(kind.sound.parent, Path(folder) / "given", symlinks=True))
            file = place / kind.sound.name
            file.write_bytes(change(content))
            told, fault = guarded.call(kind, file)
        if not fault and kind.better(sound, told):
            fault = "tells a better story than the sound file"
        if fault:
            faults.append(f"{kind.name}: {words}: {fault}")

    one()
    yield from faults


def worker(count: int, folder: Path) -> None:
    """Try all kinds; print a line of JSON for each."""
    os.chdir(folder)
    guarded, chosen = Guarded(), []
    for kind in kinds(folder):
        told, fault = guarded.call(kind, kind.sound)
        if fault:
            raise SystemExit(f"{kind.name}: the sound file is refused: {fault}")
        chosen.append((kind, told))
    guarded.arm()
    used = int(next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmData" in line).split()[1])
    resource.setrlimit(resource.RLIMIT_DATA, (used * 1024 + GROWTH, resource.RLIM_INFINITY))
    for kind, told in chosen:
        print(json.dumps({"kind": kind.name, "faults": list(tried(kind, guarded, count, told))}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} mutations of each kind, not {MUTATIONS}")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    count = QUICK if arguments.quick else MUTATIONS
    if arguments.worker:
        worker(count, arguments.worker)
        return
    if sys.platform != "linux":
        from _shared import could_not_run

        could_not_run("bounds of memory and a process's own figures are Linux's")
    need()
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, __file__, f"--worker={folder}", *(["--quick"] if arguments.quick else [])]
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        faults: Counter[str] = Counter()
        for line in child.stdout:
            tried_one = json.loads(line)
            print(f"{tried_one['kind']}: {len(tried_one['faults'])} faults", flush=True)
            for fault in tried_one["faults"][:10]:
                print(f"  {fault}")
            faults[tried_one["kind"]] = len(tried_one["faults"])
        ended = child.wait()
    figures = {"kinds": len(faults), "mutations": count * len(faults), "faults": faults.total()}
    finish(figures, ended == 0 and faults.total() == 0 and len(faults) > 0)


if __name__ == "__main__":
    main()
