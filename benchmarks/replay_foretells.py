"""Foretell a rollout from another one by `strobe replay`, then compare the forecast with the run itself.

A tiny SmolVLA of random weights drives an emulated arm under four settings: Real-Time Chunking with an execution
horizon of 10 and of 20, with a queue threshold that is too small, and without Real-Time Chunking. Each run keeps its
observations. The first is replayed at the setting of each of the others, and each of the others at the setting of the
first: six forecasts. Compared are

- the ticks without an action: those of the run must lie in the forecast's 95 % interval, or one beyond it;
- the jumps from chunk to chunk of each joint: the 95 % intervals of run and forecast must overlap.

Nothing else may run on the machine: calls that are longer in one run than in another are foretold by no replay.

    python benchmarks/replay_foretells.py [--quick]

The last line is JSON: `holds` is whether all ticks were foretold so, and of the jumps at least 95 %.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common.shared import finish, need
from rich.console import Console
from rich.table import Table

CAMERA = "{type: opencv, index_or_path: 0, fps: 30, width: 160, height: 120}"
GUIDED = ("--inference.type=rtc", "--inference.queue_threshold=30", "--inference.rtc.execution_horizon=10")
SETTINGS = {
    "RTC, horizon 10": GUIDED,
    "RTC, horizon 20": (*GUIDED[:2], "--inference.rtc.execution_horizon=20"),
    "RTC, threshold 3": (GUIDED[0], "--inference.queue_threshold=3", GUIDED[2]),
    "sync": ("--inference.type=sync",),
}
FIRST = "RTC, horizon 10"
JUMPS_FORETOLD = 0.95


def answer(command: list[str], folder: Path) -> tuple[dict[str, Any], Path]:
    """The answer of a command of Strobe's, and the folder of its run."""
    print(f"… strobe {command[0]} {command[-1]}", file=sys.stderr)
    call = [sys.executable, "-m", "strobe.core.cli.main", command[0], f"--output_dir={folder}", *command[1:]]
    ran = subprocess.run(call, capture_output=True, text=True, check=False, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    results = sorted(folder.glob("*/result.json"))
    if not results:
        sys.exit(ran.stderr.strip())
    return json.loads(results[-1].read_text()), results[-1].parent


def rehearse(setting: tuple[str, ...], seconds: int, folder: Path) -> Path:
    given = [
        "--robot.type=so101_follower", f"--robot.cameras={{front: {CAMERA}, wrist: {CAMERA}}}", "--device=cpu",
        "--policy.type=smolvla", "--task=push", "--fps=30", f"--duration={seconds}", "--play_sounds=false",
        "--return_to_initial_position=false", *setting,
    ]  # fmt: skip
    return answer(["rehearse", "--observations", "--", *given], folder)[1]


def column(replayed: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in replayed["columns"] if one["name"] == name)


def overlap(one: dict[str, float] | None, other: dict[str, float] | None) -> bool:
    return bool(one and other) and one["low"] <= other["high"] and other["low"] <= one["high"]  # type: ignore[index]


def pair_jumps(
    foretold: list[dict[str, Any]], seen: list[dict[str, Any]]
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The jumps of each joint that both tell."""
    known = {one["joint"]: one for one in seen}
    return [(one, known[one["joint"]]) for one in foretold if one["joint"] in known]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="runs of 12 s, not 60: about four minutes")
    arguments = parser.parse_args()
    need("robot", "smolvla")
    seconds, draws = (12, 40) if arguments.quick else (60, 100)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        runs = {name: rehearse(setting, seconds, folder / name) for name, setting in SETTINGS.items()}
        ways = [way for name in SETTINGS if name != FIRST for way in ((FIRST, name), (name, FIRST))]
        forecasts = {
            (of, to): answer(["replay", str(runs[of]), f"--draws={draws}", *SETTINGS[to]], folder / f"{of} to {to}")[0]
            for of, to in ways
        }
    recorded = {of: column(forecast, "recorded") for (of, _), forecast in forecasts.items()}
    table = Table("run", "at the setting of", "ticks without an action: foretold", "seen", "jumps (× a step): foretold",
                  "seen", "joints")  # fmt: skip
    starved, jumps, figures = [], [], []
    for (of, to), forecast in forecasts.items():
        asked, seen = column(forecast, "as asked"), recorded[to]
        told, was = asked["figures"]["starved"], seen["queue"]["starved"]
        starved.append(told["low"] - 1 <= was <= told["high"] + 1)
        pairs = pair_jumps(asked["jumps"], seen["jumps"])
        good = [overlap(one["interval"], other["interval"]) for one, other in pairs]
        # A joint that one of both does not tell (a loop too slow for two seams) is not foretold.
        good += [False] * (max(len(asked["jumps"]), len(seen["jumps"])) - len(pairs))
        jumps += good
        mean = [sum(pair[side]["ratio"] for pair in pairs) / len(pairs) if pairs else math.nan for side in (0, 1)]
        figures.append({"of": of, "to": to, "starved_foretold": [told["low"], told["high"]], "starved": was,
                        "jump_foretold": mean[0] if pairs else None,
                        "jump": mean[1] if pairs else None, "joints_foretold": sum(good)})  # fmt: skip
        table.add_row(of, to, f"{told['low']:.0f} to {told['high']:.0f}", str(was), f"{mean[0]:.2f}", f"{mean[1]:.2f}",
                      f"{sum(good)} of {len(good)}")  # fmt: skip
    Console(width=150).print(table)
    share = sum(jumps) / len(jumps) if jumps else 0.0
    told = {"quick": arguments.quick, "seconds": seconds, "forecasts": figures, "jumps_foretold": share}
    finish({**told, "starvation_foretold": sum(starved)}, all(starved) and share >= JUMPS_FORETOLD)


if __name__ == "__main__":
    main()
