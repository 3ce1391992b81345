"""Rules on episodes: what they show of a treated policy, what they cannot show, and why."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.trust import describe_growth
from strobe.core.report.frame import pick_flags
from strobe.core.results import units
from strobe.core.results.finding import Finding, info, warning
from strobe.core.untrusted import contents, parse_json
from strobe.evaluate.pairs import time_in_words
from strobe.evaluate.results import EvaluateResult

SELDOM = 0.05  # success rate up to which the simulator is in doubt


def all_variants_fail(result: EvaluateResult, _: Thresholds) -> Iterator[Finding]:
    if result.variants and result.score == "success" and not _any_success(result):
        episodes = sum(variant.together.success.episodes for variant in result.variants)
        yield warning(
            rule="evaluation-never-succeeds",
            title=f"No variant ever succeeds in {result.environment}",
            found=f"0 of {episodes} episodes, over {units.count(len(result.variants), 'variant')}.",
            why="If nothing succeeds, no success can be lost. A verdict of 'not worse' then says nothing about the "
            "task.",
            do="Play a checkpoint that was trained for this simulator (--policy.path). Map the simulator's names to "
            "the policy's with --rename_map, and give enough ticks for the task (--env.episode_length).",
        )


def undecided_variants(result: EvaluateResult, _: Thresholds) -> Iterator[Finding]:
    paired = {variant.name: variant.together.comparison for variant in result.variants}
    open_pairs = {name: p for name, p in paired.items() if p is not None and p.decision.kind == "undecided"}
    # With no success to lose, more episodes are no help.
    if open_pairs and (result.score == "progress" or _any_success(result)):
        count, possible_loss = len(open_pairs), max(-each.decision.interval.low for each in open_pairs.values())
        loss = f"{', '.join(open_pairs)}: a loss of up to {100 * possible_loss:.3g} points is not excluded."
        pairs = max(each.pairs for each in open_pairs.values())
        yield info(
            rule="evaluation-undecided",
            title=f"{pairs} pairs are too few to decide {count} variant{units.plural(count)}",
            found=f"{loss} {result.foresight or ''}".strip(),
            why="One episode says little, so a few episodes show only large differences.",
            do="Continue this run: give the same command with --resume=RUN and more --episodes. The verdicts stay "
            "valid, no matter how often you add episodes.",
        )


def faster_and_not_sooner(result: EvaluateResult, _: Thresholds) -> Iterator[Finding]:
    """A variant whose chunk is shown to be faster, and that takes as long for the task, or longer."""
    for variant in result.variants:
        ends = variant.chunk.times_interval if variant.chunk is not None else None
        paired = variant.time.paired if variant.time is not None else None
        if ends is None or ends.low <= 1 or paired is None or paired.kind not in ("later", "not sooner"):
            continue
        rule, level, slower = "faster-chunk-not-sooner", "info", "the task is not done sooner"
        why = (
            "The task takes as many control ticks as before, and in these episodes the simulator waits for the policy. "
        )
        why += "A faster chunk saves time only if the robot waits for it."
        if paired.kind == "later":
            rule, level, slower = "faster-chunk-slower-task", "warning", "the task takes longer"
            why = (
                "In these episodes the simulator waits for the policy, so a chunk's time costs the task nothing. What "
            )
            why += "changed is what the actions do: they reach the goal in more control ticks."
        yield Finding(
            rule=rule,
            level=level,
            title=f"{variant.name} has a faster chunk, but {slower}",
            found=f"A chunk is {ends.low:.3g} to {ends.high:.3g} × as fast. The variant {time_in_words(paired)}, in "
            f"{paired.pairs} pairs.",
            why=why,
            do="Play the episodes with --realtime --latency=MS, with your machine's latency. Choose by success first, "
            "then by time to task.",
        )


def growing_calls(result: EvaluateResult, _: Thresholds) -> Iterator[Finding]:
    for variant in result.variants:
        if variant.calls.growth is not None:
            yield describe_growth(units.quote(variant.name), variant.calls.growth)


def seldom_succeeds(result: EvaluateResult, _: Thresholds) -> Iterator[Finding]:
    """The command that compares the simulator with the training set, where hardly any episode succeeds."""
    rates = [variant.together.success.rate for variant in result.variants]
    path = " ".join(pick_flags(result.command, ("--policy.path",))).removeprefix("--policy.path")[1:]
    if rates and path and max(rates) <= SELDOM:
        given = shlex.join(pick_flags(result.command, ("--policy.path", "--env.", "--rename_map")))
        yield info(
            rule="simulator-not-compared",
            title="The simulator was not compared with the training set",
            found=f"Success is {100 * max(rates):.2g} % or less.",
            why="With one other convention, such as an image that is upside down, a good policy fails in all episodes.",
            do=f"strobe preflight {given} --dataset.root={_find_training_set(Path(path))} compares the two.",
        )


def _find_training_set(policy: Path) -> str:
    """Return the folder that a checkpoint's train_config.json names, if it is there; else a word for it."""
    try:
        root = parse_json(contents(policy / "train_config.json"))["dataset"]["root"]
        return shlex.quote(root) if Path(root).is_dir() else "DATA"
    except (OSError, ValueError, KeyError, TypeError):
        return "DATA"


def _any_success(result: EvaluateResult) -> bool:
    return any(variant.together.success.successes for variant in result.variants)


OF_EVALUATIONS = (all_variants_fail, undecided_variants, faster_and_not_sooner, growing_calls, seldom_succeeds)
