"""Rules on episodes: what they show of a treated policy, what they cannot show, and why."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.results.finding import Finding
from strobe.evaluate.results.episodes import PairedEpisodes
from strobe.evaluate.results.evaluate import EvaluateResult
from strobe.evaluate.results.time_to_task import time_in_words
from strobe.ladder.results import OptimizeResult
from strobe.tune.results import TuneResult

MAX_POSSIBLE_DROP = 0.1  # loss of success rate: episodes that cannot exclude more say little
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


RULES = (worse, too_few, never_succeeds)
OF_EVALUATIONS = (no_variant_succeeds, undecided, faster_and_not_sooner)


def hopeless(result: TuneResult, _: Thresholds) -> Iterator[Finding]:
    """No setting ever does the task, so that none can be better than another: for the policy, or for the latency."""
    for tuning in result.tunings:
        if not tuning.hopeless:
            continue
        why = "Settings change how a policy's actions are executed. They do not teach it the task."
        do = (
            "`strobe preflight --policy.path=… --dataset.root=…` says whether the checkpoint is wired to its data. "
            "Play a checkpoint that was trained for this simulator, and map its names with --rename_map."
        )
        if succeeds := [other.latency for other in result.tunings if other.winner]:
            why = f"The policy succeeds at {' and at '.join(succeeds)}: what fails here is a call that takes so long."
            do = "Find a faster policy: `strobe optimize --policy.path=…`. Or give a shorter --latency."
        elif all(other.ticks for other in result.tunings if other.hopeless):
            why = "The latency alone may be too long. Whether the policy does the task without it was not judged."
            do = f"Play it without: --latency=0. If it succeeds there, it is too slow. If not: {do}"
        yield Finding(
            rule="tune-no-success",
            level="warning",
            title=f"No setting ever succeeds in {result.environment} at {tuning.latency}",
            seen=f"0 of {tuning.played} episodes of {len(tuning.settings)} settings succeed, at {tuning.latency}.",
            why=why,
            do=do,
            evidence={"episodes": float(tuning.played)},
        )


def not_shown(result: TuneResult, _: Thresholds) -> Iterator[Finding]:
    """A winner whose gain the fresh pairs did not show."""
    for tuning in result.tunings:
        closing = tuning.closing
        if closing is None or closing.rates.decision.kind == "better":
            continue
        if closing.times is not None and closing.times.kind == "sooner" and closing.rates.decision.kind != "worse":
            continue
        worse = closing.rates.decision.kind == "worse"
        yield Finding(
            rule="tune-not-shown",
            level="warning" if worse else "info",
            title=f"{tuning.winner} is {'worse than' if worse else 'not shown to be better than'} the default",
            seen=f"{closing.rates.pairs} fresh pairs at {tuning.latency}: it lost {closing.rates.lost} and won "
            f"{closing.rates.won}.",
            why="It was the best of many in the rounds, and the best of many looks better than it is.",
            do="Keep the default." if worse else "Keep the default, or play more pairs: --pairs=1000.",
            evidence={"pairs": float(closing.rates.pairs), "difference": closing.rates.difference},
        )


OF_TUNINGS = (hopeless, not_shown)
