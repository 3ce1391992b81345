"""Do the checks of a recording's motion name what is planted, and nothing in sound recordings?

Made-up recordings of two robots (6 joints in degrees; 7 joints in radians, gripper 0 to 1), 12 episodes each:

- faults of `planted/motion.py`, each in three strengths: a joint that rests away from its commands, a gripper's
  complement, a sign, a factor, degrees and radians in one set, joints exchanged, an encoder that stands, late actions
  in half of the episodes, actions that are the present state, spikes, wraps, a part of an episode in another, vectors
  exchanged, a slow loop in a part of
  the episodes. Bar: the middle and the strong ones are named by their check in at least 95 %; the weak ones are shown.
  What another check says besides is counted.
- faults of `planted/pictures.py`, as decoding would show them, in three strengths: a camera that is late, seen by the
  other camera alone; a light that goes out. The same bar.
- sound recordings of 19 kinds, and pictures of 11 kinds. Bar: nothing is found in any.

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
from itertools import chain
from typing import Any

from common.shared import finish
from planted.motion import DEGREES, PLANTS, RADIANS, SOUND, Made, make_recording
from planted.pictures import PICTURE_PLANTS, SOUND_PICTURES, View, make_pictures
from scipy import stats

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
                if check == "speeds" and robot.kind is None:
                    continue  # its servos are not known
                found = [_warnings(plant(make_recording(robot, seed), strength).series()) for seed in range(seeds)]
                named = sum(check in {each.check for each in one} for one in found)
                others = Counter(each.check for one in found for each in one if each.check != check)
                yield {"plant": name, "strength": strength, "robot": shape, "named": named, "others": dict(others)}


def name_picture_plants(seeds: int) -> Iterator[dict[str, Any]]:
    """Yield the same of each fault of pictures."""
    for name, (checks, views) in PICTURE_PLANTS.items():
        for strength in range(3):
            found = []
            for seed in range(seeds):
                made = make_recording(DEGREES, seed)
                found.append({each.check for each in _look_at_pictures(made, seed, views(made, strength))})
            others = Counter(check for one in found for check in one - checks)
            named = sum(bool(one & checks) for one in found)
            yield {"plant": name, "strength": strength, "robot": "pictures", "named": named, "others": dict(others)}


def _look_at_pictures(made: Made, seed: int, views: tuple[View, ...]) -> list[Oddity]:
    decoded = make_pictures(made, seed, *views)
    return [each for each in look_at_motion(made.series(), decoded=decoded).found if each.level == "warning"]


def look_at_sound(seeds: int) -> Iterator[str]:
    """Yield a line for each thing that is found in a sound recording."""
    for name, (shape, change) in SOUND.items():
        for unit, robot in ROBOTS.items():
            for seed in range(seeds):
                for each in _warnings(change(make_recording(shape(robot), 1000 + seed)).series()):
                    yield f"{name}, {unit}, seed {1000 + seed}: {each.title}"
    for name, views in SOUND_PICTURES.items():
        for seed in range(len(ROBOTS) * seeds):
            for each in _look_at_pictures(make_recording(DEGREES, 2000 + seed), 2000 + seed, views):
                yield f"{name}, seed {2000 + seed}: {each.title}"


def _warnings(series: Any) -> list[Oddity]:
    return [each for each in look_at_motion(series).found if each.level == "warning"]


def _interval(count: int, total: int) -> list[float]:
    """Return the 95 % interval of a rate (Clopper and Pearson)."""
    ends = stats.binomtest(count, total).proportion_ci()
    return [round(float(ends.low), 4), round(float(ends.high), 4)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} seeds")
    quick, began = parser.parse_args().quick, time.monotonic()
    seeds, sound_seeds = (QUICK, 1) if quick else (SEEDS, SOUND_SEEDS)
    rows = []
    print(f"{'fault':27}{'strength':>9}  {'robot':9}{'named':>9}  others")
    for row in chain(name_plants(seeds), name_picture_plants(seeds)):
        rows.append(row)
        others = ", ".join(f"{name} {count}" for name, count in row["others"].items())
        print(f"{row['plant']:27}{row['strength']:9}  {row['robot']:9}{row['named']:6}/{seeds:2}  {others}", flush=True)
    false = list(look_at_sound(sound_seeds))
    for line in false:
        print(f"found in a sound recording: {line}", flush=True)
    missed = [row for row in rows if row["strength"] > WEAK and row["named"] < BAR * seeds]
    firm = [row["named"] for row in rows if row["strength"] > WEAK]
    sound = (len(SOUND) + len(SOUND_PICTURES)) * len(ROBOTS) * sound_seeds
    weak = [row["named"] for row in rows if row["strength"] == WEAK]
    figures = {
        "plants": len(rows) * seeds,
        "named": sum(row["named"] for row in rows),
        "weak_named": sum(weak),
        "weak": len(weak) * seeds,
        "named_of_middle_and_strong": sum(firm),
        "middle_and_strong": len(firm) * seeds,
        "interval": _interval(sum(firm), len(firm) * seeds),
        "below_the_bar": [f"{row['plant']} {row['strength']} {row['robot']}: {row['named']}" for row in missed],
        "named_besides": sum(sum(row["others"].values()) for row in rows),
        "sound": sound,
        "false_alarms": len(false),
        "false_alarms_interval": _interval(min(len(false), sound), sound),
        "seconds": round(time.monotonic() - began),
    }
    finish(figures, not missed and not false)


if __name__ == "__main__":
    main()
