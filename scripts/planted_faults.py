"""Plants faults in a copy of the sources, one after the other, and shows whether the tests see each of them.

    .venv/bin/python scripts/planted_faults.py                  # all of scripts/planted_faults.toml: minutes
    .venv/bin/python scripts/planted_faults.py --only 'faster is slower'
    .venv/bin/python scripts/planted_faults.py --list

The checkout is only read. The tests first run without a fault. The exit code is 1 unless each fault was seen.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIST = ROOT / "scripts" / "planted_faults.toml"
LIMIT_S = 120.0  # of one test's run
GRACE_S = 10.0  # in which pytest ends what its tests have started
SEEN, NOT_SEEN, GONE, NOT_RUN = "seen", "NOT SEEN", "text is gone", "did not run"
UNSOUND = "fails anyway"  # its test, without the fault


@dataclass(frozen=True)
class Fault:
    """A fault that the tests have to see.

    Args:
        means: what it does to a user.
        file: where it is planted, from the root; ``text`` occurs there once, and ``faulty`` takes its place.
        seen_by: the test of `make test` that fails then, or a file of tests.
    """

    name: str
    means: str
    file: str
    text: str
    faulty: str
    seen_by: str

    @property
    def room(self) -> str:
        """The file's slice, or its room of the core; a package is one room."""
        if self.file.startswith("packages/"):
            return Path(self.file).parts[1]
        first, *others = Path(self.file).relative_to("src/strobe").parts
        return f"core/{others[0].removesuffix('.py')}" if first == "core" else first.removesuffix(".py")

    def plant_fault(self, source: str) -> str | None:
        """Return ``source`` with the fault; None if its text does not occur exactly once."""
        return source.replace(self.text, self.faulty) if source.count(self.text) == 1 else None


def faults() -> list[Fault]:
    """Return the list."""
    return [Fault(**fields) for fields in tomllib.loads(LIST.read_text())["fault"]]


def copy_sources(folder: Path) -> list[Path]:
    """Copy all sources into ``folder``. Return what Python is to import from there, Strobe first."""
    sources = [ROOT / "src", *sorted(ROOT.glob("packages/*/src"))]
    return [Path(shutil.copytree(source, folder / source.relative_to(ROOT))) for source in sources]


def run(tests: Sequence[str], paths: Sequence[Path], limit_s: float, *, bytecode: bool) -> int | None:
    """Run tests as `make test` selects them, with the sources in ``paths``. Return pytest's code; None after the limit.

    Python keeps its ``bytecode`` of whole sources alone.
    """
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(map(str, paths)), TMPDIR=str(paths[0].parent))
    environment["PYTHONDONTWRITEBYTECODE"] = "" if bytecode else "1"
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-m", "not matrix", "-p", "no:cacheprovider"]
    process = subprocess.Popen(
        [*command, *tests], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End pytest if it still runs, and what its tests have left."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def try_fault(fault: Fault, folder: Path, paths: Sequence[Path]) -> str:
    """Plant a fault in the copy in ``folder``, run its test, and take it out. Return what became of it."""
    file = folder / fault.file
    whole, times = file.read_text(), file.stat()
    if (faulty := fault.plant_fault(whole)) is None:
        return GONE
    file.write_text(faulty)
    code = run([fault.seen_by], paths, LIMIT_S, bytecode=False)
    file.write_text(whole)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    return {0: NOT_SEEN, 1: SEEN}.get(-1 if code is None else code, NOT_RUN)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME", help="plant one of them")
    parser.add_argument("--list", action="store_true", help="print the faults and plant none")
    given = parser.parse_args()
    chosen = [fault for fault in faults() if given.only in (None, fault.name)]
    if not chosen:
        parser.error(f"no fault is called '{given.only}': see --list")
    if given.list:
        print("\n".join(f"{fault.room:12} {fault.name}: {fault.means}" for fault in chosen))
        return 0
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell may have had SIGINT ignored
        signal.signal(number, lambda *_: sys.exit(130))
    began, rows = time.monotonic(), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="planted-faults-") as name:
        folder, paths = Path(name), copy_sources(Path(name))
        tests = sorted({fault.seen_by for fault in chosen})
        all_pass = run(tests, paths, LIMIT_S * len(tests), bytecode=True) == 0
        sound = {test for test in tests if all_pass or run([test], paths, LIMIT_S, bytecode=True) == 0}
        for fault in chosen:
            row = try_fault(fault, folder, paths) if fault.seen_by in sound else UNSOUND
            print(f"{row:12} {fault.room:12} {fault.name}: {fault.seen_by}", flush=True)
            rows[row] += 1
    counts = {row: rows[row] for row in (SEEN, NOT_SEEN, GONE, NOT_RUN, UNSOUND)}
    holds = rows[SEEN] == len(chosen)
    sizes = {"faults": len(chosen), "rooms": len({fault.room for fault in chosen})}
    print(json.dumps(sizes | counts | {"seconds": round(time.monotonic() - began), "holds": holds}))
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
