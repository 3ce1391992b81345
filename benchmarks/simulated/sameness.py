"""Of `strobe verify`: how often observations all hold though more of the chunks are wrong than it says can be."""

from __future__ import annotations

import numpy as np
from simulated.claim import Claim

from strobe.core.report.verify import LEVEL, max_missed_share

OBSERVATIONS = (4, 16, 60)


def simulate(quick: bool) -> list[Claim]:
    """Observations drawn from a policy that is wrong on just over the share that is told."""
    random, tries = np.random.default_rng(0), 2_000 if quick else 50_000
    claims = []
    for count in OBSERVATIONS:
        wrong = random.random((tries, count)) < max_missed_share(count) + 1e-9
        held = int((~wrong.any(axis=1)).sum())
        name = "all observations hold, and more chunks are wrong than told"
        claims.append(Claim(name, f"{count} observations", 1 - LEVEL, "at most", held, tries))
    return claims
