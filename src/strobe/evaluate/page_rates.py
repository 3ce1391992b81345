"""Success rates and verdicts in words and in plots, alike in all reports on episodes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from strobe.core.report import charts
from strobe.core.report.charts import Place, Plot, Trace
from strobe.core.report.document import Columns, figure, words
from strobe.core.report.frame import group_flags
from strobe.core.results import units
from strobe.core.results.data import Interval
from strobe.evaluate.pairs import Decided, PairedRates, PairedScores, Score, SuccessRate, verdict_in_words
from strobe.evaluate.results import JudgedOnTask, VariantOnTask

AXIS = charts.axis("success (%)", range=[-4, 104])
BARS = "Bars: exact 95 % intervals of the success rates."
OF = "%{customdata[0]} of %{customdata[1]}<extra>%{fullData.name}</extra>"  # successes of episodes


def joint_confidence_sentence(verdicts: int) -> str:
    """Return how sure several verdicts on success are together, as a sentence."""
    if verdicts < 2:
        return ""
    together = min(100, 5 * verdicts)
    return f" Each verdict is wrong with a chance of at most 5 %; one of all {verdicts}, of at most {together} %."


TASKS = "The verdicts on a row's tasks have a chance of 5 % for all tasks together, so each has a wider interval."


def rate(success: SuccessRate) -> str:
    """Return a rate with its interval: '50.0 % [1.3, 98.7]'."""
    return f"{units.percent(success.rate)} [{100 * success.interval.low:.1f}, {100 * success.interval.high:.1f}]"


def difference(value: float, interval: Interval) -> str:
    """Return a difference of rates in points, with its interval: '+0.0 [−9.8, +9.8]'."""
    shown, low, high = (units.format_signed(100 * share, 1) for share in (value, interval.low, interval.high))
    return f"{shown} [{low}, {high}]"


def verdict(on: VariantOnTask | JudgedOnTask) -> tuple[float, Interval, Decided] | None:
    """Return the difference to the first one, its interval, and the verdict; None if there is nothing to compare."""
    paired = on.comparison if isinstance(on, VariantOnTask) else on.paired
    if paired is not None:
        return paired.difference, paired.decision.interval, paired.decision.kind
    unpaired = on.unpaired if isinstance(on, JudgedOnTask) else None
    return None if unpaired is None else (unpaired.difference, unpaired.interval, unpaired.kind)


def verdict_kind(on: VariantOnTask) -> Decided | None:
    """Return the verdict by the score that decides; None for the first variant."""
    return None if (judged := on.comparison) is None else judged.decision.kind


def columns(margin: float) -> Columns[VariantOnTask | JudgedOnTask]:
    """Return the columns of success, and of the verdict on it."""
    return [
        figure("Episodes", lambda on: on.success.episodes, str),
        figure("Success (95 % CI)", lambda on: on.success, rate),
        figure("Progress (mean)", lambda on: on.progress if isinstance(on, VariantOnTask) else None, units.percent),
        figure("Reward (mean)", lambda on: on.reward, units.number),
        figure("Difference, points (CI)", verdict, lambda judged: difference(*judged[:2])),
        words("Verdict", lambda on: (judged := verdict(on)) and verdict_in_words(judged[2], margin)),
    ]


# Of each score: a verb, and its adverbs for more, less and as much.
MORE: dict[Score, tuple[str, str, str, str]] = {
    "success": ("succeed", "more often", "less often", "as often"),
    "progress": ("make", "more progress", "less progress", "as much progress"),
}


def share(success: SuccessRate) -> str:
    """Return a rate in whole percent: '47 %'."""
    return f"{100 * success.rate:.0f} %"


def mean_score(on: VariantOnTask) -> str:
    """Return the mean of the score that decides, in whole percent."""
    return share(on.success) if on.progress is None else f"{100 * on.progress:.0f} %"


def paired_points(paired: PairedRates | PairedScores | None) -> str:
    """Return the difference in `whole_points`; of the first variant, 'no difference'."""
    return "no difference" if paired is None else whole_points(paired.difference, paired.decision.interval)


def whole_points(value: float, interval: Interval) -> str:
    """Return a difference of rates in whole points, with its interval: '−53 points [−87, −5]'."""
    shown, low, high = (
        units.format_signed(100 * each, 0 if abs(each) >= 0.01 or not each else 1)
        for each in (value, interval.low, interval.high)
    )
    return f"{shown} points [{low}, {high}]"


def describe_pairs(paired: PairedRates | PairedScores | None, planned: int) -> str:
    """Return the difference, the pairs that were played, and whether the verdict came before ``planned`` ones."""
    if paired is None:
        return "no paired episode"
    early = paired.decision.kind != "undecided" and paired.pairs < planned
    pairs = f"{units.count(paired.pairs, 'paired episode')}{'; stopped early: decided' * early}"
    return f"difference {paired_points(paired)}, {pairs}"


def reward_disagrees(names: Sequence[tuple[str, VariantOnTask | JudgedOnTask]]) -> list[str]:
    """Return a sentence on each variant whose mean reward says the opposite of its success."""
    (_, first), *others = names
    sentences = []
    for name, on in others:
        kind = judged[2] if (judged := verdict(on)) is not None else None
        if first.reward is None or on.reward is None or kind not in ("worse", "better"):
            continue
        if (on.reward > first.reward) is (kind == "worse") and on.reward != first.reward:
            rewards = f"{units.number(on.reward, 3)} vs {units.number(first.reward, 3)}"
            more, less = ("higher", "less") if kind == "worse" else ("lower", "more")
            sentences.append(
                f"Reward and success disagree: the mean reward of {name} is {more} ({rewards}), and it succeeds {less} "
                "often. Success decides."
            )
    return sentences


def next_command(
    argv: Sequence[str], *, why: str = "", command: str | None = None, keep: Sequence[str] = (), **flags: object
) -> str:
    """Return a line with the command to run next: the one that was run, with these ``flags``.

    Args:
        why: what it is for, in front of it.
        command: runs in its place; of the flags only those that begin with one of ``keep`` go with it.
    """
    named, kept = {f"--{name}" for name in flags}, tuple(f"--{name}" for name in keep)
    words = [
        word
        for group in group_flags(argv[2:])
        if group[0].split("=", 1)[0] not in named and (command is None or group[0].startswith(kept))
        for word in group
    ]
    more = [f"--{name}={value}" for name, value in flags.items()]
    if command is None and len(argv) < 2:
        return f"Next: {why}the same command with {shlex.join(more)}"
    return f"Next: {why}" + shlex.join(["strobe", command or argv[1], *words, *more])


def success_points(
    name: str,
    places: Sequence[Place],
    successes: Sequence[SuccessRate],
    colour: str,
    hover: str,
    *,
    lying: bool = False,
    **more: Any,
) -> Trace:
    """Return a point at each of ``places`` for a success rate in percent, with its interval.

    Args:
        hover: a template that has successes and episodes as the first two of its ``customdata``.
        lying: the rates are along the x-axis.
        more: Plotly's further properties of the trace.
    """
    shares = [100 * _clip(success.rate) for success in successes]
    ends = [Interval(low=100 * _clip(s.interval.low), high=100 * _clip(s.interval.high)) for s in successes]
    counted: Trace = {"customdata": [[success.successes, success.episodes] for success in successes]}
    x, y = (shares, places) if lying else (places, shares)
    bars: Trace = {"error_x" if lying else "error_y": charts.error_bars(shares, ends, colour)}
    return charts.points(name, x, y, colour, hover, **(counted | bars | more))


def success_plot(successes: Sequence[tuple[str, SuccessRate]]) -> Plot:
    """Return the success rate of each name, one below the other, with its interval."""
    traces = [
        success_points(
            name, [name], [success], charts.colour(index), f"%{{x:.1f}} %, {OF}", lying=True, showlegend=False
        )
        for index, (name, success) in enumerate(successes)
    ]
    layout = charts.layout(140 + 40 * len(traces), AXIS, {**charts.DOWN, "type": "category"})
    return Plot("Success", BARS, traces, layout)


def _clip(rate: float) -> float:
    return min(max(rate, 0.0), 1.0)
