"""What a training trained on, as a record: from its config, what it was fed, its first wait and the frames seen."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import torch

from strobe.core.measure.components import Iteration
from strobe.train.results import TrainedOn
from strobe.train.watch import TrainingWatch


def record_inputs(
    watch: TrainingWatch, waited_ms: float, batches: Sequence[Iteration], epochs: int, processes: int
) -> TrainedOn:
    """Return the record.

    Args:
        waited_ms: the first step's wait for its batch.
        batches: of the training's loader, as far as they were recorded.
        epochs: that began in the recorded steps.
        processes: that train together.
    """
    config, inputs, dataset = watch.config, watch.inputs, watch.dataset
    given, transforms = config.dataset, dataset.image_transforms
    asked = dataset.episodes
    found = TrainedOn(
        dataset=str(given.repo_id),
        streaming=given.streaming,
        episodes_there=dataset.meta.total_episodes,
        episodes_asked=None if asked is None else len(asked),
        first_batch_ms=waited_ms,
        samples_per_step=config.batch_size * processes,  # lerobot-train takes an optimizer step after each batch
        accumulation=inputs.accumulation,
        statistics_off=inputs.off,
        statistics_not_compared=inputs.not_compared,
        resumed=inputs.resumed,
        adapter=inputs.adapter,
    )
    if inputs.normalises:
        found.normalised_by = "the checkpoint's statistics" if config.resume else "the data's statistics"
    if batches and config.num_workers:
        in_turn = sorted(batches, key=lambda batch: batch.whole.start_ns)
        found.startup_ms = max(0.0, waited_ms - in_turn[0].ms)
        at_work = len({batch.whole.thread for batch in batches})  # of a streamed set with one file, one worker reads
        if steady := in_turn[at_work:]:  # the first of each opens files, and fills a stream's buffer
            found.loader_rate = 1e3 * at_work * config.batch_size / fmean(batch.ms for batch in steady)
    if transforms is not None:
        found.transforms = list(getattr(transforms, "transforms", {})) or [type(transforms).__name__]
        chosen = getattr(given.image_transforms, "max_num_transforms", len(found.transforms))
        found.transforms_each = min(chosen, len(found.transforms))
    _add_frames(found, watch, None if asked is None else {int(episode) for episode in asked}, epochs)
    return found


def _add_frames(found: TrainedOn, watch: TrainingWatch, asked: set[int] | None, epochs: int) -> None:
    if not watch.inputs.seen:
        return
    frames, episodes = (
        torch.cat([each.flatten().cpu() for each in one]) for one in zip(*watch.inputs.seen, strict=True)
    )
    came = {int(episode) for episode in episodes.unique()}
    found.frames_seen, found.frames_distinct = len(frames), len(frames.unique())
    found.episodes_seen = len(came)
    if len(frames) > 1:
        found.in_order = float((frames.diff() == 1).float().mean())
    if asked is not None:
        found.not_asked = sorted(came - asked)
    if epochs > 1 and found.streaming:
        found.never_came = sorted((asked or set(range(found.episodes_there))) - came)
