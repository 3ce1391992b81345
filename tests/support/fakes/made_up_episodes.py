"""Episodes by lot, for tests of evaluations. Processes import this file: no torch."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping

from strobe.evaluate.episode_log import EpisodeLine

RATES = {"baseline": 0.9, "5 steps": 0.9, "2 steps": 0.3}
MS = {"baseline": 20.0, "5 steps": 10.0, "2 steps": 4.0}


def made_up(name: str, task: str, seed: int, rates: Mapping[str, float] = RATES) -> EpisodeLine:
    """An episode: whoever succeeds with a lower chance loses what the others lose too, as on one start."""
    lot = random.Random(f"{task} {seed}").random()
    success = lot < rates[name]
    ms = MS.get(name, 7.0)
    return EpisodeLine(
        variant=name, task=task, seed=seed, start=start_digest(task, seed), success=success,
        reward=10.0 * success + lot,
        ticks=20, call_ms=[ms, ms, ms + 1], policy_ms=3 * ms, step_ms=40.0, render_ms=20.0, reset_ms=5.0,
        seconds=2.0, limit_s=4.0,
    )  # fmt: skip


def start_digest(task: str, seed: int) -> str:
    """A digest of the first observation."""
    return hashlib.sha256(f"{task} {seed}".encode()).hexdigest()
