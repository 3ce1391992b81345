"""Rules on paired episodes: what they show of a treated policy, and what they cannot."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.findings.thresholds import Thresholds
from strobe.results.answer import OptimizeResult
from strobe.results.episodes import PairedEpisodes
from strobe.results.finding import Finding


def worse(result: OptimizeResult, _: Thresholds) -> Iterator[Finding]:
    """A rung that the simulator refused."""
    for one in result.episodes:
        if one.kind != "worse":
            continue
        yield Finding(
            rule="episodes-worse",
            level="warning",
            title=f"{one.candidate} is faster and does worse in {one.environment}",
            seen=f"{one.sentence}.",
            why="Its chunks are close to the untouched policy's, and what it makes of a whole episode is not: errors "
            "of many chunks add up, and the robot ends in places that it was not trained for.",
            do="The ladder ends below it. A tighter --guard finds such a treatment before the episodes do.",
            evidence=_evidence(one),
        )


def little(result: OptimizeResult, thresholds: Thresholds) -> Iterator[Finding]:
    """Episodes that leave room for a loss that matters."""
    for one in result.episodes:
        open_question = one.kind in ("no difference shown", "too few") and one.by == "success"
        if not open_question or one.possible_drop <= thresholds.drop_large:
            continue
        yield Finding(
            rule="episodes-say-little",
            level="info",
            title=f"Too few episodes: after {len(one.pairs)} pairs success may still be "
            f"{100 * one.possible_drop:.0f} points lower",
            seen=f"{one.sentence}.",
            why="Whether an episode succeeds is a yes or a no: few of them show only large differences.",
            do='Take more, such as --eval.n_episodes=50, and say what must be excluded: --guard "success_drop<=0.1".',
            evidence=_evidence(one),
        )


def never(result: OptimizeResult, _: Thresholds) -> Iterator[Finding]:
    """A policy that does not do the task at all: nothing can be lost."""
    for one in result.episodes:
        if one.by == "success" or not one.pairs:
            continue
        yield Finding(
            rule="never-succeeds",
            level="warning",
            title=f"Neither policy ever succeeds in {one.environment}",
            seen=f"0 of {len(one.pairs)} episodes on either side; judged by reward.",
            why="Where nothing succeeds, nothing can be lost: these episodes do not show that the robot acts the same.",
            do="Play a checkpoint that was trained for this simulator (--policy.path), with its names mapped to the "
            "simulator's (--rename_map); or give the episodes more time, as its config allows.",
            evidence=_evidence(one),
        )


def _evidence(one: PairedEpisodes) -> dict[str, float | str | None]:
    return {"pairs": float(len(one.pairs)), "possible_drop": one.possible_drop, "success": one.success}


RULES = (worse, little, never)
