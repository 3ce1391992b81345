"""lerobot-train's dataset and its DataLoader, with the settings that can be searched."""

from __future__ import annotations

import copy
import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from lerobot.configs.train import TrainPipelineConfig
from torch.utils.data import DataLoader, Dataset, Sampler

from strobe.core.errors import UserError
from strobe.dataloader.results import LoaderSettings
from strobe.lerobot.quiet import quiet

# LeRobot knows two (and an alias); which of them load differs from machine to machine.
VIDEO_BACKENDS = ("torchcodec", "pyav")


def loader_settings(config: TrainPipelineConfig, *, pin_memory: bool = False) -> LoaderSettings:
    """Return the settings that lerobot-train would take from ``config``."""
    return LoaderSettings(
        num_workers=config.num_workers,
        prefetch_factor=config.prefetch_factor,
        batch_size=config.batch_size,
        video_backend=config.dataset.video_backend,
        start_method=config.dataloader_multiprocessing_context,
        persistent_workers=config.persistent_workers,
        pin_memory=pin_memory,
    )


def replace_loader_settings(config: TrainPipelineConfig, settings: LoaderSettings) -> TrainPipelineConfig:
    """Return a copy of ``config`` with ``settings``, as far as it has fields for them."""
    changed = copy.copy(config)
    changed.dataset = dataclasses.replace(config.dataset, video_backend=settings.video_backend)
    if settings.root is not None:
        changed.dataset = dataclasses.replace(changed.dataset, root=settings.root)
    changed.num_workers, changed.prefetch_factor = settings.num_workers, settings.prefetch_factor
    changed.batch_size, changed.persistent_workers = settings.batch_size, settings.persistent_workers
    changed.dataloader_multiprocessing_context = settings.start_method
    return changed


class EpochAfterEpoch(Sampler[int]):
    """Joins another sampler's epochs, so that a steady state lasts for the whole measurement.

    With ``length``, an epoch has that many samples.
    """

    def __init__(self, sampler: Any, length: int | None = None) -> None:
        self.sampler, self.length = sampler, length

    def __iter__(self) -> Iterator[int]:
        yielded = 0
        while self.length is None or yielded < self.length:
            for index in self.sampler:
                if yielded == self.length:
                    return
                yielded += 1
                yield index

    def __len__(self) -> int:
        return len(self.sampler) if self.length is None else self.length


def open_dataset(config: TrainPipelineConfig, settings: LoaderSettings) -> Any:
    """Open the training dataset as lerobot-train does: with deltas and transforms, without held-out episodes.

    Raises:
        UserError: it cannot be read, or has no frames.
    """
    from lerobot.datasets.factory import make_train_eval_datasets

    changed = replace_loader_settings(config, settings)
    try:
        with quiet():
            dataset, _ = make_train_eval_datasets(changed)
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"the dataset {config.dataset.root or config.dataset.repo_id} cannot be read: {reason}"
        ) from error
    if not len(dataset):
        raise UserError(f"the dataset {config.dataset.root or config.dataset.repo_id} has no frames")
    if not settings.transforms:
        dataset.clear_image_transforms()
    return dataset


def open_loader(
    config: TrainPipelineConfig,
    settings: LoaderSettings,
    dataset: Any,
    *,
    epoch: int | None = None,
    prepare_worker: Callable[[int], None] | None = None,
) -> DataLoader[Any]:
    """Make the DataLoader that lerobot-train makes, its epochs joined.

    Args:
        epoch: samples in an epoch, to measure its end; None for no end.
        prepare_worker: called first in every worker, with its number.

    Raises:
        UserError: no frame remains without the policy's ``drop_n_last_frames``.
    """
    from lerobot.datasets import EpisodeAwareSampler
    from lerobot.utils.collate import lerobot_collate_fn

    workers = settings.num_workers > 0  # DataLoader refuses options of workers without workers
    try:
        with quiet():
            frames = EpisodeAwareSampler(
                dataset.meta.episodes["dataset_from_index"],
                dataset.meta.episodes["dataset_to_index"],
                episode_indices_to_use=dataset.episodes,
                drop_n_last_frames=getattr(config.trainable_config, "drop_n_last_frames", 0),
                shuffle=True,
                seed=config.seed if config.seed is not None else 0,
                absolute_to_relative_idx=dataset.absolute_to_relative_idx,
            )
    except ValueError as error:
        raise UserError(f"nothing to train on: {error}") from error
    return DataLoader(
        dataset if settings.samples is None else KeptSamples(dataset, settings.samples),
        batch_size=settings.batch_size,
        sampler=EpochAfterEpoch(frames, epoch),
        num_workers=settings.num_workers,
        pin_memory=settings.pin_memory,
        collate_fn=lerobot_collate_fn if dataset.meta.has_language_columns else None,
        worker_init_fn=prepare_worker,
        prefetch_factor=settings.prefetch_factor if workers else None,
        persistent_workers=settings.persistent_workers and workers,
        multiprocessing_context=settings.start_method if workers else None,
    )


