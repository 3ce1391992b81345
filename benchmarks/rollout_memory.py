"""Watch the memory of a ten-minute `strobe rehearse` grow, or not.

A real lerobot-rollout with Real-Time Chunking at 30 Hz, emulated servos, two cameras of 640 x 480, a tiny SmolVLA. Its
resident memory is read once a second from outside; the bar is on the growth between the second minute and the last one,
medians of half a minute each.

    python benchmarks/rollout_memory.py [--quick]

The last line is JSON. `--quick` runs three minutes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from common.shared import finish, need

GROWTH_MB = 5.0
FIRST_S, WINDOW_S = 60, 30
CAMERA = "{type: opencv, index_or_path: 0, fps: 30, width: 640, height: 480}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three minutes")
    seconds = 180 if parser.parse_args().quick else 600
    need("robot", "smolvla")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        given = [
            "--robot.type=so101_follower", f"--robot.cameras={{front: {CAMERA}, wrist: {CAMERA}}}", "--device=cpu",
            "--policy.type=smolvla", "--inference.type=rtc", "--inference.rtc.execution_horizon=10", "--task=push",
            f"--duration={seconds}", "--play_sounds=false", "--return_to_initial_position=false",
        ]  # fmt: skip
        command = [sys.executable, "-m", "strobe.core.cli.main", "rehearse", f"--output_dir={folder}", "--", *given]
        began: float | None = None
        resident: list[tuple[float, float]] = []
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=log, env={**os.environ, "HF_HUB_OFFLINE": "1"}
            )
            watched = psutil.Process(process.pid)
            while process.poll() is None:
                if began is None and any(file.stat().st_size > 5000 for file in folder.glob("*.events")):
                    began = time.monotonic()  # the loop runs
                if began is not None and (at := time.monotonic() - began) < seconds:
                    resident.append((at, watched.memory_info().rss / 2**20))
                    print(f"\r{at:4.0f} s: {resident[-1][1]:,.1f} MiB", end="", file=sys.stderr)
                time.sleep(1)
        print(file=sys.stderr)
        if process.returncode or began is None:
            print((folder / "log").read_text()[-2000:], file=sys.stderr)
            finish({"seconds": seconds, "exit": process.returncode}, False)

    def median_memory(begin: float) -> float:
        return statistics.median(size for at, size in resident if begin <= at < begin + WINDOW_S)

    first, last = median_memory(FIRST_S), median_memory(resident[-1][0] - WINDOW_S)
    growth = last - first
    print(f"{first:,.1f} MiB after a minute, {last:,.1f} MiB at the end: {growth:+.2f} MiB")
    finish({"seconds": seconds, "first_mib": first, "last_mib": last, "growth_mib": growth}, growth <= GROWTH_MB)


if __name__ == "__main__":
    main()
