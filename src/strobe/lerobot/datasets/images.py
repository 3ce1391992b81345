"""The images of a data set: black ones by the statistics of episodes, a part that is decoded, statistics of a few."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from strobe.core.measure.sampling import Progress
from strobe.lerobot.datasets.fault import Fault
from strobe.lerobot.datasets.frames import ImageReader
from strobe.lerobot.datasets.numbers import compute_statistics, read_episode_statistics
from strobe.lerobot.datasets.recording import Recording
from strobe.lerobot.datasets.results import Statistics

DARK = 0.06  # brightness, white is 1: no pixel of a black image is brighter
MOST_EPISODES, MOST_S, SECONDS = 24, 20.0, 80.0  # that are decoded: episodes, seconds of each, seconds for all
SIDES = 48, 64  # pixels of an image in which changes are looked for
PARTS = 12, 16  # of an image: in their means a sensor's noise and a codec's do not show
FLOOR, MOST = 8.0, 25.0  # steps of 255 by which codecs move a pixel; spreads², the most that a pixel counts
TRIES = 16  # applications of a random transform
IMAGES = 100  # images that statistics are made from


@dataclass
class Pictures:
    """A part of the images of each camera. Each record is camera → place of an episode → numbers.

    Args:
        changes: (images − 1,) how much each image differs from the one before.
        light: (images, rows, columns) the brightness of parts of each image, of 255.
        first: the episode's first image, (height, width, 3) and small.
        more: images behind those of its rows.
    """

    changes: dict[str, dict[int, np.ndarray]] = field(default_factory=dict)
    light: dict[str, dict[int, np.ndarray]] = field(default_factory=dict)
    first: dict[str, dict[int, np.ndarray]] = field(default_factory=dict)
    more: dict[str, dict[int, int]] = field(default_factory=dict)


def decode(read: Recording, episodes: Mapping[int, int], progress: Callable[[Progress], None]) -> Pictures:
    """Decode images of some episodes, at random places of the recording, for up to `SECONDS`.

    Args:
        episodes: number → rows. The place of an episode is its place in here.

    Raises:
        DatasetError: an image cannot be decoded.
    """
    found, began = Pictures(), time.monotonic()
    some = np.random.default_rng(0).permutation(len(episodes))[:MOST_EPISODES].tolist()
    with closing(ImageReader(read)) as reader:
        for done, at in enumerate(some):
            episode, rows = list(episodes.items())[at]
            for camera in reader.cameras:
                there = _count_images(read, camera, episode, rows)
                if there != rows:
                    found.more.setdefault(camera, {})[at] = there - rows
                wanted = min(there, int(MOST_S * read.fps))
                images = np.stack([shrink(image) for image in reader.images(episode, camera, wanted)])
                found.first.setdefault(camera, {})[at] = images[0]
                grey = images.mean(axis=-1)
                found.changes.setdefault(camera, {})[at] = np.abs(np.diff(grey, axis=0)).mean(axis=(1, 2))
                parts = grey.reshape(len(grey), PARTS[0], SIDES[0] // PARTS[0], PARTS[1], SIDES[1] // PARTS[1])
                found.light.setdefault(camera, {})[at] = parts.mean(axis=(2, 4))
            seconds = time.monotonic() - began
            progress(Progress(done + 1, len(some), seconds, seconds * (len(some) / (done + 1) - 1), "episodes"))
            if seconds > SECONDS:
                break
    for by_camera in vars(found).values():
        by_camera |= {camera: dict(sorted(each.items())) for camera, each in by_camera.items()}
    return found


def _count_images(read: Recording, camera: str, episode: int, rows: int) -> int:
    row = read.episodes[episode]
    if f"videos/{camera}/to_timestamp" not in row:
        return rows
    begin, end = (float(row[f"videos/{camera}/{end}"]) for end in ("from_timestamp", "to_timestamp"))
    return round((end - begin) * read.fps)


def shrink(image: np.ndarray) -> np.ndarray:
    """Return an image, (height, width, 3), with `SIDES`."""
    import cv2

    return cv2.resize(image, SIDES[::-1], interpolation=cv2.INTER_AREA).astype(np.float32)


def dark(read: Recording) -> Iterator[Fault]:
    """Yield the episodes of which the statistics of a camera say that it saw nothing. Nothing is decoded."""
    for camera in (name for name, feature in read.features.items() if feature.get("dtype") in ("video", "image")):
        brightest = _brightest(read, camera)
        black = [episode for episode in read.chosen if brightest.get(episode, 1.0) <= DARK]
        short = camera.removeprefix("observation.images.")
        source = f"--repo_id={read.named or 'local/' + read.root.name} --root={read.root}"
        without = (
            f"train without that camera (lerobot-edit-dataset {source} --new_root=NEW "
            f"--operation.type=remove_feature --operation.feature_names=\"['{camera}']\")"
        )
        for episode in black:
            yield Fault(
                f"dark {camera}",
                f"episode {episode} of {camera} is black: no pixel is above {100 * brightest[episode]:.0f} % of white, "
                "by the episode's statistics",
                without if len(black) == len(read.chosen) else "",
                (episode,),
                stops=False,
                why="There a policy learns to ignore this camera, but on the robot it shows the scene.",
                brief=f"Episode {episode} of {short} is black",
            )


def _brightest(read: Recording, camera: str) -> dict[int, float]:
    """Return each episode's brightest pixel, 0 to 1, as ``meta/episodes`` has it; {} where it has none."""
    return {
        int(episode): float(channels.max())
        for episodes, numbers in read_episode_statistics(read, f"stats/{camera}/max")
        for episode, channels in zip(episodes, numbers, strict=True)
        if numbers.dtype.kind == "f" and np.isfinite(channels).all()
    }


