"""A recorded rollout as samples on one time axis, for viewers of robots' recordings.

Rerun (``.rrd``) is LeRobot's own viewer; Foxglove and others read ``.mcap``; both libraries come with LeRobot's extra
``viz``.
"""

from __future__ import annotations

import heapq
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

from strobe.core.errors import UserError, install, os_error_reason
from strobe.loops.event_log import read
from strobe.loops.files import events_path, saved_observations
from strobe.loops.observations import Observations
from strobe.loops.reader import RunRecord, read_record


@dataclass(frozen=True)
class Number:
    """A value of a channel such as ``queue/actions left``, at nanoseconds from the first tick."""

    at_ns: int
    channel: str
    value: float


@dataclass(frozen=True)
class Picture:
    """A camera's frame, coded: ``media`` is image/jpeg or image/png."""

    at_ns: int
    channel: str
    data: bytes
    media: str


Sample = Number | Picture


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
    file = events_path(run)
    header, rows = read(file)
    record = read_record(header, rows)
    if record.lost:
        tell(f"the recording is damaged: {record.lost}")
    if not record.ticks:
        raise UserError(f"{run} has no control ticks: nothing to show")
    begin = record.ticks[0].start_ns
    samples = [*_ticks(record), *_calls(record), *_actions(header.joints, record)]
    ordered: list[Iterator[Sample]] = [iter(sorted(samples, key=attrgetter("at_ns")))]
    folder = saved_observations(file)
    if folder is not None:
        ordered.append(_observation_samples(Observations(folder)))  # one at a time: an hour's frames are gigabytes
    for sample in heapq.merge(*ordered, key=attrgetter("at_ns")):
        yield type(sample)(sample.at_ns - begin, *list(vars(sample).values())[1:])


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


def _observation_samples(observations: Observations) -> Iterator[Sample]:
    for at, state, frames in observations.iter_encoded():
        for name, value in state.items():
            if isinstance(value, int | float):
                yield Number(at, f"{STATE}/{name}", float(value))
        for camera, (data, media) in frames.items():
            yield Picture(at, f"{CAMERAS}/{camera}", data, media)


def write_rrd(path: Path, name: str, samples: Iterable[Sample]) -> int:
    """Write a Rerun recording called ``name``; return the number of samples.

    Raises:
        UserError: the extra is not installed.
    """
    try:
        import rerun as rr
        import rerun.blueprint as views
    except ImportError:
        raise UserError(f"a .rrd file needs Rerun: {install('viz')}") from None
    recording = rr.RecordingStream("strobe rollout", recording_id=name)
    recording.save(str(path))
    count, cameras, groups = 0, dict[str, None](), dict[str, None]()
    for sample in samples:
        place: list[object] = [*sample.channel.split("/")]
        recording.set_time("run", duration=sample.at_ns / 1e9)
        if isinstance(sample, Number):
            recording.log(place, rr.Scalars(sample.value))
            groups[sample.channel.partition("/")[0]] = None
        else:
            recording.log(place, rr.EncodedImage(contents=sample.data, media_type=sample.media))
            cameras[sample.channel] = None
        count += 1
    shown: list[views.View] = [views.TimeSeriesView(origin=group, name=group) for group in groups]
    pictures: list[views.View] = [views.Spatial2DView(origin=camera, name=camera) for camera in cameras]
    columns: list[views.Container] = [views.Vertical(*pictures)] if pictures else []
    recording.send_blueprint(views.Blueprint(views.Horizontal(*columns, views.Vertical(*shown))))
    recording.flush()
    recording.disconnect()
    return count


def write_mcap(path: Path, name: str, samples: Iterable[Sample]) -> int:
    """Write an MCAP file with numbers as JSON ``{"value": …}``; return how many samples.

    Raises:
        UserError: the extra is not installed.
    """
    try:
        import foxglove
        from foxglove import messages
        from foxglove.channels import CompressedImageChannel
    except ImportError:
        raise UserError(f"an .mcap file needs Foxglove's library: {install('viz')}") from None
    context = foxglove.Context()
    schema = {"type": "object", "properties": {"value": {"type": "number"}}}
    numbers: dict[str, foxglove.Channel] = {}
    pictures: dict[str, CompressedImageChannel] = {}
    count = 0
    with foxglove.open_mcap(path, context=context, allow_overwrite=True):
        for sample in samples:
            topic = f"/{sample.channel}"
            if isinstance(sample, Number):
                if topic not in numbers:
                    numbers[topic] = foxglove.Channel(topic, schema=schema, context=context)
                numbers[topic].log({"value": sample.value}, log_time=sample.at_ns)
            else:
                if topic not in pictures:
                    pictures[topic] = CompressedImageChannel(topic, context=context)
                image = messages.CompressedImage(
                    timestamp=messages.Timestamp(sample.at_ns // 1_000_000_000, sample.at_ns % 1_000_000_000),
                    frame_id=sample.channel,
                    data=sample.data,
                    format=sample.media.partition("/")[2],
                )
                pictures[topic].log(image, log_time=sample.at_ns)
            count += 1
    return count


WRITERS = {"rrd": write_rrd, "mcap": write_mcap}


def write(run: Path, shape: str, output: Path | None) -> tuple[Path, int]:
    """Write the rollout of ``run`` as a recording. Return the file and how many samples are in it.

    Raises UserError without events, or if it cannot be written.
    """
    folder = run if run.is_dir() else run.parent
    file = output or folder / f"rollout.{shape}"
    samples = iter(streams(run, lambda text: print(f"strobe: {text}", file=sys.stderr)))
    first = list(itertools.islice(samples, 1))  # a run without events leaves no file
    try:
        return file, WRITERS[shape](file, folder.resolve().name, itertools.chain(first, samples))
    except OSError as error:
        raise UserError(f"cannot write {file}: {os_error_reason(error)}") from None
