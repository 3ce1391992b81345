"""A rollout's samples for viewers of recordings.

Rerun (``.rrd``) is LeRobot's own viewer; Foxglove and others read ``.mcap``; both libraries come with LeRobot's extra
``viz``.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from strobe.core.errors import UserError, in_words, install
from strobe.rollout.results.streams import Number, Sample

Writer = Callable[[Path, str, Iterable[Sample]], int]


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
    shown: list[Any] = [views.TimeSeriesView(origin=group, name=group) for group in groups]
    pictures: list[Any] = [views.Spatial2DView(origin=camera, name=camera) for camera in cameras]
    columns: list[Any] = [views.Vertical(*pictures)] if pictures else []
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
    numbers: dict[str, Any] = {}
    pictures: dict[str, Any] = {}
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


WRITERS: dict[str, Writer] = {"rrd": write_rrd, "mcap": write_mcap}


def write(run: Path, shape: str, output: Path | None) -> tuple[Path, int]:
    """Write the rollout of ``run`` as a recording. Return the file and how many samples are in it.

    Raises UserError without events, or if it cannot be written.
    """
    from strobe.rollout.streams import streams

    folder = run if run.is_dir() else run.parent
    file = output or folder / f"rollout.{shape}"
    samples = iter(streams(run, lambda text: print(f"strobe: {text}", file=sys.stderr)))
    first = list(itertools.islice(samples, 1))  # a run without events leaves no file
    try:
        return file, WRITERS[shape](file, folder.resolve().name, itertools.chain(first, samples))
    except OSError as error:
        raise UserError(f"cannot write {file}: {in_words(error)}") from None
