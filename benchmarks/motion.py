"""Do the checks of a recording's motion name what is planted, and nothing in sound recordings?

Made-up recordings of two robots (6 joints in degrees; 7 joints in radians, gripper 0 to 1), 12 episodes each:

- faults of `planted/motion.py`, each in three strengths: a joint that rests away from its commands, a gripper's
  complement, a sign, a factor, degrees and radians in one set, joints exchanged, an encoder that stands, late actions
  in half of the episodes, actions that are the present state, spikes, wraps, a part of an episode in another, vectors
  exchanged, a slow loop in a part of
  the episodes. Bar: the middle and the strong ones are named by their check in at least 95 %; the weak ones are shown.
  What another check says besides is counted.
- sound recordings of 18 kinds. Bar: nothing is found in any.

The plants were chosen with the checks in view. Three limits were moved after runs of sound recordings (a joint at its
stop, fingers around something, degrees taken for radians), none for a strength of a plant: each limit says where it
comes from in `src/strobe/motion`.

    python benchmarks/motion.py            20 seeds of each, a minute or two
    python benchmarks/motion.py --quick    2 seeds
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from common.shared import finish
from planted.motion import DEGREES, PLANTS, RADIANS, SOUND, Robot, make_recording

from strobe.motion.checks import look_at_motion
from strobe.motion.results import Oddity

ROBOTS = {"degrees": DEGREES, "radians": RADIANS}
SEEDS, QUICK = 20, 2
SOUND_SEEDS = 5  # of each kind and robot
BAR = 0.95
WEAK = 0


def name_plants(seeds: int) -> Iterator[dict[str, Any]]:
    """Yield, for each plant, strength and robot, how many recordings of how many its check names."""
    for name, (check, plant) in PLANTS.items():
        for strength in range(3):
            for shape, robot in ROBOTS.items():
                found = [_warnings(plant(make_recording(robot, seed), strength).series()) for seed in range(seeds)]
                named = sum(check in {each.check for each in one} for one in found)
                others = Counter(each.check for one in found for each in one if each.check != check)
                yield {"plant": name, "strength": strength, "robot": shape, "named": named, "others": dict(others)}


def look_at_sound(seeds: int) -> Iterator[str]:
    """Yield a line for each thing that is found in a sound recording."""
    for name, (shape, change) in SOUND.items():
        for unit, robot in ROBOTS.items():
            for seed in range(seeds):
                for each in _warnings(change(make_recording(shape(robot), 1000 + seed)).series()):
                    yield f"{name}, {unit}, seed {1000 + seed}: {each.title}"


def _warnings(series: Any) -> list[Oddity]:
    return [each for each in look_at_motion(series).found if each.level == "warning"]


def _total(robots: dict[str, Robot], seeds: int) -> int:
    return len(SOUND) * len(robots) * seeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} seeds")
    quick, began = parser.parse_args().quick, time.monotonic()
    seeds, sound_seeds = (QUICK, 1) if quick else (SEEDS, SOUND_SEEDS)
    rows = []
    print(f"{'fault':20}{'strength':>9}  {'robot':9}{'named':>9}  others")
    for row in name_plants(seeds):
        rows.append(row)
        others = ", ".join(f"{name} {count}" for name, count in row["others"].items())
        print(f"{row['plant']:20}{row['strength']:9}  {row['robot']:9}{row['named']:6}/{seeds:2}  {others}", flush=True)
    false = list(look_at_sound(sound_seeds))
    for line in false:
        print(f"found in a sound recording: {line}", flush=True)
    missed = [row for row in rows if row["strength"] > WEAK and row["named"] < BAR * seeds]
    weak = [row["named"] for row in rows if row["strength"] == WEAK]
    figures = {
        "plants": len(rows) * seeds,
        "named": sum(row["named"] for row in rows),
        "weak_named": sum(weak),
        "weak": len(weak) * seeds,
        "below_the_bar": [f"{row['plant']} {row['strength']} {row['robot']}: {row['named']}" for row in missed],
        "named_besides": sum(sum(row["others"].values()) for row in rows),
        "sound": _total(ROBOTS, sound_seeds),
        "false_alarms": len(false),
        "seconds": round(time.monotonic() - began),
    }
    finish(figures, not missed and not false)


if __name__ == "__main__":
    main()
