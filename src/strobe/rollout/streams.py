"""A recorded rollout as samples on one time axis: cameras, joints, actions, the queue, observations' age, sections."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from strobe.core.errors import UserError
from strobe.rollout.files import events_of, observations_of
from strobe.rollout.loops.course import RunRecord
from strobe.rollout.loops.event_log import read
from strobe.rollout.loops.observations import Observations
from strobe.rollout.loops.reader import read_record
from strobe.rollout.results.streams import Number, Picture, Sample

CAMERAS, STATE, ACTION, LOOP, QUEUE, INFERENCE, SECTIONS = (
    "cameras", "state", "action", "loop", "queue", "inference", "sections",
)  # fmt: skip


def streams(run: Path, tell: Callable[[str], None] = lambda _: None) -> Iterator[Sample]:
    """Yield every sample of the rollout in ``run``, in the order of time.

    Channels: ``cameras/NAME`` and ``state/JOINT`` as the robot gave them, where they were recorded; ``action/JOINT``,
    the policy's action for the tick; ``loop/…`` and ``sections/PART`` in ms of each tick, ``queue/actions left`` and
    ``queue/age (ms)``, ``inference/…`` when each call ends.

    Args:
        tell: is told what of the recording is lost, if something is.

    Raises:
        UserError: there is no such run, it has no events, or none of a tick.
    """
    file = events_of(run)
    header, rows = read(file)
    record = read_record(header, rows)
    if record.lost:
        tell(f"the recording is damaged: {record.lost}")
    if not record.ticks:
        raise UserError(f"{run} holds no ticks: nothing to show")
    begin = record.ticks[0].start_ns
    samples = [*_ticks(record), *_calls(record), *_actions(header.joints, record)]
    ordered: list[Iterator[Sample]] = [iter(sorted(samples, key=_time))]
    folder = observations_of(file)
    if folder is not None:
        ordered.append(_observed(Observations(folder)))  # one at a time: an hour's frames are gigabytes
    for sample in heapq.merge(*ordered, key=_time):
        yield type(sample)(sample.at_ns - begin, *list(vars(sample).values())[1:])


def _time(sample: Sample) -> int:
    return sample.at_ns


def _ticks(record: RunRecord) -> Iterator[Sample]:
    for before, tick in pairwise([None, *record.ticks]):
        assert tick is not None
        at = tick.start_ns
        if before is not None and tick.follows:
            yield Number(at, f"{LOOP}/period (ms)", (at - before.start_ns) / 1e6)
        yield Number(at, f"{LOOP}/work (ms)", tick.work_ns / 1e6)
        yield Number(at, f"{QUEUE}/no action", float(not tick.sent))
        if tick.depth is not None:
            yield Number(at, f"{QUEUE}/actions left", float(tick.depth))
        if tick.age_ns is not None:
            yield Number(at, f"{QUEUE}/age (ms)", tick.age_ns / 1e6)
        for name, took in tick.parts.items():
            yield Number(at, f"{SECTIONS}/{name} (ms)", took / 1e6)


def _calls(record: RunRecord) -> Iterator[Sample]:
    for number, call in enumerate(record.calls):
        yield Number(call.end_ns, f"{INFERENCE}/latency (ms)", call.ms)
        yield Number(call.end_ns, f"{INFERENCE}/chunk", float(number))
        if call.assumed is not None:
            yield Number(call.end_ns, f"{INFERENCE}/delay assumed (actions)", float(call.assumed))
        if call.executed is not None:
            yield Number(call.end_ns, f"{INFERENCE}/delay executed (actions)", float(call.executed))


def _actions(joints: Sequence[str], record: RunRecord) -> Iterator[Sample]:
    for action in record.actions:
        for joint, value in zip(joints, action.values, strict=False):
            yield Number(action.at_ns, f"{ACTION}/{joint}", float(value))


def _observed(observations: Observations) -> Iterator[Sample]:
    for at, state, frames in observations.coded():
        for name, value in state.items():
            if isinstance(value, int | float):
                yield Number(at, f"{STATE}/{name}", float(value))
        for camera, (data, media) in frames.items():
            yield Picture(at, f"{CAMERAS}/{camera}", data, media)
