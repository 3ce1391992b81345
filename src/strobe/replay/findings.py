"""Rules on a replay: whether it can be trusted, the effect of the requested settings, and the values to set."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.results.finding import Finding, warning
from strobe.replay.results import Replayed, ReplayResult, figure_words, starved_chance_text
from strobe.rollout.findings.rollout import MAX_DELAY_EXCESS, damaged_recording
from strobe.seams.report import seam_cause


def lost_events(result: ReplayResult, _: Thresholds) -> Iterator[Finding]:
    """Damage to the replayed recording."""
    return damaged_recording(result.lost)


def differs(result: ReplayResult, _: Thresholds) -> Iterator[Finding]:
    if not result.agrees:
        wrong = [check for check in result.checks if not check.agrees]
        differences = "; ".join(
            f"{figure_words(check.figure)}: {check.recorded:.4g} recorded, {check.low:.4g} to {check.high:.4g} replayed"
            for check in wrong
        )
        yield warning(
            rule="replay-differs",
            title="The replay does not reproduce the recorded run",
            found=f"{differences}.",
            why="Something delayed the run that neither its ticks nor its calls show, such as a thread that waited.",
            do="Trust the direction of a difference between columns, not its size. Or record a run with the new "
            "setting.",
        )


def threshold(result: ReplayResult, thresholds: Thresholds) -> Iterator[Finding]:
    """A queue threshold that starves the robot, and the threshold to set."""
    column = result.column("as asked") or result.column("as it was")
    if column is None or not result.tried or not _starves(column, thresholds):
        return
    now, least = column.queue.threshold, result.least_threshold
    seen = (
        f"With {now}, {_range(column, 'starved')} control ticks had no action, for {_range(column, 'starved_ms')} ms."
    )
    if column.queue.first_action_ms is None:
        seen = f"With {now} the robot was never sent an action."
    if least is None:
        most = max(trial.threshold for trial in result.tried)
        yield warning(
            rule="replay-starves",
            title="The robot starves with every queue threshold",
            found=f"{seen} With {most}, the largest threshold, it starves too.",
            why="A call takes longer than the remaining actions of a chunk last.",
            do="Use a lower --fps, longer chunks, or a faster policy. --latency=x0.5 replays a faster policy, and "
            "`strobe optimize` looks for one.",
        )
    elif now is not None and least > now:
        chance = result.starves_chance
        yield warning(
            rule="replay-threshold",
            title=f"With --inference.queue_threshold={least} {starved_chance_text(chance)}",
            found=seen,
            why="A call begins when the queue holds that many actions, and they must last for the longest call. A "
            "call longer than every recorded one is not considered.",
            do=f"Give --inference.queue_threshold={least}.",
        )


def changes(result: ReplayResult, thresholds: Thresholds) -> Iterator[Finding]:
    """Requested settings that end starvation or cause it."""
    own, requested = result.column("as it was"), result.column("as asked")
    if own is None or requested is None or _starves(own, thresholds) == _starves(requested, thresholds):
        return
    rule, level, title, do = "replay-breaks", "warning", "The requested settings starve the robot", ""
    if _starves(own, thresholds):
        rule, level, do = "replay-fixes", "good", "Use these settings."
        title = "The requested settings end the starvation, if calls take as long as the recorded ones"
    yield Finding(
        rule=rule,
        level=level,
        title=title,
        found=f"Without an action: {_range(own, 'starved_ms')} ms with the recorded settings, "
        f"{_range(requested, 'starved_ms')} ms with yours. Observation age: {_range(own, 'age_ms')} and "
        f"{_range(requested, 'age_ms')} ms.",
        why="Both replays have the recorded latencies and ticks, in simulated time.",
        do=do,
    )


def delay(result: ReplayResult, _: Thresholds) -> Iterator[Finding]:
    column = result.column("as asked") or result.column("as it was")
    if column is None or result.delay is None or (assumed := column.figures["assumed"].value) is None:
        return
    by_lerobot = column.settings.get("inference_delay") == "longest so far"
    if by_lerobot and assumed - result.delay >= MAX_DELAY_EXCESS:
        skipped = column.figures["skipped"].value or 0
        yield warning(
            rule="replay-delay",
            title=f"Real-Time Chunking assumes a delay of {assumed:.0f} actions; {result.delay} would be enough",
            found=f"RTC assumed {assumed:.0f} actions (median). 95 % of the calls after the first end within "
            f"{result.delay} actions. RTC dropped {skipped:,.0f} actions that the robot had not executed.",
            why="LeRobot assumes the longest latency since the start, including the first call's. It binds that many "
            "actions of each chunk to the chunk before.",
            do="Use a LeRobot with its pull request 4454 (--rtc_version=4454 replays it). Or give "
            "--use_torch_compile=true: LeRobot then does not count the warm-up calls.",
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


RULES = (lost_events, differs, threshold, changes, delay, seam_cause)
