"""Rules on the paired episodes of a ladder."""

from __future__ import annotations

from strobe.core.findings.texts import Evidence, Found, finding
from strobe.core.findings.thresholds import Thresholds
from strobe.evaluate.pairs import PairedEpisodes
from strobe.ladder.results import OptimizeResult

MAX_POSSIBLE_DROP = 0.1  # loss of success rate: episodes that cannot exclude more say little


@finding("episodes-worse", "warning")
def worse(result: OptimizeResult, _: Thresholds) -> Found:
    """{paired.candidate} is faster but succeeds less often in {paired.environment}.

    Found: {paired.sentence}.
    Why: Its chunks are close to those of the baseline, but its episodes are not. The errors of many chunks add up, and
        the robot reaches states that the policy was not trained for.
    Do: Use the recipe, which does not contain it. A tighter --guard rejects such a treatment before any episode.
    """
    for paired in result.episodes:
        if paired.kind == "worse":
            yield _evidence(paired), locals()


@finding("episodes-say-little", "info")
def find_scarce_episodes(result: OptimizeResult, _: Thresholds) -> Found:
    """After {pairs:.0f} paired episodes success may still be {points:.0f} points lower.

    Found: {paired.sentence}.
    Why: An episode succeeds or fails, so a few episodes show only large differences.
    Do: Play more episodes and name the loss that they must exclude: --eval.n_episodes=50 --guard "success_drop<=0.1".
    """
    for paired in result.episodes:
        open_question = paired.kind in ("no difference shown", "too few") and paired.by == "success"
        if open_question and paired.possible_drop > MAX_POSSIBLE_DROP:
            points = 100 * paired.possible_drop
            yield _evidence(paired), locals()


@finding("never-succeeds", "warning")
def never_succeeds(result: OptimizeResult, _: Thresholds) -> Found:
    """Neither policy ever succeeds in {paired.environment}.

    Found: 0 of {pairs:.0f} episodes succeed on either side. The verdict is on the reward.
    Why: If nothing succeeds, no success can be lost. These episodes do not show that the robot acts the same.
    Do: Use a checkpoint that was trained for this simulator (--policy.path), and map its names to the simulator's
        (--rename_map).
    """
    for paired in result.episodes:
        if paired.by != "success" and paired.pairs:
            yield _evidence(paired), locals()


def _evidence(paired: PairedEpisodes) -> Evidence:
    return {"pairs": float(len(paired.pairs)), "possible_drop": paired.possible_drop, "success": paired.success}


RULES = (worse, find_scarce_episodes, never_succeeds)
