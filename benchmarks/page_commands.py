"""Run every command of every page, at a small size, offline, on made-up data: does each end as the page says?

Those of README.md, docs/, packages/, the examples under each `--help`, and those that findings say to type. Each runs
in a folder of its page, after the commands before it, as a fork of a process that has imported torch and LeRobot. The
pages' own names (FOLDER, DATASET, runs/BEFORE) stand for made-up things; `pages/rewritten.py` lists what is made
smaller and the few flags that are left out.

    python benchmarks/page_commands.py                          all, half an hour
    python benchmarks/page_commands.py --quick                  a minute of one group, another one every three hours
    python benchmarks/page_commands.py --page=docs/optimize.md  one page
    python benchmarks/page_commands.py --list                   what would run, and what would not and why

Bars: each command ends within LIMIT_S with the exit code that the page promises, without a traceback, with an answer on
the screen, and with the fields in it that docs/assistants.md promises. What cannot run here is named with a reason.
One that takes longer on a machine with other work, or than a turn of --quick has left, is named and does not count.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "tests"))

from common.shared import finish  # noqa: E402
from pages.collected import Shown, collect  # noqa: E402
from pages.excused import find_reason  # noqa: E402
from pages.judged import Ran, list_faults  # noqa: E402
from pages.made import Made, UnpreparedError  # noqa: E402
from pages.rewritten import DROPPED, Rewriter  # noqa: E402

LIMIT_S = 120.0
GROUPS = 53  # of some five commands, each in turn within a week; a prime, so that no rhythm of the day misses some
GROUP_S = 3 * 3600  # after which the next group is taken
QUICK_S = 60.0  # of a group: its commands for which there is no time left come first at its next turn
PATHS = [HERE, ROOT / "tests", ROOT / "src", ROOT / "packages" / "strobe_zoo" / "src"]


def set_up(work: Path) -> None:
    """Set the variables that imports read: nothing of the user's is read or written, and nothing is fetched."""
    for name in ("HF_HOME", "HF_LEROBOT_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        os.environ[name] = str(work / name.lower())
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"  # else imports start threads, which a fork would lose
    given = os.environ.get("PYTHONPATH", "")
    os.environ |= {
        "HF_HUB_OFFLINE": "1", "COLUMNS": "200", "TORCHINDUCTOR_VEC_ISA_OK": "0",
        "PYTHONPATH": os.pathsep.join([*map(str, PATHS), *([given] if given else [])]),
    }  # fmt: skip


def run(arguments: Sequence[str], folder: Path, limit_s: float, variables: Mapping[str, str] | None = None) -> Ran:
    """Run Python with ``arguments`` in ``folder``, as a fork of a process that has imported what takes seconds."""
    from support.suite import warm

    env = {**os.environ, "STROBE_CACHE": str(folder / ".cache"), **(variables or {})}
    start = time.monotonic()
    code: int | None = None
    with warm.start(*arguments, cwd=folder, env=env, session=True) as program:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = program.wait(limit_s)
        seconds = time.monotonic() - start
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(program.pid, signal.SIGKILL)  # and whatever it started
        for stream in program.streams:
            stream.seek(0)
        out, err = (stream.read() for stream in program.streams)
    return Ran(list(arguments), code, seconds, out, err)


def prepare(arguments: Sequence[str], folder: Path, limit_s: float) -> str:
    """Run what makes a thing that pages take for granted. Raises UnpreparedError where it fails."""
    ran = run(arguments, folder, limit_s)
    if ran.code:
        raise UnpreparedError(f"{shlex.join(arguments)}: exit code {ran.code}: {ran.err.strip().splitlines()[-1:]}")
    return ran.out


class Pages:
    """Runs commands of pages in folders below ``work``, one folder for each page."""

    def __init__(self, work: Path) -> None:
        self.work, self.made = work, Made(work / "made", prepare)
        self._rewriters: dict[str, Rewriter] = {}
        self._seen: dict[tuple[str, ...], list[str]] = {}

    def try_command(self, shown: Shown, limit_s: float) -> tuple[list[str], Ran | None, list[str]]:
        """Return the rewritten arguments, how they ended, and what is wrong; no run where the same ran before."""
        folder = self.work / shown.page.replace("/", "+").replace(" ", "_")
        if not folder.exists():
            folder.mkdir()
            (folder / ".venv-next").symlink_to(Path(sys.prefix))
            self._rewriters[shown.page] = Rewriter(self.made, folder)
        try:
            argv = self._rewriters[shown.page].rewrite(shown)
        except UnpreparedError as error:
            return [], None, [str(error)]
        key = (*(f"{name}={value}" for name, value in shown.variables), *argv)
        if key in self._seen:
            return argv, None, self._seen[key]
        before = set(folder.rglob("result.json"))
        ran = run(["-m", "strobe", *argv], folder, limit_s, dict(shown.variables))
        ran.argv = argv
        answers = sorted(set(folder.rglob("result.json")) - before) if "sweep" not in argv else []
        self._seen[key] = list_faults(ran, answers)
        return argv, ran, self._seen[key]


def choose(shown: list[Shown], pages: str) -> list[Shown]:
    """Return the commands of the pages whose names begin with one of ``pages``; all without any."""
    chosen = [one for page in pages.split(",") for one in shown if one.page.startswith(page)]
    if not chosen:
        sys.exit(f"no page {pages} with a command: {', '.join(sorted({one.page for one in shown}))}")
    return chosen


def take_group(runnable: list[Shown], turn: int) -> list[Shown]:
    """Return the commands of one group, whose neighbours share what is made for them; each turn begins with another."""
    round_, group = divmod(turn, GROUPS)
    size = len(runnable) / GROUPS
    chosen = runnable[round(group * size) : round((group + 1) * size)]
    first = round_ % max(1, len(chosen))
    return chosen[first:] + chosen[:first]


def is_busy() -> bool:
    """Return whether other work explains that a command did not end in time: more than 1.5 tasks wait for each core."""
    return os.getloadavg()[0] > 1.5 * (os.cpu_count() or 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one group of the commands, by the hour")
    parser.add_argument("--page", default="", help="the pages whose names begin so, separated by commas")
    parser.add_argument("--list", action="store_true", help="list the commands without running one")
    parser.add_argument("--keep", action="store_true", help="keep the folder, and write what each command printed")
    asked = parser.parse_args()
    chosen = choose(collect(), asked.page)
    reasons = {one: find_reason(one) for one in chosen}
    runnable = [one for one in chosen if reasons[one] is None]
    if asked.quick:
        runnable = list({one.text: one for one in runnable}.values())
        runnable = take_group(runnable, int(time.time() // GROUP_S))
    if asked.list:
        for one in chosen:
            print(f"{one.place}: {one.text}{f'   [{reason}]' if (reason := reasons[one]) else ''}")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the command that runs is ended too
    work = Path(tempfile.mkdtemp(prefix="pages-"))
    set_up(work)
    excused = Counter(reason for reason in reasons.values() if reason)
    ran_count, failed, slow, began = 0, {}, {}, time.monotonic()
    try:
        pages = Pages(work)
        for one in runnable:
            left_s = QUICK_S - (time.monotonic() - began) if asked.quick else LIMIT_S
            if left_s < 1:
                print(f"left for its next turn: {one.place}: {one.text}")
                continue
            argv, ran, faults = pages.try_command(one, min(left_s, LIMIT_S))
            ran_count += ran is not None
            took = f"{ran.seconds:.0f} s" if ran else "as before"
            late = bool(faults) and all(fault.startswith("not within") for fault in faults)
            excusable = late and (is_busy() or left_s < LIMIT_S)
            state = "ok" if not faults else "slow" if excusable else "FAILED"
            print(f"{state} ({took}) {one.place}: {one.text}", flush=True)
            if faults:
                print(f"    strobe {shlex.join(argv)}\n    {'; '.join(faults)}", flush=True)
                (slow if excusable else failed)[f"{one.place}: {one.text}"] = faults
            if asked.keep and ran:
                (work / f"{ran_count:03d}.txt").write_text(
                    f"{one.place}\n{shlex.join(argv)}\n\n{ran.out}\n--\n{ran.err}"
                )
    finally:
        print(f"kept: {work}") if asked.keep else shutil.rmtree(work, ignore_errors=True)
    for reason, count in excused.most_common():
        print(f"not run: {count} × {reason}")
    print("--policy.path of a flow policy is --policy.type here: a checkpoint needs the Hub for its tokenizer")
    for flag, reason in DROPPED.items():
        print(f"left out wherever it stands: {flag} ({reason})")
    found = {"commands": len(chosen), "ran": ran_count, "excused": dict(excused), "slow": slow, "failed": failed}
    finish(found, not failed)


if __name__ == "__main__":
    main()
