"""Does `strobe preflight` name what is wired wrongly, and does it claim nothing where all is wired well?

Trains two small ACTs, one of images alone, and a Diffusion on scripted PushT with two cameras of 48 × 48 (--work keeps
them and the data), then looks at

- miswired data: the same episodes as a robot would have recorded them whose cameras change places, whose channels are
  BGR, whose joints have another order, and so on. Bar: each is named by a finding of its kind, with how to mend it.
- miswired files of the checkpoint: statistics under another name, NaN, names of a compiled policy, and so on. Bar: each
  is named, and where --mend mends it, the copy has no such finding.
- sound looks: other episodes, those of the training and others, other seeds of noise. Bar: no serious finding in any.
- random weights. Bar: no hypothesis is claimed.

    python benchmarks/preflight.py --work=FOLDER            about an hour on one core
    python benchmarks/preflight.py --work=FOLDER --quick    fewer sound looks, shorter trainings, no Diffusion
"""

from __future__ import annotations

import argparse
import logging
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _preflight_data import record, write
from _preflight_plants import IN_DATA, IN_FILES, planted
from _preflight_training import save_random, train
from _shared import finish

from strobe.kinds import advise
from strobe.results.finding import Finding
from strobe.results.preflight import PreflightResult
from strobe.studies.preflight.open_loop import Frames
from strobe.studies.preflight.run import Preflight, look_at_frames, preflight

EPISODES, TICKS = 40, 30  # recorded to train on
LOOKED_AT = 20  # episodes of a planted look; with 8, joints that change places are 'not shown'
SOUND_EPISODES = 8  # of a sound look
FRAMES = 40  # of a look
POLICIES = ("act", "act of images", "diffusion")
MENDED = "--mend"


def look(policy: Path, data: Path, *, most: int = FRAMES, **frames: Any) -> tuple[PreflightResult, list[Finding]]:
    """Return what preflight finds, with its open loop."""
    result = preflight(Preflight(policy, data))
    look_at_frames(result, policy, Frames(data, 600.0, most=most, **frames), lambda _: None)
    return result, advise(result)


def serious(findings: Sequence[Finding]) -> list[str]:
    return [finding.rule for finding in findings if finding.level == "warning"]


def named(findings: Sequence[Finding], rules: Sequence[str], mend: str) -> bool:
    """Whether one of ``rules`` fired and says how to mend it."""
    return any(finding.rule in rules and finding.do and mend in finding.do for finding in findings)


def in_data(policies: dict[str, Path], work: Path, episodes: Sequence[Any]) -> dict[str, bool]:
    outcomes = {}
    for plant in IN_DATA:
        if plant.policy not in policies:
            continue
        data = write(work / f"data-{plant.name.replace(' ', '-')}", episodes[:LOOKED_AT], plant.change)
        result, findings = look(policies[plant.policy], data)
        outcomes[plant.name] = named(findings, plant.rules, plant.mend)
        loop = result.open_loop
        explained = loop.whole.explained if loop is not None and loop.whole is not None else float("nan")
        claims = [f"{each.name} ({each.explained or 0:.2f})" for each in result.hypotheses if each.outcome == "claimed"]
        said = f"as it is {explained:.2f}; claimed: {', '.join(claims) or 'nothing'}; {', '.join(serious(findings))}"
        print(f"{'named ' if outcomes[plant.name] else 'MISSED'} {plant.name}: {said}", flush=True)
    return outcomes


def in_files(policy: Path, work: Path, data: Path) -> dict[str, bool]:
    outcomes = {}
    for plant in IN_FILES:
        copy = planted(plant, policy, work / "planted")
        seen = Preflight(copy, data, rename=plant.rename)
        found = named(advise(preflight(seen)), plant.rules, plant.mend)
        mended = True
        if MENDED in plant.mend:
            new = work / "mended"
            shutil.rmtree(new, ignore_errors=True)
            preflight(Preflight(copy, data, rename=plant.rename, mend=new))
            mended = not set(serious(advise(preflight(Preflight(new, data))))) & set(plant.rules)
        outcomes[plant.name] = found and mended
        print(f"{'named ' if outcomes[plant.name] else 'MISSED'} {plant.name}{'' if mended else ': not mended'}")
    return outcomes


def sound_looks(policy: Path, sources: Sequence[tuple[Path, int]], count: int) -> tuple[int, list[str], list[float]]:
    """Return the number of looks with a serious finding, what they were, and what was explained in each."""
    random, wrong, said, explained = np.random.default_rng(0), 0, [], []
    for number in range(count):
        data, episodes = sources[number % len(sources)]
        some = sorted(int(each) for each in random.choice(episodes, SOUND_EPISODES, replace=False))
        result, findings = look(policy, data, episodes=some, seed=number)
        if result.open_loop is not None and result.open_loop.whole is not None:
            explained.append(result.open_loop.whole.explained)
        if rules := serious(findings):
            wrong += 1
            said.append(f"look {number} at {data.name}: {', '.join(rules)}")
            print(f"WRONG {said[-1]}", flush=True)
    return wrong, said, explained


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, help="folder of data and trained policies, kept; default: a temporary one")
    parser.add_argument("--seconds", type=float, default=300.0, help="of a core, to train a policy")
    parser.add_argument("--looks", type=int, default=40, help="sound ones")
    parser.add_argument("--quick", action="store_true", help="8 sound looks, and a training of 2 minutes")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.looks, arguments.seconds = min(arguments.looks, 8), min(arguments.seconds, 120.0)
    logging.disable(logging.WARNING)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        work = arguments.work or Path(temporary)
        episodes = record(work, EPISODES, TICKS)
        others = record(work, 16, TICKS, seed=1)
        sound, unseen = write(work / "sound", episodes), write(work / "unseen", others)
        policies = {kind: work / kind.replace(" ", "-") for kind in (POLICIES[:2] if arguments.quick else POLICIES)}
        for kind, folder in policies.items():
            print(f"trained {kind}: {train(kind, sound, folder, arguments.seconds)}", flush=True)
        policy = policies["act"]
        of_data, of_files = in_data(policies, work, episodes), in_files(policy, work, sound)
        wrong, said, explained = sound_looks(policy, [(sound, EPISODES), (unseen, 16)], arguments.looks)
        claims = []
        for seed in range(2 if arguments.quick else 5):
            result, _ = look(save_random("act", sound, work / f"random-{seed}", seed), sound, seed=seed)
            claims += [each.name for each in result.hypotheses if each.outcome == "claimed"]
    outcomes = of_data | of_files
    figures = {
        "planted": len(outcomes),
        "named": sum(outcomes.values()),
        "missed": [name for name, seen in outcomes.items() if not seen],
        "sound_looks": arguments.looks,
        "wrong": wrong,
        "wrong_findings": said,
        "explained_least": min(explained, default=None),
        "explained_median": float(np.median(explained)) if explained else None,
        "claimed_of_random_weights": claims,
        "seconds": round(time.monotonic() - began),
    }
    finish(figures, holds=all(outcomes.values()) and not wrong and not claims)


if __name__ == "__main__":
    main()