def image_statistics(read: Recording, camera: str) -> Statistics:
    """Return the statistics of a camera's images, 0 to 1, a number a channel, from some that are decoded.

    Raises:
        DatasetError: an image cannot be decoded.
    """
    seen: list[np.ndarray] = []
    lengths = np.array([int(read.episodes[episode]["length"]) for episode in read.episodes])
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    with closing(ImageReader(read)) as reader:
        for at in np.unique(np.linspace(0, total - 1, IMAGES).astype(int)) if total else ():
            episode = int(np.searchsorted(ends, at, "right"))
            image = reader.image(episode, camera, int(at - (ends[episode] - lengths[episode])))
            every = max(1, min(image.shape[:2]) // 100)  # as LeRobot thins large images
            seen.append(image[::every, ::every].reshape(-1, image.shape[2]))
    return compute_statistics(np.concatenate(seen).astype(np.float32) / 255) if seen else {}


def find_idle_transforms(dataset: Any) -> list[str]:
    """Return the image transforms that change no image of ``dataset``, and change the same image in floating point.

    Seven transforms of LeRobot 0.6.1 return uint8 images unchanged, and lerobot-train reads videos as uint8. One that
    is random and rare may change neither, and is not judged. A streamed data set is not looked at.
    """
    import torch

    transforms = getattr(dataset, "image_transforms", None)
    named, camera = getattr(transforms, "transforms", None), next(iter(dataset.meta.camera_keys), None)
    if not isinstance(named, Mapping) or camera is None or not hasattr(dataset, "set_image_transforms"):
        return []
    dataset.set_image_transforms(None)
    try:
        image = dataset[0][camera]
    finally:
        dataset.set_image_transforms(transforms)
    if image.is_floating_point():
        return []
    with torch.random.fork_rng(devices=[]):
        return [
            name for name, each in named.items() if not _changes(each, image) and _changes(each, image.float() / 255)
        ]


def _changes(transform: Any, image: Any) -> bool:
    return any(not transform(image).equal(image) for _ in range(TRIES))


def distances(images: np.ndarray, known: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Return how far each image is from the usual one of ``known`` in some pixels, without colours, in spreads²."""
    grey = known.mean(axis=-1)
    away = (images.mean(axis=-1) - np.median(grey, axis=0)) / (grey.std(axis=0) + FLOOR)
    return np.minimum(away**2, MOST)[:, where].mean(axis=1)


def find_farthest(known: np.ndarray, where: np.ndarray) -> float:
    """Return the distance of the farthest image from the others."""
    return max(float(distances(one[None], np.delete(known, at, axis=0), where)[0]) for at, one in enumerate(known))
