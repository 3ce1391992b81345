"""Plant faults in a machine and see that `strobe doctor` names each of them, and nothing else.

Real faults, where this machine allows it: a quota that stops the processors after the start (a control group), no room
in shared memory (a mount of its own). Where root or the system's help is missing, a fault is left out and said so.

    python benchmarks/doctor_faults.py [--quick]

The last line is JSON: `holds` is whether each planted fault was named by the self-check that is for it, and no
self-check failed on the machine without faults. `--quick` plants the same faults; they take a minute or two.
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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.shared import finish

# The command in a process of its own, with a line before it.
COMMAND = "import sys\n{before}\nfrom strobe.core.cli.main import main\nsys.exit(main(sys.argv[1:]))\n"
# The quota begins when its counters have been read once.
THROTTLED = """
import os, pathlib
import strobe.doctor.steadiness as steadiness
plain, group = steadiness.System.held_up, pathlib.Path(os.environ["GROUP"])
def held_up(self):
    steadiness.System.held_up = plain
    before = plain(self)
    (group / "cpu.cfs_quota_us" if (group / "cpu.cfs_quota_us").exists() else group / "cpu.max").write_text(
        "50000" if (group / "cpu.cfs_quota_us").exists() else "50000 100000")
    return before
steadiness.System.held_up = held_up
"""


@dataclass(frozen=True)
class Fault:
    """A fault: the areas that are looked at, how it is planted, and the self-checks that must see it."""

    areas: str
    plant: Callable[[Path], tuple[list[str], str, dict[str, str]] | None]  # prefix, code before, environment
    seen_by: tuple[str, ...]


def sound(_: Path) -> tuple[list[str], str, dict[str, str]]:
    return [], "", {}


def throttle_cpu(folder: Path) -> tuple[list[str], str, dict[str, str]] | None:
    for root in (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")):
        group = root / f"strobe-{folder.name}"
        try:
            group.mkdir()
        except OSError:
            continue
        if not any((group / name).exists() for name in ("cpu.cfs_quota_us", "cpu.max")):
            group.rmdir()
            continue
        enter = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$0" "$@"']
        return enter, THROTTLED, {"GROUP": str(group)}
    return None


def drop_shared_memory(_: Path) -> tuple[list[str], str, dict[str, str]] | None:
    mount = "mount -t tmpfs -o size=16m tmpfs /dev/shm"
    if shutil.which("unshare") is None:
        return None
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True).returncode:
        return None
    return ["unshare", "-m", "sh", "-c", f'{mount}; exec "$0" "$@"'], "", {}


FAULTS: dict[str, Fault] = {
    "none": Fault("noise,loaders", sound, ()),
    "a throttled CPU": Fault("noise,steadiness,loaders", throttle_cpu, ("processor quota",)),
    "no shared memory": Fault("loaders", drop_shared_memory, ("shared memory of loader workers",)),
}
# What may need care on any machine that others use as well.
UNEVEN = ("smallest detectable difference", "other programs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the same: it takes a minute or two")
    parser.parse_args()
    figures: dict[str, Any] = {}
    try:
        for name, fault in FAULTS.items():
            figures[name] = run(name, fault)
    except KeyboardInterrupt:
        print("interrupted: what was planted so far follows", file=sys.stderr)
    planted = [one for name, one in figures.items() if name != "none" and one["planted"]]
    holds = len(figures) == len(FAULTS) and all(one["named"] for one in planted) and not figures["none"]["failing"]
    finish({"faults": figures, "planted": len(planted)}, holds)


def run(name: str, fault: Fault) -> dict[str, Any]:
    """Plant ``fault``, run the command, and return what it named."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        made = fault.plant(folder)
        if made is None:
            print(f"{name}: cannot be planted here (root, a control group or a mount is missing)")
            return {"planted": False}
        prefix, before, environment = made
        command = [*prefix, sys.executable, "-c", COMMAND.format(before=before), "doctor", f"--only={fault.areas}"]
        try:
            done = subprocess.run(
                [*command, f"--output_dir={folder / 'runs'}"],
                env={**os.environ, **environment},
                capture_output=True,
                text=True,
            )
            found = next((folder / "runs").glob("*/result.json"), None)
            if found is None:
                raise SystemExit(f"{name}: the command kept nothing: {done.stderr[-500:]}")
            checks = json.loads(found.read_text())["checks"]
        finally:
            if group := environment.get("GROUP"):
                leave_without_root(Path(group))
    bad = {check["name"]: check["seen"] for check in checks if check["outcome"] in ("fails", "doubtful")}
    failing = [check["name"] for check in checks if check["outcome"] == "fails"]
    named = [check for check in fault.seen_by if check in bad]
    print(f"{name}: {len(checks)} self-checks, {done.returncode} is the exit code")
    for check in named:
        print(f"  {check}: {bad[check]}")
    for check in bad:
        if check not in named:
            print(f"  also: {check}: {bad[check]}")
    return {
        "planted": True,
        "named": len(named) == len(fault.seen_by),
        "failing": failing,
        "others": [check for check in bad if check not in (*fault.seen_by, *UNEVEN)],
        "exit_code": done.returncode,
    }


def leave_without_root(group: Path) -> None:
    """End what still runs in ``group``, and remove it."""
    for _ in range(100):
        for line in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(line), signal.SIGKILL)
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)


if __name__ == "__main__":
    main()
