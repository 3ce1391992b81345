"""Rules on the paired episodes of a ladder."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.results.finding import Finding
from strobe.evaluate.pairs import PairedEpisodes
from strobe.ladder.results import OptimizeResult

MAX_POSSIBLE_DROP = 0.1  # of the success rate: episodes that leave more possible say little
FEW_SHOW_LITTLE = "An episode succeeds or fails, so a few episodes show only large differences."


def worse(result: OptimizeResult, _: Thresholds) -> Iterator[Finding]:
    """A rung that the simulator refused."""
    for paired in result.episodes:
        if paired.kind != "worse":
            continue
        yield Finding(
            rule="episodes-worse",
            level="warning",
            title=f"{paired.candidate} is faster but succeeds less often in {paired.environment}",
            seen=f"{paired.sentence}.",
            why="Its chunks are close to those of the untouched policy, and its episodes are not. The errors of many "
            "chunks add up, and the robot reaches states that the policy was not trained for.",
            do="The recipe does not contain it. A tighter --guard refuses such a treatment before any episode is "
            "played.",
            evidence=_evidence(paired),
        )


def too_few(result: OptimizeResult, _: Thresholds) -> Iterator[Finding]:
    """Episodes that leave room for a loss that matters."""
    for paired in result.episodes:
        open_question = paired.kind in ("no difference shown", "too few") and paired.by == "success"
        if not open_question or paired.possible_drop <= MAX_POSSIBLE_DROP:
            continue
        yield Finding(
            rule="episodes-say-little",
            level="info",
            title=f"Too few episodes: after {len(paired.pairs)} pairs success may still be "
            f"{100 * paired.possible_drop:.0f} points lower",
            seen=f"{paired.sentence}.",
            why=FEW_SHOW_LITTLE,
            do="Play more episodes, such as --eval.n_episodes=50, and give the loss that they must exclude: "
            '--guard "success_drop<=0.1".',
            evidence=_evidence(paired),
        )


def never_succeeds(result: OptimizeResult, _: Thresholds) -> Iterator[Finding]:
    """A policy that does not do the task at all: nothing can be lost."""
    for paired in result.episodes:
        if paired.by == "success" or not paired.pairs:
            continue
        yield Finding(
            rule="never-succeeds",
            level="warning",
            title=f"Neither policy ever succeeds in {paired.environment}",
            seen=f"0 of {len(paired.pairs)} episodes succeed on either side. The verdict is on the reward.",
            why="If nothing succeeds, no success can be lost. These episodes do not show that the robot acts the same.",
            do="Play a checkpoint that was trained for this simulator (--policy.path), and map its names to the "
            "simulator's (--rename_map). Or give the episodes more time, if the simulator's config allows it.",
            evidence=_evidence(paired),
        )


def _evidence(paired: PairedEpisodes) -> dict[str, float | str | None]:
    return {"pairs": float(len(paired.pairs)), "possible_drop": paired.possible_drop, "success": paired.success}


RULES = (worse, too_few, never_succeeds)
