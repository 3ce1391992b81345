"""Rules on evaluations: what their episodes cannot show, and why."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.findings.thresholds import Thresholds
from strobe.results.evaluate import EvaluateResult
from strobe.results.finding import Finding


def never(result: EvaluateResult, _: Thresholds) -> Iterator[Finding]:
    """A policy that does not do the task at all: nothing can be lost."""
    if not result.variants or _succeeds(result):
        return
    episodes = sum(one.together.success.episodes for one in result.variants)
    yield Finding(
        rule="evaluation-never-succeeds",
        level="warning",
        title=f"No variant ever succeeds in {result.environment}",
        seen=f"0 of {episodes} episodes, over {_variants(len(result.variants))}.",
        why="Where nothing succeeds, nothing can be lost: a verdict of 'not worse' then says nothing about the task.",
        do="Play a checkpoint that was trained for this simulator (--policy.path), with its names mapped to the "
        "policy's by --rename_map, and enough ticks for the task (--env.episode_length).",
        evidence={"episodes": episodes},
    )


def undecided(result: EvaluateResult, _: Thresholds) -> Iterator[Finding]:
    """Variants on which these episodes have no verdict."""
    paired = {one.name: one.together.paired for one in result.variants if one.together.paired is not None}
    left = {name: pairs for name, pairs in paired.items() if pairs.decision.kind == "undecided"}
    if not left or not _succeeds(result):  # with no success, more episodes are no help
        return
    most = max(pairs.pairs for pairs in left.values())
    lost = max(-pairs.decision.interval.low for pairs in left.values())
    yield Finding(
        rule="evaluation-undecided",
        level="info",
        title=f"{most} pairs do not decide {_variants(len(left))}",
        seen=f"{', '.join(left)}: a loss of up to {100 * lost:.3g} points is not excluded. {result.foresight}".strip(),
        why="Whether an episode succeeds is a yes or a no: few of them show only large differences.",
        do="Go on where it ended: the same command with --resume=RUN and more --episodes. Adding episodes makes no "
        "verdict less honest, however often it is done.",
        evidence={"pairs": most, "possible_loss": lost},
    )


def _succeeds(result: EvaluateResult) -> bool:
    return any(one.together.success.successes for one in result.variants)


def _variants(count: int) -> str:
    return f"{count} variant{'' if count == 1 else 's'}"


RULES = (never, undecided)
