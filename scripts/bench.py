"""Run benchmarks one after the other, and record how each ended in `benchmarks/seen.json` and in docs/benchmarks.md.

    scripts/bench.py                                   each with --quick
    scripts/bench.py sameness tune                     these
    scripts/bench.py --rota=3                          three short ones, the next three tomorrow
    scripts/bench.py --rota=1 page_commands            this one, and a short one of the others by the day
    scripts/bench.py --limit=240 --record              ends each after 240 s; writes how they ended
    scripts/bench.py --whole --record device_matrix    without --quick
    scripts/bench.py --page                            writes the page's table once more

Ends with 1 if one did not hold. One that could not run, for what this machine lacks, is named and does not count.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "benchmarks"
SEEN, PAGE = FOLDER / "seen.json", ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- seen: begin -->", "<!-- seen: end -->"
HOLDS, NOT_RUN = "holds", "could not run"
COULD_NOT_RUN = 77  # the exit code of `could_not_run` in benchmarks/common/shared.py
SHORT_S = 60.0  # of a core, as a benchmark of the rota may have taken
BUSY = 1.5  # of the load for each core, from which other work explains much
Record = dict[str, dict[str, "Seen"]]  # benchmark → "whole" or "quick" → how it ended


@dataclass(frozen=True)
class Seen:
    """How a benchmark ended, at a commit and on a day.

    Args:
        outcome: 'holds', 'does not hold', 'could not run', 'failed' or 'not done'.
        why: what it said of it; '' where its figures say enough.
        seconds, cpu_s: by the clock, and of a core; None where nobody took the time.
    """

    commit: str
    day: str
    outcome: str
    why: str = ""
    seconds: int | None = None
    cpu_s: int | None = None


def benchmarks() -> list[str]:
    """Return the names of all benchmarks."""
    return sorted(path.stem for path in FOLDER.glob("*.py"))


def run_script(script: Path, arguments: list[str], limit_s: float) -> tuple[str, str, str]:
    """Run a script. Returns its outcome, the reason, and all that it printed."""
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        command = [sys.executable, str(script), *arguments]
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        code: int | None = None
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(limit_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and whatever it started
            process.wait()
        output.seek(0)
        text = output.read()
    if code is None:
        return "not done", f"not within {limit_s:g} s", text
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if code == COULD_NOT_RUN:
        return NOT_RUN, next((line for line in lines if line.startswith(NOT_RUN)), "").partition(": ")[2], text
    holds = next((one["holds"] for one in map(_figures, reversed(lines)) if "holds" in one), None)
    if holds is None or holds != (code == 0):
        return "failed", f"exit code {code}: {lines[-1][:200] if lines else 'nothing was printed'}", text
    return HOLDS if holds else "does not hold", "", text


def _figures(line: str) -> dict[str, object]:
    with contextlib.suppress(ValueError):
        if isinstance(found := json.loads(line), dict):
            return found
    return {}


def rota(record: Record, count: int, day: date, besides: Collection[str] = ()) -> list[str]:
    """Return ``count`` benchmarks whose turn is on ``day``: those whose last turn is the longest ago.

    Those take turns whose quick run was short and held where it was recorded, and that are not run ``besides``.
    """
    short = [
        name
        for name, modes in sorted(record.items())
        if name not in besides and (seen := modes.get("quick")) and seen.outcome == HOLDS
        if seen.cpu_s is not None and seen.cpu_s <= SHORT_S
    ]
    begin = day.toordinal() * count
    return [short[(begin + index) % len(short)] for index in range(min(count, len(short)))]


def load() -> Record:
    """Return the record."""
    found = json.loads(SEEN.read_text(encoding="utf-8"))
    return {name: {mode: Seen(**seen) for mode, seen in modes.items()} for name, modes in found.items()}


def save(record: Record) -> None:
    """Write the record and the page's table."""
    document = {name: {mode: asdict(seen) for mode, seen in modes.items()} for name, modes in sorted(record.items())}
    SEEN.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{table(record)}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def table(record: Record) -> str:
    """Return how each benchmark ended when it was last run, in Markdown."""
    lines = ["| benchmark | whole | with `--quick` |", "|---|---|---|"]
    for name, modes in sorted(record.items()):
        lines.append(f"| {name} | {_cell(modes.get('whole'))} | {_cell(modes.get('quick'))} |")
    return "\n".join(lines)


