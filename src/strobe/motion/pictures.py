"""Checks of images against rows, and of cameras against each other: a part of the images is decoded, once for all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import numpy as np

from strobe.core.measure.sampling import Progress
from strobe.core.measure.statistics import interpolate_peak
from strobe.core.results import units
from strobe.lerobot.datasets.fault import distance
from strobe.lerobot.datasets.frames import ImageReader
from strobe.lerobot.datasets.recording import Recording
from strobe.motion.look import Look, Pictures, is_enough
from strobe.motion.results import CameraLag, Oddity
from strobe.motion.series import Series

MOST_EPISODES, MOST_S, SECONDS = 8, 20.0, 60.0  # episodes, seconds of each, seconds for all
SIDES = 48, 64  # pixels of an image in which changes are looked for
FARTHEST_S = 3.0  # lag that is tried
BUSY = 0.5  # correlation of changes and speeds at which one episode shows a lag
SURE = 0.7  # correlation of an episode whose lag is not that of the others: by chance in one of twelve
APART_S, LESS = 0.5, 0.1  # a second peak that is so far off must be so much lower
AGREE = 2.0  # ticks within which episodes agree: two by chance, over 180 lags, in three of a hundred
MOST_AGREE = 0.6  # share of the episodes that must show a lag, and agree
LATE_S = 0.1  # exposure, USB and decoding make a camera 30 to 70 ms late
LATE_TICKS = 3
SAME = 1.0  # steps of 255: the same image, but for a codec
OTHER = 8.0  # steps of 255 between the usual images of two cameras
NEARER = 0.5  # of the distance to its own camera's usual image


def decode(read: Recording, series: Series, progress: Callable[[Progress], None]) -> Pictures:
    """Decode images of some episodes, spread over the recording, for up to `SECONDS`.

    Raises:
        DatasetError: an image cannot be decoded.
    """
    found, began = Pictures(), time.monotonic()
    count = min(MOST_EPISODES, len(series.episodes))
    some = np.unique(np.linspace(0, len(series.episodes) - 1, count).astype(int)).tolist()
    with closing(ImageReader(read)) as reader:
        for done, at in enumerate(some):
            episode, rows = int(series.episodes[at]), series.bounds[at][1] - series.bounds[at][0]
            for camera in reader.cameras:
                there = _images_there(read, camera, episode, rows)
                if there != rows:
                    found.more.setdefault(camera, {})[at] = there - rows
                wanted = min(there, int(MOST_S * read.fps))
                images = np.stack([_small(image) for image in reader.images(episode, camera, wanted)])
                found.first.setdefault(camera, {})[at] = images[0]
                grey = images.mean(axis=-1)
                found.changes.setdefault(camera, {})[at] = np.abs(np.diff(grey, axis=0)).mean(axis=(1, 2))
            seconds = time.monotonic() - began
            progress(Progress(done + 1, len(some), seconds, seconds * (len(some) / (done + 1) - 1), "episodes"))
            if seconds > SECONDS:
                break
    return found


def _images_there(read: Recording, camera: str, episode: int, rows: int) -> int:
    row = read.episodes[episode]
    if f"videos/{camera}/to_timestamp" not in row:
        return rows
    seconds = float(row[f"videos/{camera}/to_timestamp"]) - float(row[f"videos/{camera}/from_timestamp"])
    return round(seconds * read.fps)


def _small(image: np.ndarray) -> np.ndarray:
    import cv2

    return cv2.resize(image, SIDES[::-1], interpolation=cv2.INTER_AREA).astype(np.float32)


def late_images(look: Look) -> Iterator[Oddity]:
    """Cameras whose images come later or sooner than the rows that they belong to."""
    for camera in look.pictures.changes:
        lag = _measure_lag(look, camera)
        if lag is None:
            continue
        look.cameras.append(lag)
        ticks = np.array(list(lag.episodes.values()))
        limit = max(LATE_TICKS, LATE_S * look.series.fps)
        middle = float(np.median(ticks)) if len(ticks) else 0.0
        agree = np.abs(ticks - middle) <= AGREE
        enough = len(ticks) >= max(2, MOST_AGREE * lag.looked_at)
        if enough and agree.sum() >= MOST_AGREE * len(ticks):
            if abs(middle) > limit:
                yield _common_lag(look, lag, middle, agree)
            continue
        sure = np.array([lag.peaks[episode] >= SURE for episode in lag.episodes], bool)
        if sure.sum() >= max(3, MOST_AGREE * lag.looked_at) and (np.abs(ticks[sure]) > limit).sum() >= 2:
            yield _own_lags(look, lag, ticks, sure & (np.abs(ticks) > limit))


def _common_lag(look: Look, lag: CameraLag, middle: float, agree: np.ndarray) -> Oddity:
    ticks, at = np.array(list(lag.episodes.values())), round(abs(middle))
    late = middle > 0
    return look.place(
        np.isin(look.series.episodes, [one for one, own in zip(lag.episodes, agree, strict=True) if own]),
        f"The images of {lag.camera.removeprefix('observation.images.')} are "
        f"{distance(at / look.series.fps, look.series.fps)} {'behind' if late else 'ahead of'} their rows",
        f"The images change as the joints moved {abs(middle):.1f} frames {'before' if late else 'after'} "
        f"({ticks[agree].min():+.1f} to {ticks[agree].max():+.1f} in {int(agree.sum())} of {lag.looked_at} episodes).",
        f"give image[t {'+' if late else '−'} {at}] to row t, and cut the {'last' if late else 'first'} {at} rows",
        feature=lag.camera,
        decoded=_decoded_episodes(look, lag.camera),
    )


def _own_lags(look: Look, lag: CameraLag, ticks: np.ndarray, odd: np.ndarray) -> Oddity:
    episodes = [one for one, own in zip(lag.episodes, odd, strict=True) if own]
    each = ", ".join(f"{lag.episodes[one]:+.0f} in episode {one}" for one in episodes)
    return look.place(
        np.isin(look.series.episodes, episodes),
        f"The images of {lag.camera.removeprefix('observation.images.')} are off their rows by another time in each "
        "episode",
        f"Frames behind the rows: {each}.",
        "shift each episode by its own lag, or record again with one clock for images and rows",
        feature=lag.camera,
        decoded=_decoded_episodes(look, lag.camera),
    )


def _measure_lag(look: Look, camera: str) -> CameraLag | None:
    fps, speeds = look.series.fps, look.speeds()
    farthest = round(FARTHEST_S * fps)
    curves, shown, peaks, looked_at = [], {}, {}, 0
    for at, changes in look.pictures.changes[camera].items():
        start, end = look.series.bounds[at]
        speed = speeds[start : end - 1]
        changes = changes[: len(speed)]  # more images may be behind those of the rows
        if min(len(speed), len(changes)) < 2 * farthest or changes.std() == 0 or speed.std() == 0:
            continue
        looked_at += 1
        curve = _correlate_over_lags(np.sqrt(_smooth(speed)), np.sqrt(_smooth(changes)), farthest)
        curves.append(curve)
        peak = int(np.argmax(curve))
        far = np.abs(np.arange(len(curve)) - peak) > APART_S * fps
        if curve[peak] >= BUSY and curve[far].max() < curve[peak] - LESS and 0 < peak < len(curve) - 1:
            shown[int(look.series.episodes[at])] = interpolate_peak(curve, peak) - farthest
            peaks[int(look.series.episodes[at])] = float(curve[peak])
    if not curves:
        return None
    lags = (np.arange(-farthest, farthest + 1) / fps).tolist()
    mean = np.mean(curves, axis=0).tolist()
    return CameraLag(camera=camera, lags_s=lags, correlation=mean, episodes=shown, peaks=peaks, looked_at=looked_at)


def _smooth(values: np.ndarray) -> np.ndarray:
    return np.convolve(values, np.ones(3) / 3, mode="same")


def _correlate_over_lags(speed: np.ndarray, changes: np.ndarray, farthest: int) -> np.ndarray:
    """Return the correlation of the changes with the speeds that are each lag before them."""
    found = np.zeros(2 * farthest + 1)
    for place, lag in enumerate(range(-farthest, farthest + 1)):
        first, last = max(0, -lag), min(len(speed), len(changes) - lag)
        one, two = speed[first:last], changes[first + lag : last + lag]
        if len(one) > farthest and one.std() > 0 and two.std() > 0:
            found[place] = np.corrcoef(one, two)[0, 1]
    return found


def images_behind(look: Look) -> Iterator[Oddity]:
    """Episodes with more images than rows, where the images of the rows come first: a discarded take is behind them."""
    lags = {camera.camera: camera.episodes for camera in look.cameras}
    for camera, more in look.pictures.more.items():
        agree = [
            at for at, count in more.items() if count > 0 and int(look.series.episodes[at]) in lags.get(camera, {})
        ]
        ticks = [lags[camera][int(look.series.episodes[at])] for at in agree]
        if not agree or max(map(abs, ticks)) > max(LATE_TICKS, LATE_S * look.series.fps):
            continue
        counts, rows = [more[at] for at in agree], look.series.rows
        part = np.mean(
            [count / (count + rows[int(look.series.episodes[at])]) for at, count in zip(agree, counts, strict=True)]
        )
        yield look.place(
            np.isin(np.arange(len(rows)), agree),
            f"{round(float(np.median(counts)))} images more of {camera.removeprefix('observation.images.')} are "
            "behind each episode's rows: a discarded take",
            f"The images of the rows come first, and go with them (lag {np.median(ticks):+.1f} frames). Those behind "
            f"are {100 * part:.0f} % of these videos.",
            "nothing needs to be recorded again",
            feature=camera,
            decoded=_decoded_episodes(look, camera),
        )


def exchanged_cameras(look: Look) -> Iterator[Oddity]:
    """Two cameras that change places in a part of the episodes, or show the same."""
    first = look.pictures.first
    names = list(first)
    for number, one in enumerate(names):
        for two in names[number + 1 :]:
            places = sorted(set(first[one]) & set(first[two]))
            images = [np.stack([first[camera][at] for at in places]) for camera in (one, two)]
            usual = [np.median(each, axis=0) for each in images]
            plain = images[0].std(axis=(1, 2, 3)) < OTHER  # black and grey ones have a sentence of their own
            alike = (np.abs(images[0] - images[1]).mean(axis=(1, 2, 3)) < SAME) & ~plain
            apart = [[np.abs(each - one_usual).mean(axis=(1, 2, 3)) for one_usual in usual] for each in images]
            own, other = apart[0][0] + apart[1][1], apart[0][1] + apart[1][0]
            differ = float(np.abs(usual[0] - usual[1]).mean()) > OTHER
            for words, some in (("show the same image", alike), ("are exchanged", differ & (other < NEARER * own))):
                if not is_enough(some, np.ones(len(places), bool)):
                    continue
                cells = np.isin(
                    np.arange(len(look.series.bounds)), [at for at, odd in zip(places, some, strict=True) if odd]
                )
                yield look.place(
                    cells,
                    f"{one} and {two} {words} in {units.count(int(some.sum()), 'episode')}",
                    "Their first images were compared.",
                    "give these images back to their camera, and look at the other episodes",
                    feature=one,
                    decoded=_decoded_episodes(look, one),
                )


def _decoded_episodes(look: Look, camera: str) -> np.ndarray:
    return np.isin(np.arange(len(look.series.bounds)), list(look.pictures.first[camera]))
