"""Rules on a replay: whether it can be trusted, what the requested settings would do, and the values to set."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.results.finding import Finding
from strobe.replay.results import Replayed, ReplayResult, called, promised
from strobe.rollout.findings.rollout import MAX_DELAY_EXCESS, damaged


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
        title="The replay does not reproduce the run with its own settings: do not trust the other replays more",
        seen=f"{'; '.join(differences)}.",
        why="Something delayed the run that neither its ticks nor its calls show, such as a thread that had to wait.",
        do="Read the differences between columns as directions, not as values. Or record a run with the setting "
        "itself.",
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
            seen=f"{seen} It also starves with {max(trial.threshold for trial in result.tried)}.",
            why="A call takes longer than the remaining actions of a chunk last.",
            do="Take a lower --fps, longer chunks, or a faster policy. --latency=x0.5 replays a faster policy, and "
            "`strobe optimize` finds one.",
            evidence={"starved_ms": column.figures["starved_ms"].value},
        )
    elif now is not None and result.least_threshold > now:
        yield Finding(
            rule="replay-threshold",
            level="warning",
            title=f"With --inference.queue_threshold={result.least_threshold} {promised(result.starves_chance)}",
            seen=seen,
            why="A call begins when the queue has that many actions. They must last for the longest call. "
            "Calls that are rarer than one in those recorded are not reckoned with.",
            do=f"Give --inference.queue_threshold={result.least_threshold}.",
            evidence={
                "queue_threshold": float(result.least_threshold),
                "was": float(now),
                "starves_chance": result.starves_chance,
            },
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
        title="The settings asked for end the starvation, with calls as long as those recorded"
        if mends
        else "The settings asked for starve the robot",
        seen=seen,
        why="The same latencies and the same ticks, in virtual time.",
        do="Use these settings." if mends else "",
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
        seen=f"{assumed:.0f} actions are assumed (median), 95 % of the calls after the first fit into "
        f"{result.delay}; {skipped:,.0f} actions were dropped that the robot had not executed.",
        why="LeRobot assumes the longest latency since the start, including the first call's. It binds that many "
        "actions of each chunk to the chunk before.",
        do="Use a LeRobot with its pull request 4454 (--rtc_version=4454 replays it). Or give "
        "--use_torch_compile=true: LeRobot does not count the warm-up.",
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


RULES = (damaged, differs, threshold, changes, delay)
