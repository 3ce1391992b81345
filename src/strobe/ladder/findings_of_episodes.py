"""Rules on the paired episodes of a ladder."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.results.finding import Evidence, Finding, info, warning
from strobe.evaluate.pairs import PairedEpisodes
from strobe.ladder.results import OptimizeResult

MAX_POSSIBLE_DROP = 0.1  # loss of success rate: episodes that cannot exclude more say little


def worse(result: OptimizeResult, _: Thresholds) -> Iterator[Finding]:
    for paired in result.episodes:
        if paired.kind == "worse":
            yield warning(
                rule="episodes-worse",
                title=f"{paired.candidate} is faster but succeeds less often in {paired.environment}",
                found=f"{paired.sentence}.",
                why="Its chunks are close to those of the baseline, but its episodes are not. The errors of many "
                "chunks add up, and the robot reaches states that the policy was not trained for.",
                do="Use the recipe, which does not contain it. A tighter --guard rejects such a treatment before any "
                "episode.",
                evidence=_evidence(paired),
            )


def find_scarce_episodes(result: OptimizeResult, _: Thresholds) -> Iterator[Finding]:
    for paired in result.episodes:
        open_question = paired.kind in ("no difference shown", "too few") and paired.by == "success"
        if open_question and paired.possible_drop > MAX_POSSIBLE_DROP:
            yield info(
                rule="episodes-say-little",
                title=f"After {len(paired.pairs)} paired episodes success may still be "
                f"{100 * paired.possible_drop:.0f} points lower",
                found=f"{paired.sentence}.",
                why="An episode succeeds or fails, so a few episodes show only large differences.",
                do="Play more episodes and name the loss that they must exclude: --eval.n_episodes=50 --guard "
                '"success_drop<=0.1".',
                evidence=_evidence(paired),
            )


def never_succeeds(result: OptimizeResult, _: Thresholds) -> Iterator[Finding]:
    for paired in result.episodes:
        if paired.by != "success" and paired.pairs:
            yield warning(
                rule="never-succeeds",
                title=f"Neither policy ever succeeds in {paired.environment}",
                found=f"0 of {len(paired.pairs)} episodes succeed on either side. The verdict is on the reward.",
                why="If nothing succeeds, no success can be lost. These episodes do not show that the robot acts the "
                "same.",
                do="Use a checkpoint that was trained for this simulator (--policy.path), and map its names to the "
                "simulator's (--rename_map).",
                evidence=_evidence(paired),
            )


def _evidence(paired: PairedEpisodes) -> Evidence:
    return {"pairs": float(len(paired.pairs)), "possible_drop": paired.possible_drop, "success": paired.success}


RULES = (worse, find_scarce_episodes, never_succeeds)
