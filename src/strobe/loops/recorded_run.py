"""A recorded rollout as a replay plays it: the turns of its loop, the latencies of its calls, its settings."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from strobe.core.errors import UserError
from strobe.loops.event_log import read
from strobe.loops.events import Row
from strobe.loops.files import events_path, saved_observations
from strobe.loops.header import Header
from strobe.loops.reader import LoopTurn, RunRecord, read_record
from strobe.loops.virtual_rollout import Beat, Setting

MOST_PAUSED = 1000  # ticks that a run has time for, for each turn of its loop: a replay plays them all


@dataclass
class RecordedRun:
    """A rollout as it was recorded.

    Attributes:
        setting: the settings that it ran with.
        beats: the turns of its loop.
        latencies: nanoseconds of each call, in their order.
        origin: the start of the first turn, in nanoseconds of the recording's clock.
        span_ns: from there to the start of the last turn.
        observations: the folder of those that were recorded; None: none were.
    """

    header: Header
    record: RunRecord
    setting: Setting
    beats: list[Beat]
    latencies: list[int]
    origin: int
    span_ns: int
    observations: Path | None = None


def load(run: Path) -> RecordedRun:
    """Return the rollout recorded in ``run``: its folder, or the file of events of one that was killed.

    Raises:
        UserError: there is none, it recorded no events, or too few for a replay.
    """
    file = events_path(run)
    recorded = recorded_run(*read(file))
    recorded.observations = saved_observations(file)
    return recorded


def recorded_run(header: Header, rows: Iterable[Row]) -> RecordedRun:
    """Return the rollout whose events are ``rows``. Raises UserError where they are too few for a replay."""
    record = read_record(header, rows)
    turns = record.turns
    waits = _waits(turns) if header.engine == "sync" else [0] * len(turns)
    if header.engine == "sync":
        latencies = [wait for turn, wait in zip(turns, waits, strict=True) if turn.predicted]
    else:
        latencies = [call.end_ns - call.start_ns for call in record.calls]
    if len(record.ticks) < 2 or not latencies:
        raise UserError("the run is too short for a replay: it needs two control ticks and one policy call")
    start, end = turns[0].start_ns, turns[-1].start_ns
    ticks = (end - start) / 1e9 * header.fps * header.multiplier
    if not 0 < ticks < MOST_PAUSED * len(turns):
        raise UserError(f"the recording's clock is wrong: {len(turns):,} turns of the loop in {ticks:,.0f} periods")
    beats = _beats(header, turns, waits)
    return RecordedRun(header, record, _setting(header, record), beats, latencies, start, end - start)


def _setting(header: Header, record: RunRecord) -> Setting:
    lengths = [call.length for call in record.calls if call.length]
    # A sync run has no settings of Real-Time Chunking. If a replay requests it, it guides, as LeRobot's default does.
    guided = header.guided or header.engine == "sync"
    return Setting(
        engine=header.engine,
        fps=header.fps,
        multiplier=header.multiplier,
        threshold=30 if header.threshold is None else header.threshold,
        rtc=dict(header.rtc or {"enabled": guided, "execution_horizon": header.horizon or 10}),
        chunk=max(lengths) if lengths else header.executed or 1,
        warmups=max(1, header.warmups) if header.compiled and header.engine == "rtc" else 0,
    )


def _waits(turns: Sequence[LoopTurn]) -> list[int]:
    """Return the nanoseconds that each turn stood still for the policy: requests that needed no call are subtracted."""
    idle = [turn.request_ns for turn in turns if turn.requested is not None and not turn.predicted]
    least = round(statistics.median(idle)) if idle else 0
    return [max(0, turn.request_ns - least) if turn.predicted else 0 for turn in turns]


def _beats(header: Header, turns: Sequence[LoopTurn], waits: Sequence[int]) -> list[Beat]:
    """Return the turns as beats. A moment that a turn does not tell is the median of the others'."""
    period = 1e9 / (header.fps * header.multiplier)
    notified, notify = _fill([(turn.start_ns, turn.notified) for turn in turns], 0)
    requested, get = _fill([(turn.start_ns, turn.requested) for turn in turns], notify)
    sent = [(turn.start_ns + wait, turn.sending) for turn, wait in zip(turns, waits, strict=True)]
    sent, _ = _fill(sent, get)
    # What torch.compile warms up with comes before the first action: those turns want one, and wait.
    first = next((at for at, turn in enumerate(turns) if turn.wanted), 0) if header.compiled else 0
    beats = []
    for at, (turn, wait) in enumerate(zip(turns, waits, strict=True)):
        following = turns[at + 1].start_ns if at + 1 < len(turns) else None
        if turn.slept is not None:
            work = turn.slept - turn.start_ns
        else:  # it did not sleep: it was late
            work = following - turn.start_ns if following is not None else round(period)
        over = 0.0 if following is None else following - turn.start_ns - max(work, period)
        beats.append(
            Beat(
                notify_ns=notified[at],
                get_ns=requested[at],
                send_ns=sent[at],
                work_ns=max(0, work - wait),
                over_ns=max(0, round(over)),
                wanted=turn.wanted or at < first,
                reset=turn.engine_reset,
            )
        )
    return beats


def _fill(moments: Sequence[tuple[int, int | None]], otherwise: int) -> tuple[list[int], int]:
    """Return each moment since its start, with the median of those that are known in place of others; and that."""
    known = [moment - start for start, moment in moments if moment is not None]
    median = round(statistics.median(known)) if known else otherwise
    return [median if moment is None else moment - start for start, moment in moments], median
