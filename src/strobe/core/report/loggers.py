"""Results for other tools: a rollout's samples for viewers of recordings, an answer's figures for Trackio or W&B.

Rerun (``.rrd``) is LeRobot's own viewer; Foxglove and others read ``.mcap``; both
libraries come with LeRobot's extra ``viz``.
"""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strobe.core.errors import UserError, install, nearest
from strobe.rollout.results.streams import Number, Sample

if TYPE_CHECKING:  # classes of answers, which the flags of a command do without
    from strobe.core.results.answer import Answer

LOGGERS = ("trackio", "wandb")
DEEPEST = 2  # levels of parts that are logged

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


def require_logger(tool: str) -> None:
    """Raise UserError for a tool that is unknown or not installed."""
    if tool not in LOGGERS:
        raise UserError(f"--log={tool}: {nearest(tool, LOGGERS)}")
    if find_spec(tool) is None:
        raise UserError(f"--log={tool} needs a package: pip install {tool}")


def figures(answer: Answer) -> dict[str, float]:
    """Return what is logged, by name: milliseconds, chunks or steps per second, shares from 0 to 1."""
    from strobe.core.results.answer import Result
    from strobe.evaluate.results.evaluate import EvaluateResult

    logged: dict[str, float] = {"duration_s": answer.duration_s}
    if not isinstance(answer, Result):
        return logged
    for measurement in answer.measurements:
        if not measurement.samples.values:
            continue
        summary = measurement.samples.summary
        logged |= {f"{measurement.name}/median_ms": summary.median, f"{measurement.name}/p95_ms": summary.p95}
        if summary.median > 0:
            logged[f"{measurement.name}/per_s"] = 1e3 / summary.median
        for part in measurement.components:
            if part.depth <= DEEPEST:
                logged[f"{measurement.name}/{'/'.join(part.path)}/median_ms"] = part.summary.median
    for judged in answer.judged():
        logged[f"{judged.candidate} vs {judged.baseline}/ratio"] = judged.verdict.ratio
    if isinstance(answer, EvaluateResult):
        logged |= {f"{variant.name}/success": variant.together.success.rate for variant in answer.variants}
    return logged


def log(answer: Answer, tool: str, project: str, name: str, space_id: str = "") -> None:
    """Log an answer as one run of ``project``. Raises what the tool raises: no account, no network.

    Args:
        space_id: the Space on the Hub that Trackio logs to; '' for files of this machine.
    """
    from strobe.core.results.answer import Result

    library: Any = importlib.import_module(tool)
    config: dict[str, object] = {
        "study": answer.study,
        "command": shlex.join(answer.command),
        "strobe": answer.strobe_version,
    }
    if answer.machine is not None:
        config["machine"] = answer.machine.device_name or answer.machine.cpu
    if isinstance(answer, Result):
        config |= {"subject": answer.subject.name, "type": answer.subject.kind, "weights": answer.subject.source}
    where = {"space_id": space_id} if space_id else {}
    library.init(project=project, name=name, config=config, **where)
    library.log(figures(answer))
    library.finish()
