"""The anatomy of loading: sections inside LeRobot's dataset and torch's DataLoader, in whichever process reads.

LeRobot starts its workers by spawning, so what is attached in the training process is not there in a worker. A worker
therefore runs `worker_main`, which attaches and then enters torch's own loop.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any

from torch.utils.data._utils import worker as torch_worker

from strobe.core.errors import error_line
from strobe.core.timeline import Probe, timed, workers
from strobe.core.timeline.layers import Call
from strobe.core.timeline.probe import Attached, Hook, resolve_hooks

BATCH, SAMPLE, COLLATE = "batch", "sample", "collate"
ROWS, DELTAS, TIMES = "row reads", "delta timestamps", "frame times"
DECODE, TRANSFORMS = "video decoding", "image transforms"
LOADER = "STROBE_LOADER"  # environment: which loader the workers started now belong to

_READER = "lerobot.datasets.dataset_reader:DatasetReader"
PROBES = (
    Probe.function("torch.utils.data._utils.fetch:_MapDatasetFetcher.fetch", BATCH),
    Probe.function("torch.utils.data._utils.fetch:_IterableDatasetFetcher.fetch", BATCH),
    Probe.function("lerobot.datasets.lerobot_dataset:LeRobotDataset.__getitem__", SAMPLE),
    Probe.function("datasets.arrow_dataset:Dataset.__getitem__", ROWS),
    Probe.function(f"{_READER}._query_hf_dataset", DELTAS),
    Probe.function(f"{_READER}._get_query_timestamps", TIMES),
    Probe.function(f"{_READER}._query_videos", DECODE),
    Probe.function("lerobot.transforms.transforms:ImageTransforms.forward", TRANSFORMS),
)

Report = Callable[..., None]
_torch_loop = torch_worker._worker_loop


def attach_loader(report: Report) -> Callable[[], None]:
    """Open sections in whatever reads a dataset in this process. Returns a function that removes them.

    Args:
        report: called with ``broken={"episode", "file", "reason"}`` of a video that cannot be decoded.

    Raises:
        ProbeError: LeRobot or torch have changed.
    """
    sections = Attached(resolve_hooks(PROBES, None))
    decoder = Probe.function("lerobot.datasets.dataset_reader:decode_video_frames", DECODE)
    named = Attached(decoder.hooks(None), _naming_the_file)
    episode = Probe.function(f"{_READER}._query_videos", DECODE)
    reported = Attached(episode.hooks(None), functools.partial(_reporting, report))

    def detach() -> None:
        for attached in (reported, named, sections):
            attached.detach()

    return detach


def worker_main(*args: object) -> None:
    """Run torch's own loop of a DataLoader's worker, in sections."""
    given = inspect.signature(_torch_loop).bind(*args)
    given.arguments["collate_fn"] = timed(COLLATE)(given.arguments["collate_fn"])
    attach_loader(workers.tell)
    workers.tell(index=given.arguments["worker_id"], loader=os.environ.get(LOADER, ""))
    _torch_loop(*given.args)


def _naming_the_file(inner: Call, _: Hook, __: bool) -> Call:
    @functools.wraps(inner)
    def call(video_path: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return inner(video_path, *args, **kwargs)
        except Exception as error:
            error.strobe_file = str(video_path)  # type: ignore[attr-defined]
            raise

    return call


def _reporting(report: Report, inner: Call, _: Hook, __: bool) -> Call:
    @functools.wraps(inner)
    def call(reader: Any, query_timestamps: Any, ep_idx: int, *args: Any, **kwargs: Any) -> Any:
        try:
            return inner(reader, query_timestamps, ep_idx, *args, **kwargs)
        except Exception as error:
            reason = error_line(error, 300)
            report(broken={"episode": int(ep_idx), "file": getattr(error, "strobe_file", ""), "reason": reason})
            raise

    return call
