"""Rules on a replay: whether it can be trusted, what the requested settings would do, and the values to set."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.findings.rollout import MAX_DELAY_EXCESS
from strobe.findings.thresholds import Thresholds
from strobe.results.finding import Finding
from strobe.results.replay import Replayed, ReplayResult, called


def differs(result: ReplayResult, _: Thresholds) -> Iterator[Finding]:
    """A replay of the run's own settings that is not as it was recorded."""
    if result.agrees:
        return
    wrong = [check for check in result.checks if not check.agrees]
    differences = [
        f"{called(check.figure)}: {check.recorded:.4g} recorded, {check.low:.4g} to {check.high:.4g} replayed"
        for check in wrong
    ]
    yield Finding(
        rule="replay-differs",
        level="warning",
        title="The replay of the run's own settings is not the run: trust the others as little",
        seen=f"{'; '.join(differences)}.",
        why="Something delayed the run that neither its ticks nor its calls show, such as a thread that had to wait.",
        do="Read differences between columns as directions, not as values; or record the setting itself.",
        evidence={check.figure: check.recorded for check in wrong},
    )


def threshold(result: ReplayResult, thresholds: Thresholds) -> Iterator[Finding]:
    """A queue threshold under which the robot starves, and the one to set."""
    column = result.column("as asked") or result.column("as it was")
    if column is None or not result.tried or not _starves(column, thresholds):
        return
    now = column.queue.threshold
    seen = f"{_range(column, 'starved')} ticks had no action ({_range(column, 'starved_ms')} ms) with {now}."
    if column.queue.first_action_ms is None:
        seen = f"The robot was never sent an action with {now}."
    if result.least_threshold is None:
        yield Finding(
            rule="replay-starves",
            level="warning",
            title="The robot starves with every queue threshold",
            seen=f"{seen} Also with {max(trial.threshold for trial in result.tried)}.",
            why="Calls take longer than the actions last that a chunk leaves.",
            do="A lower --fps, longer chunks, or a faster policy: replay it with --latency=x0.5, "
            "find one with `strobe optimize`.",
            evidence={"starved_ms": column.figures["starved_ms"].value},
        )
    elif now is not None and result.least_threshold > now:
        yield Finding(
            rule="replay-threshold",
            level="warning",
            title=f"--inference.queue_threshold={result.least_threshold} would not starve",
            seen=seen,
            why="Calls begin when so many actions are left, and these must last for the longest call.",
            do=f"--inference.queue_threshold={result.least_threshold}, the smallest that holds in the replays.",
            evidence={"queue_threshold": float(result.least_threshold), "was": float(now)},
        )


def changes(result: ReplayResult, thresholds: Thresholds) -> Iterator[Finding]:
    """Requested settings that end starvation or cause it."""
    own, requested = result.column("as it was"), result.column("as asked")
    if own is None or requested is None or _starves(own, thresholds) == _starves(requested, thresholds):
        return
    mends = _starves(own, thresholds)
    seen = (
        f"{_range(own, 'starved_ms')} ms without an action as it was, {_range(requested, 'starved_ms')} ms as asked; "
    )
    seen += f"observations {_range(own, 'age_ms')} and {_range(requested, 'age_ms')} ms old."
    yield Finding(
        rule="replay-mends" if mends else "replay-breaks",
        level="good" if mends else "warning",
        title="The settings asked for end the starvation" if mends else "The settings asked for starve the robot",
        seen=seen,
        why="The same latencies and the same ticks, in virtual time.",
        do="Set them." if mends else "",
        evidence={"was_ms": own.figures["starved_ms"].value, "asked_ms": requested.figures["starved_ms"].value},
    )


def delay(result: ReplayResult, _: Thresholds) -> Iterator[Finding]:
    """A delay that is assumed, and that hardly any call needs."""
    column = result.column("as asked") or result.column("as it was")
    if column is None or result.delay is None or (assumed := column.figures["assumed"].value) is None:
        return
    by_lerobot = column.settings.get("inference_delay") == "longest so far"
    if not by_lerobot or assumed - result.delay < MAX_DELAY_EXCESS:
        return
    skipped = column.figures["skipped"].value or 0
    yield Finding(
        rule="replay-delay",
        level="warning",
        title=f"Real-Time Chunking assumes a delay of {assumed:.0f} actions, and {result.delay} would do",
        seen=f"{assumed:.0f} actions are assumed (median), 95 % of the calls after the first fit into {result.delay}; "
        f"{skipped:,.0f} actions were dropped that the robot had not executed.",
        why="LeRobot assumes the longest latency since the start, the first call's too: so many actions of each chunk "
        "are held to the one before.",
        do="A LeRobot with its pull request 4454 (--rtc_version=4454 replays it), or --use_torch_compile=true, whose "
        "warm-up is left out.",
        evidence={"assumed": assumed, "inference_delay": float(result.delay)},
    )


def _starves(column: Replayed, thresholds: Thresholds) -> bool:
    if column.queue.first_action_ms is None:
        return True
    starved = column.figures["starved"]
    ticks = column.pace.ticks if column.pace is not None else 1
    return max(starved.value or 0, starved.high or 0) >= thresholds.ticks_starved * ticks


def _range(column: Replayed, name: str) -> str:
    figure = column.figures[name]
    if figure.value is None:
        return "no"
    text = f"{figure.value:,.0f}"
    if figure.low is not None and figure.high is not None and figure.low < figure.high:
        text += f" [{figure.low:,.0f}, {figure.high:,.0f}]"
    return text


RULES = (differs, threshold, changes, delay)