def _cell(seen: Seen | None) -> str:
    if seen is None:
        return ""
    why = seen.why.replace("|", "\\|")
    took = "" if seen.seconds is None else f", {seen.seconds} s"
    took += "" if seen.cpu_s is None else f" ({seen.cpu_s} s of a core)"
    return f"{seen.outcome}{f' ({why})' if why else ''}{took}: {seen.day}, {seen.commit}"


def commit_here() -> str:
    """Return the commit that is checked out. Ends the program if files that a benchmark reads are changed."""
    changed = subprocess.check_output(
        ["git", "status", "--porcelain", "--", "src", "packages", "tests", "benchmarks", f":!{SEEN.relative_to(ROOT)}"],
        cwd=ROOT, text=True,
    )  # fmt: skip
    if changed:
        sys.exit(f"--record: commit first what is changed:\n{changed.rstrip()}")
    return subprocess.check_output(["git", "rev-parse", "--short=8", "HEAD"], cwd=ROOT, text=True).strip()


def choose_benchmarks(asked: argparse.Namespace) -> list[str]:
    """Return the benchmarks to run; of a rota, print them with those that are left out."""
    if unknown := sorted(set(asked.names) - set(benchmarks())):
        sys.exit(f"no such benchmark: {', '.join(unknown)}")
    if not asked.rota:
        return asked.names or benchmarks()
    names = [*asked.names, *rota(load(), asked.rota, datetime.now(UTC).date(), asked.names)]
    print(f"the rota of today takes {', '.join(names)}")
    print(f"and leaves out {', '.join(name for name in benchmarks() if name not in names)}", flush=True)
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks (default: all)")
    parser.add_argument("--whole", action="store_true", help="without --quick")
    parser.add_argument("--args", default="", help="more arguments for each")
    parser.add_argument("--rota", type=int, default=0, metavar="N", help="N short ones, by the day, after the NAMEs")
    parser.add_argument(
        "--limit", type=float, metavar="SECONDS", help="for each (default: of a rota 240, else 2 hours)"
    )
    parser.add_argument("--record", action="store_true", help="write how they ended")
    parser.add_argument("--page", action="store_true", help="write the page's table from the record, and end")
    asked = parser.parse_args()
    if asked.page:
        save(load())
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the benchmark that runs is ended too
    commit = commit_here() if asked.record else ""
    mode = "whole" if asked.whole else "quick"
    limit_s = asked.limit or (240.0 if asked.rota else 7200.0)
    outcomes: dict[str, str] = {}
    for name in choose_benchmarks(asked):
        print(f"== {name}", flush=True)
        began, before = time.monotonic(), os.times()
        arguments = [*(() if asked.whole else ("--quick",)), *shlex.split(asked.args)]
        outcome, why, output = run_script(FOLDER / f"{name}.py", arguments, limit_s)
        seconds, after = round(time.monotonic() - began), os.times()
        cpu_s = round(sum(after[2:4]) - sum(before[2:4]))  # of children that have ended
        if outcome not in (HOLDS, NOT_RUN) and (load_here := os.getloadavg()[0]) > BUSY * (os.cpu_count() or 1):
            why = f"{why}{'; ' if why else ''}at a load of {load_here:.0f}"
        print(f"{output.rstrip()}\n{name}: {outcome}{f' ({why})' if why else ''}, {seconds} s", flush=True)
        outcomes[name] = outcome
        if asked.record:
            record = load()
            today = datetime.now(UTC).date().isoformat()
            record[name] = record.get(name, {}) | {mode: Seen(commit, today, outcome, why, seconds, cpu_s)}
            save(record)
    wrong = [name for name, outcome in outcomes.items() if outcome not in (HOLDS, NOT_RUN)]
    for name, outcome in outcomes.items():
        if outcome != HOLDS:
            print(f"{name}: {outcome}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