def keep_samples(dataset: Any, file: Path, most_bytes: int, seconds: float) -> tuple[int, int]:
    """Write the first samples of ``dataset`` to ``file``, a tensor or a list for each of their keys.

    Args:
        most_bytes: of their tensors.
        seconds: after which no further sample is decoded.

    Returns:
        How many were written, and how many the dataset has.
    """
    first, began = dataset[0], time.perf_counter()
    count = max(1, min(len(dataset), most_bytes // max(1, sample_bytes(dataset))))
    kept: dict[str, Any] = {
        key: value.new_empty((count, *value.shape)) if isinstance(value, torch.Tensor) else [None] * count
        for key, value in first.items()
    }
    done = 0
    while done < count and (not done or time.perf_counter() - began < seconds):
        for key, value in dataset[done].items():
            kept[key][done] = value
        done += 1
    torch.save(
        {key: values[:done].clone() if torch.is_tensor(values) else values[:done] for key, values in kept.items()}, file
    )
    with file.open("rb+") as written:
        os.fsync(written.fileno())  # so that nothing is written to the disk while loaders are measured
    return done, len(dataset)


class KeptSamples(Dataset[dict[str, object]]):
    """A dataset whose samples come from a file of `keep_samples`, again and again, and then its image transforms."""

    def __init__(self, dataset: Any, file: str) -> None:
        self._length, self._file, self._transforms = len(dataset), file, dataset.image_transforms
        self._cameras = [key for key in dataset.meta.camera_keys if key not in dataset.meta.depth_keys]
        self._samples: dict[str, torch.Tensor | list[object]] = {}

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> dict[str, object]:
        if not self._samples:  # each process maps the file by itself: they share its pages, and none copies them
            self._samples = torch.load(self._file, mmap=True)
        count = len(next(iter(self._samples.values())))
        item: dict[str, object] = {key: values[index % count] for key, values in self._samples.items()}
        if self._transforms is not None:
            item |= {key: self._transforms(item[key]) for key in self._cameras}
        return item


def sample_bytes(dataset: Any) -> int:
    """Return the bytes of one sample's tensors, as a worker hands them over."""
    item = dataset[0]
    return sum(value.numel() * value.element_size() for value in item.values() if isinstance(value, torch.Tensor))


def backends_here() -> list[str]:
    """Return the video backends that load on this machine."""
    from lerobot.utils.import_utils import get_safe_default_video_backend

    with quiet():
        default = get_safe_default_video_backend()  # torchcodec wherever it loads
    return list(VIDEO_BACKENDS) if default == "torchcodec" else ["pyav"]


def limit_decoder(threads: int) -> None:
    """Limit PyAV's decoders in this process to ``threads``: LeRobot opens files without a number of threads."""
    import av
    from lerobot.datasets import video_utils

    class Limited:
        """The av module as LeRobot's decoding sees it."""

        def __getattr__(self, name: str) -> Any:
            return getattr(av, name)

        @staticmethod
        def open(*args: Any, **kwargs: Any) -> Any:
            container = av.open(*args, **kwargs)
            for stream in container.streams.video:
                stream.codec_context.thread_count = threads
            return container

    video_utils.av = Limited()  # pyright: ignore[reportAttributeAccessIssue]
