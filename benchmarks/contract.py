"""Does `strobe preflight --env` name a convention in which a simulator differs from a training set, and nothing else?

Scripted experts are recorded in PushT and MetaWorld with `strobe record`'s own recorders, and a scripted arm in LIBERO.
LeRobot's environments of the same tasks are compared with the recordings. Into each pair one convention is planted: in
the images, numbers and words that the simulator gives, in the actions that it gets, in its control mode, or in the
recording (its rate, its cameras, its gripper). Sound twins are other recordings and starts of the same environments:
other seeds, a rate that is only written otherwise, words in capitals, images with grain.

Bars: each planted convention is the first that is named, or one of two that are named together where they look the same
(an exchanged state and exchanged actions in PushT); nothing else is named with it; no sound twin gets a finding.

    python benchmarks/contract.py            about ten minutes on two cores
    python benchmarks/contract.py --quick    PushT, and MetaWorld without images

LIBERO and MetaWorld need different environments: each world that this one lacks is not run, and a line says so. LIBERO
takes half an hour:

    STROBE_LIBERO_ASSETS=FOLDER .venv-libero/bin/python benchmarks/contract.py

The last line is JSON with every figure.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from common.shared import finish, need
from planted.conventions import LIBERO, METAWORLD, PUSHT, STATES, World, judge_plant, look, plants, twins

from strobe.contract import sides
from strobe.core.errors import UserError
from strobe.lerobot.envs.environments import require_simulator


def judge_world(world: World, work: Path, seeds: int) -> Iterator[dict[str, Any]]:
    for seed in range(seeds):
        root = work / f"{world.name}-{seed}"
        if not root.exists():
            world.record(root, 1000 * (seed + 1))
        recorded = sides.read_set(root)
        untouched = look(world, recorded)
        for plant in [*twins(world), *(plants(world) if seed == 0 else ())]:
            named = judge_plant(world, plant, recorded, untouched)
            right = bool(named) and named[0] in plant.kinds if plant.kinds else not named
            yield {"world": world.name, "plant": plant.name, "seed": seed, "named": named, "sound": not plant.kinds,
                   "right": right, "other": sum(kind not in plant.kinds for kind in named)}  # fmt: skip


def list_worlds(some: Iterable[World]) -> Iterator[World]:
    """Yield those of the worlds whose simulators are installed."""
    for world in some:
        try:
            require_simulator(world.name)
        except UserError as error:
            print(f"not run: {world.name}: {error}", flush=True)
        else:
            yield world


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, help="keeps the recordings; a temporary folder by default")
    parser.add_argument("--quick", action="store_true", help="PushT, and MetaWorld without images")
    arguments = parser.parse_args()
    need("pusht", opengl=True)
    with tempfile.TemporaryDirectory() as scratch:
        work = arguments.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        rows = []
        chosen = [*list_worlds((PUSHT, STATES, *(() if arguments.quick else (METAWORLD, LIBERO))))]
        for world in chosen:
            for row in judge_world(world, work, 1 if arguments.quick or world is LIBERO else 3):
                rows.append(row)
                print(row, flush=True)
    planted, sound = [row for row in rows if not row["sound"]], [row for row in rows if row["sound"]]
    figures = {
        "worlds": [world.name for world in chosen],
        "planted": len(planted),
        "right": sum(row["right"] for row in planted),
        "silent": sum(not row["named"] for row in planted),
        "other": sum(row["other"] for row in planted),
        "sound": len(sound),
        "false": sum(not row["right"] for row in sound),
        "wrong": [(row["world"], row["plant"], row["named"]) for row in rows if not row["right"] or row["other"]],
    }
    finish(figures, figures["right"] == len(planted) and not figures["other"] and not figures["false"])


if __name__ == "__main__":
    main()
