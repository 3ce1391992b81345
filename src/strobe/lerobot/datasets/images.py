"""The images of a data set: black ones by the statistics of episodes, frozen ones and statistics by decoding a few."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from strobe.lerobot.datasets import recording
from strobe.lerobot.datasets.fault import Fault
from strobe.lerobot.datasets.frames import ImageReader
from strobe.lerobot.datasets.numbers import Numbers, array, compute_statistics
from strobe.lerobot.datasets.recording import Recording
from strobe.lerobot.datasets.results import CameraTruth, Statistics

DARK = 0.06  # brightness, white is 1: no pixel of a black image is brighter
MOST_EPISODES, PLACES = 24, 8  # episodes, and images of each that are decoded
SECONDS = 20.0  # for all of them
BLOCKS = 16  # along each side: an image's means, in which a sensor's noise and a codec's do not show
SAME = 0.5  # steps of 255: two images whose blocks differ by no more are the same
FLAT = 4.0  # steps of 255: an image whose blocks differ by less is of one colour
MOVED = 0.1  # share of a joint's spread: the arm has moved between two images
FROZEN = 3  # times in a row that the image is the same while the arm has moved
TRIES = 16  # applications of a random transform
IMAGES = 100  # images that statistics are made from


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
    name, found = f"stats/{camera}/max", {}
    for file in sorted((read.root / recording.EPISODES).rglob("*.parquet")):
        if name not in recording.column_names(read.root, read.named, file):
            continue
        table = recording.rows(read.root, read.named, file, ["episode_index", name])
        numbers, episodes = array(table[name]), table["episode_index"].to_pylist()
        if not episodes or not len(numbers) or len(numbers) % len(episodes) or numbers.dtype.kind != "f":
            continue
        for episode, channels in zip(episodes, numbers.reshape(len(episodes), -1), strict=True):
            if np.isfinite(channels).all():
                found[int(episode)] = float(channels.max())
    return found


def look(read: Recording, numbers: Numbers, seconds: float = SECONDS) -> list[CameraTruth]:
    """Decode a few images of some episodes, spread over the data set, and say which cameras froze or show nothing.

    Args:
        seconds: after which no further episode is begun.

    Raises:
        DatasetError: an image cannot be decoded.
    """
    until = time.monotonic() + seconds
    bounds = {int(numbers.episode[start]): (start, end) for start, end in numbers.bounds}
    some = [episode for episode in read.chosen if episode in bounds and bounds[episode][1] - bounds[episode][0] > 1]
    order = np.random.default_rng(0).permutation(some)[:MOST_EPISODES]
    with closing(ImageReader(read)) as reader:
        found = {name: CameraTruth(name=name, episodes=0) for name in reader.cameras}
        plain: dict[str, dict[int, np.ndarray]] = {name: {} for name in found}
        for episode in map(int, order):
            if time.monotonic() > until:
                break
            start, end = bounds[episode]
            places = np.unique(np.linspace(0, end - start - 1, PLACES).astype(int)).tolist()
            moved = _moving_rows(numbers, [start + place for place in places])
            for name, camera in found.items():
                seen = [_blocks(reader.image(episode, name, place)) for place in places]
                camera.episodes += 1
                if float(np.ptp(np.stack(seen), axis=(0, 1, 2)).max()) < FLAT:
                    plain[name][episode] = seen[0].mean(axis=(0, 1))
                elif _is_image_frozen(seen, moved):
                    camera.frozen = sorted([*camera.frozen, episode])
    for name, colours in plain.items():
        if colours and float(np.ptp(np.stack(list(colours.values())), axis=0).max()) < FLAT:
            found[name].empty = sorted(colours)  # a colour that differs from episode to episode says something
    return list(found.values())


def _moving_rows(numbers: Numbers, rows: Sequence[int]) -> list[bool]:
    moved = np.zeros(len(rows) - 1, bool)
    for values in numbers.vectors.values():
        spread = values.std(axis=0)
        steps = np.abs(np.diff(values[list(rows)], axis=0))
        moved |= (steps > np.maximum(MOVED * spread, 1e-9)).any(axis=1)
    return moved.tolist()


def _is_image_frozen(images: Sequence[np.ndarray], moved: Sequence[bool]) -> bool:
    alike = 0
    for before, after, arm in zip(images, images[1:], moved, strict=False):
        alike = alike + 1 if arm and float(np.abs(before - after).max()) < SAME else 0
        if alike >= FROZEN:
            return True
    return False


def _blocks(image: np.ndarray) -> np.ndarray:
    """Return the means of an image's blocks, (BLOCKS, BLOCKS, 3)."""
    height, width = (max(1, size // BLOCKS) for size in image.shape[:2])
    rows, columns = image.shape[0] // height, image.shape[1] // width
    cut = image[: rows * height, : columns * width].astype(np.float32)
    return cut.reshape(rows, height, columns, width, -1).mean(axis=(1, 3))


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
