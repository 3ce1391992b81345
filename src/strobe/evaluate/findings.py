"""Rules on episodes: what they show of a treated policy, what they cannot show, and why."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.results.finding import Finding
from strobe.evaluate.pairs import time_in_words
from strobe.evaluate.results import EvaluateResult

MAX_POSSIBLE_DROP = 0.1  # loss of success rate: episodes that cannot exclude more say little
FEW_SHOW_LITTLE = "An episode succeeds or fails, so a few episodes show only large differences."


def no_variant_succeeds(result: EvaluateResult, _: Thresholds) -> Iterator[Finding]:
    """Variants of which none does the task at all: nothing can be lost."""
    if not result.variants or _any_success(result):
        return
    episodes = sum(variant.together.success.episodes for variant in result.variants)
    yield Finding(
        rule="evaluation-never-succeeds",
        level="warning",
        title=f"No variant ever succeeds in {result.environment}",
        seen=f"0 of {episodes} episodes, over {_variants(len(result.variants))}.",
        why="If nothing succeeds, no success can be lost. A verdict of 'not worse' then says nothing about the task.",
        do="Play a checkpoint that was trained for this simulator (--policy.path). Map the simulator's names to the "
        "policy's with --rename_map, and give enough ticks for the task (--env.episode_length).",
        evidence={"episodes": episodes},
    )


def undecided(result: EvaluateResult, _: Thresholds) -> Iterator[Finding]:
    """Variants on which these episodes have no verdict."""
    paired = {variant.name: variant.together.paired for variant in result.variants}
    open_pairs = {name: p for name, p in paired.items() if p is not None and p.decision.kind == "undecided"}
    if not open_pairs or not _any_success(result):  # with no success, more episodes are no help
        return
    most = max(pairs.pairs for pairs in open_pairs.values())
    possible_loss = max(-pairs.decision.interval.low for pairs in open_pairs.values())
    seen = f"{', '.join(open_pairs)}: a loss of up to {100 * possible_loss:.3g} points is not excluded."
    yield Finding(
        rule="evaluation-undecided",
        level="info",
        title=f"{most} pairs do not decide {_variants(len(open_pairs))}",
        seen=f"{seen} {result.foresight}".strip(),
        why=FEW_SHOW_LITTLE,
        do="Continue this run: give the same command with --resume=RUN and more --episodes. The verdicts stay valid, "
        "no matter how often you add episodes.",
        evidence={"pairs": most, "possible_loss": possible_loss},
    )


def faster_and_not_sooner(result: EvaluateResult, _: Thresholds) -> Iterator[Finding]:
    """A variant whose chunk is shown to be faster, and that takes as long for the task, or longer."""
    for variant in result.variants:
        ends = variant.chunk.times_interval if variant.chunk is not None else None
        paired = variant.time.paired if variant.time is not None else None
        if ends is None or ends.low <= 1 or paired is None or paired.kind not in ("later", "not sooner"):
            continue
        faster = f"A chunk is {ends.low:.3g} to {ends.high:.3g} times as fast."
        later = paired.kind == "later"
        yield Finding(
            rule="faster-chunk-slower-task" if later else "faster-chunk-not-sooner",
            level="warning" if later else "info",
            title=f"{variant.name}: a faster chunk, and the task {'takes longer' if later else 'is not done sooner'}",
            seen=f"{faster} The task: it {time_in_words(paired)}, in {paired.pairs} pairs.",
            why="In these episodes the simulator waits for the policy, so a chunk's time costs the task nothing. What "
            "changed is what the actions do: later means that they reach the goal in more control ticks."
            if later
            else "The task takes as many control ticks as before, and in these episodes the simulator waits for the "
            "policy. A faster chunk saves time only where the robot waits for it.",
            do="Play the episodes true to time: --realtime --latency=, with your machine's latency. Choose by time "
            "to task, after success.",
            evidence={"times": ends.low, "ratio": paired.ratio, "pairs": paired.pairs},
        )


def _any_success(result: EvaluateResult) -> bool:
    return any(variant.together.success.successes for variant in result.variants)


def _variants(count: int) -> str:
    return f"{count} variant{'' if count == 1 else 's'}"


OF_EVALUATIONS = (no_variant_succeeds, undecided, faster_and_not_sooner)
