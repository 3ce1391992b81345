"""Rules on a replay: whether it can be trusted, what the requested settings would do, and the values to set."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.findings.texts import Found, finding
from strobe.core.findings.thresholds import Thresholds
from strobe.core.results.finding import Finding
from strobe.replay.results import Replayed, ReplayResult, figure_words, starved_chance_text
from strobe.rollout.findings.rollout import MAX_DELAY_EXCESS, damaged_recording


@finding("replay-differs", "warning")
def differs(result: ReplayResult, _: Thresholds) -> Found:
    """The replay does not reproduce the run with its own settings: do not trust the other replays more.

    Seen: {differences}.
    Why: Something delayed the run that neither its ticks nor its calls show, such as a thread that had to wait.
    Do: Read the differences between columns as directions, not as values. Or record a run with the setting itself.
    """
    if not result.agrees:
        wrong = [check for check in result.checks if not check.agrees]
        differences = "; ".join(
            f"{figure_words(check.figure)}: {check.recorded:.4g} recorded, {check.low:.4g} to {check.high:.4g} replayed"
            for check in wrong
        )
        yield {check.figure: check.recorded for check in wrong}, {"differences": differences}


def threshold(result: ReplayResult, thresholds: Thresholds) -> Iterator[Finding]:
    """A queue threshold under which the robot starves, and the one to set."""
    column = result.column("as asked") or result.column("as it was")
    if column is None or not result.tried or not _starves(column, thresholds):
        return
    now, least = column.queue.threshold, result.least_threshold
    seen = f"{_range(column, 'starved')} ticks had no action ({_range(column, 'starved_ms')} ms) with {now}."
    if column.queue.first_action_ms is None:
        seen = f"The robot was never sent an action with {now}."
    if least is None:
        yield from _always_starves(result, column, seen)
    elif now is not None and least > now:
        yield from _raise_threshold(result, least, now, seen)


@finding("replay-starves", "warning")
def _always_starves(result: ReplayResult, column: Replayed, seen: str) -> Found:
    """The robot starves with every queue threshold.

    Seen: {seen} It also starves with {most}.
    Why: A call takes longer than the remaining actions of a chunk last.
    Do: Take a lower --fps, longer chunks, or a faster policy. --latency=x0.5 replays a faster policy, and `strobe
        optimize` finds one.
    """
    most = max(trial.threshold for trial in result.tried)
    yield {"starved_ms": column.figures["starved_ms"].value}, {"most": most}


@finding("replay-threshold", "warning")
def _raise_threshold(result: ReplayResult, least: int, now: int, seen: str) -> Found:
    """With --inference.queue_threshold={least} {promise}.

    Seen: {seen}
    Why: A call begins when the queue has that many actions. They must last for the longest call. Calls that are rarer
        than one in those recorded are not reckoned with.
    Do: Give --inference.queue_threshold={least}.
    """
    promise, chance = starved_chance_text(result.starves_chance), result.starves_chance
    yield {"queue_threshold": float(least), "was": float(now), "starves_chance": chance}, {"promise": promise}


@finding("{rule}", "{level}", ("replay-fixes", "replay-breaks"))
def changes(result: ReplayResult, thresholds: Thresholds) -> Found:
    """Requested settings that end starvation or cause it.

    Title: {title}
    Seen: {was} ms without an action as it was, {then} ms as asked; observations {age_was} and {age_then} ms old.
    Why: The same latencies and the same ticks, in virtual time.
    Do: {do}
    """
    own, requested = result.column("as it was"), result.column("as asked")
    if own is None or requested is None or _starves(own, thresholds) == _starves(requested, thresholds):
        return
    rule, level, title, do = "replay-breaks", "warning", "The requested settings starve the robot", ""
    if _starves(own, thresholds):
        rule, level, do = "replay-fixes", "good", "Use these settings."
        title = "The requested settings end the starvation, with calls as long as those recorded"
    was, then = _range(own, "starved_ms"), _range(requested, "starved_ms")
    age_was, age_then = _range(own, "age_ms"), _range(requested, "age_ms")
    was_ms, asked_ms = own.figures["starved_ms"].value, requested.figures["starved_ms"].value
    yield {"was_ms": was_ms, "asked_ms": asked_ms}, locals()


@finding("replay-delay", "warning")
def delay(result: ReplayResult, _: Thresholds) -> Found:
    """Real-Time Chunking assumes a delay of {assumed:.0f} actions, and {result.delay} would do.

    Seen: {assumed:.0f} actions are assumed (median), 95 % of the calls after the first fit into {result.delay};
        {skipped:,.0f} actions were dropped that the robot had not executed.
    Why: LeRobot assumes the longest latency since the start, including the first call's. It binds that many actions of
        each chunk to the chunk before.
    Do: Use a LeRobot with its pull request 4454 (--rtc_version=4454 replays it). Or give --use_torch_compile=true:
        LeRobot does not count the warm-up.
    """
    column = result.column("as asked") or result.column("as it was")
    if column is None or result.delay is None or (assumed := column.figures["assumed"].value) is None:
        return
    by_lerobot = column.settings.get("inference_delay") == "longest so far"
    if by_lerobot and assumed - result.delay >= MAX_DELAY_EXCESS:
        skipped = column.figures["skipped"].value or 0
        yield {"assumed": assumed, "inference_delay": float(result.delay)}, {"skipped": skipped}


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


RULES = (damaged_recording, differs, threshold, changes, delay)
