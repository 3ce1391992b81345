"""Rules on episodes: what they show of a treated policy, what they cannot show, and why."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.findings.texts import Found, finding
from strobe.core.findings.thresholds import Thresholds
from strobe.core.results.data import Interval
from strobe.core.results.finding import Finding
from strobe.evaluate.pairs import PairedTimes, time_in_words
from strobe.evaluate.results import EvaluateResult


@finding("evaluation-never-succeeds", "warning")
def all_variants_fail(result: EvaluateResult, _: Thresholds) -> Found:
    """No variant ever succeeds in {result.environment}.

    Found: 0 of {episodes} episodes, over {count} variant{count:plural}.
    Why: If nothing succeeds, no success can be lost. A verdict of 'not worse' then says nothing about the task.
    Do: Play a checkpoint that was trained for this simulator (--policy.path). Map the simulator's names to the policy's
        with --rename_map, and give enough ticks for the task (--env.episode_length).
    """
    if result.variants and not _any_success(result):
        episodes = sum(variant.together.success.episodes for variant in result.variants)
        yield {"episodes": episodes}, {"count": len(result.variants)}


@finding("evaluation-undecided", "info")
def undecided_variants(result: EvaluateResult, _: Thresholds) -> Found:
    """{pairs} pairs are too few to decide {count} variant{count:plural}.

    Found: {seen}
    Why: An episode succeeds or fails, so a few episodes show only large differences.
    Do: Continue this run: give the same command with --resume=RUN and more --episodes. The verdicts stay valid, no
        matter how often you add episodes.
    """
    paired = {variant.name: variant.together.paired for variant in result.variants}
    open_pairs = {name: p for name, p in paired.items() if p is not None and p.decision.kind == "undecided"}
    if open_pairs and _any_success(result):  # with no success, more episodes are no help
        count, possible_loss = len(open_pairs), max(-pairs.decision.interval.low for pairs in open_pairs.values())
        loss = f"{', '.join(open_pairs)}: a loss of up to {100 * possible_loss:.3g} points is not excluded."
        seen = f"{loss} {result.foresight or ''}".strip()
        yield {"pairs": max(pairs.pairs for pairs in open_pairs.values()), "possible_loss": possible_loss}, locals()


def faster_and_not_sooner(result: EvaluateResult, _: Thresholds) -> Iterator[Finding]:
    """A variant whose chunk is shown to be faster, and that takes as long for the task, or longer."""
    for variant in result.variants:
        ends = variant.chunk.times_interval if variant.chunk is not None else None
        paired = variant.time.paired if variant.time is not None else None
        if ends is not None and ends.low > 1 and paired is not None:
            if paired.kind == "later":
                yield from _later(variant.name, ends, paired)
            elif paired.kind == "not sooner":
                yield from _unchanged_task_time(variant.name, ends, paired)


@finding("faster-chunk-slower-task", "warning")
def _later(name: str, ends: Interval, paired: PairedTimes) -> Found:
    """{name} has a faster chunk, but the task takes longer.

    Found: A chunk is {ends.low:.3g} to {ends.high:.3g} × as fast. The variant {words}, in {paired.pairs} pairs.
    Why: In these episodes the simulator waits for the policy, so a chunk's time costs the task nothing. What changed is
        what the actions do: they reach the goal in more control ticks.
    Do: Play the episodes with --realtime --latency=MS, with your machine's latency. Choose by success first, then by
        time to task.
    """
    yield {"times": ends.low, "ratio": paired.ratio, "pairs": paired.pairs}, {"words": time_in_words(paired)}


@finding("faster-chunk-not-sooner", "info")
def _unchanged_task_time(name: str, ends: Interval, paired: PairedTimes) -> Found:
    """{name} has a faster chunk, but the task is not done sooner.

    Found: A chunk is {ends.low:.3g} to {ends.high:.3g} × as fast. The variant {words}, in {paired.pairs} pairs.
    Why: The task takes as many control ticks as before, and in these episodes the simulator waits for the policy. A
        faster chunk saves time only if the robot waits for it.
    Do: Play the episodes with --realtime --latency=MS, with your machine's latency. Choose by success first, then by
        time to task.
    """
    yield {"times": ends.low, "ratio": paired.ratio, "pairs": paired.pairs}, {"words": time_in_words(paired)}


def _any_success(result: EvaluateResult) -> bool:
    return any(variant.together.success.successes for variant in result.variants)


OF_EVALUATIONS = (all_variants_fail, undecided_variants, faster_and_not_sooner)
