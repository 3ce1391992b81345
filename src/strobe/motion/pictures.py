"""Checks of images against rows, of cameras against each other, and of a camera by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

import numpy as np

from strobe.core.measure.statistics import interpolate_peak, median_interval
from strobe.core.results import units
from strobe.lerobot.datasets.fault import distance
from strobe.lerobot.datasets.numbers import ACTION, STATE
from strobe.motion.look import Look, is_enough
from strobe.motion.results import CameraLag, Oddity

FARTHEST_S = 3.0  # lag that is tried
BUSY = 0.5  # correlation of changes and speeds at which one episode shows a lag
SURE = 0.7  # correlation of an episode whose lag is not that of the others: by chance in one of twelve
APART_S, LESS = 0.5, 0.1  # a second peak that is so far off must be so much lower
AGREE = 2.0  # ticks within which episodes agree: two by chance, over 180 lags, in three of a hundred
MOST_AGREE = 0.6  # share of the episodes that must show a lag, and agree
LATE_S = 0.1  # exposure, USB and decoding make a camera 30 to 70 ms late
LATE_TICKS = 3
PLACES = 8  # images of an episode in which a camera may be frozen
STOOD = 0.5  # steps of 255: two images whose parts differ by no more are the same
MOVED, FROZEN = 0.03, 3  # share of a joint's range; times in a row that the image is the same while one moves so far
FLAT = 4.0  # steps of 255: an image whose parts differ by less is of one colour
SAME = 1.0  # steps of 255: the same image, but for a codec
OTHER = 8.0  # steps of 255 between the usual images of two cameras
NEARER = 0.5  # of the distance to its own camera's usual image
DARKER = 0.7  # times as bright: the automatic exposure of a web camera goes in thirds of a stop, to 0.79
MOST_PARTS = 0.9  # share of the parts that must be so: an arm is before a few of them …
DIM = 0.25  # … times the mean: less bright ones are part of none
DARK_S, FALL = 1.0, 2  # seconds on both sides of a fall that are compared, and the frames within which it falls
SUDDEN = 0.7  # share of the whole fall that lies within these frames: an exposure that drifts has less
PATTERN = 0.8  # correlation of the parts before and after: the scene is there still, so nothing covers the lens


def late_images(look: Look) -> Iterator[Oddity]:
    """Cameras whose images come later or sooner than the rows that they belong to."""
    speeds, limit = look.speeds(), _limit(look)
    by_episode = {at: speeds[start : end - 1] for at, (start, end) in enumerate(look.series.bounds)}
    for camera in look.pictures.changes:
        lag = _measure_lag(look, camera, by_episode)
        if lag is None:
            continue
        look.cameras.append(lag)
        if (common := _find_common_lag(lag)) is not None:
            if abs(common[0]) > limit:
                yield _describe_common_lag(look, lag, *common)
            continue
        sure = [episode for episode, peak in lag.peaks.items() if peak >= SURE]
        odd = [episode for episode in sure if abs(lag.episodes[episode]) > limit]
        if len(sure) >= max(3, MOST_AGREE * lag.looked_at) and len(odd) >= 2:
            each = ", ".join(f"{lag.episodes[episode]:+.0f} in episode {episode}" for episode in odd)
            yield look.place(
                np.isin(look.series.episodes, odd),
                f"The images of {_short(camera)} are off their rows by another time in each episode",
                f"Frames behind the rows: {each}.",
                "shift each episode by its own lag, or record again with one clock for images and rows",
                camera=camera,
            )


def _limit(look: Look) -> float:
    return max(LATE_TICKS, LATE_S * look.series.fps)


def _find_common_lag(lag: CameraLag) -> tuple[float, list[int]] | None:
    """Return the lag on which the episodes agree, and which of them do; None if too few do."""
    if len(lag.episodes) < max(2, MOST_AGREE * lag.looked_at):
        return None
    middle = float(np.median(list(lag.episodes.values())))
    agree = [episode for episode, ticks in lag.episodes.items() if abs(ticks - middle) <= AGREE]
    return (middle, agree) if len(agree) >= MOST_AGREE * len(lag.episodes) else None


def _describe_common_lag(look: Look, lag: CameraLag, middle: float, agree: list[int]) -> Oddity:
    late, at = middle > 0, round(abs(middle))
    return look.place(
        np.isin(look.series.episodes, agree),
        f"The images of {_short(lag.camera)} are {distance(at / look.series.fps, look.series.fps)} "
        f"{'behind' if late else 'ahead of'} their rows",
        f"The images change as the joints moved {abs(middle):.1f} frames {'before' if late else 'after'} "
        f"({_describe_spread(lag, agree)}).",
        f"give image[t {'+' if late else '−'} {at}] to row t, and cut the {'last' if late else 'first'} {at} rows",
        camera=lag.camera,
    )


def _describe_spread(lag: CameraLag, agree: list[int]) -> str:
    ticks = np.array([lag.episodes[episode] for episode in agree])
    ends = median_interval(ticks)
    interval = f"95 % interval {ends[0]:+.1f} to {ends[1]:+.1f}; " if ends is not None else ""
    return f"{interval}{ticks.min():+.1f} to {ticks.max():+.1f} in {len(ticks)} of {lag.looked_at} episodes"


def late_cameras(look: Look) -> Iterator[Oddity]:
    """Cameras whose images come later than another's, by the change of both alone: also where rows show no lag."""
    known = {lag.camera: common[0] for lag in look.cameras if (common := _find_common_lag(lag)) is not None}
    for one, two in combinations(look.pictures.changes, 2):
        # Where the rows show the lag of both, they have said it.
        lag = _measure_lag(look, two, look.pictures.changes[one]) if not {one, two} <= set(known) else None
        if lag is None:
            continue
        lag.against = one
        look.cameras.append(lag)
        common, most, at_once = _find_common_lag(lag), max(lag.correlation), lag.correlation[len(lag.correlation) // 2]
        if common is None or most - at_once < LESS:
            continue  # joints move one after the other, so two views of one moment differ by a little too
        ahead = two in known or (common[0] < 0 and one not in known)
        late, other, apart = (one, two, -common[0]) if ahead else (two, one, common[0])
        behind = known.get(other, 0.0) + apart
        if min(abs(apart), abs(behind)) <= _limit(look):
            continue  # or the other camera is late itself, which has been said
        do = f"give image[t {'+' if behind > 0 else '−'} {round(abs(behind))}] of {_short(late)} to row t"
        which = (
            f"find out which of the two goes with the rows. If it is {_short(other)}: " if other not in known else ""
        )
        yield look.place(
            np.isin(look.series.episodes, common[1]),
            f"The images of {_short(late)} are {distance(apart / look.series.fps, look.series.fps)} "
            f"{'behind' if apart > 0 else 'ahead of'} those of {_short(other)}",
            f"Both change alike {abs(apart):.1f} frames apart ({_describe_spread(lag, common[1])}): correlation "
            f"{most:.2f}, and {at_once:.2f} for images of one row.",
            which + do,
            camera=late,
        )


def _short(camera: str) -> str:
    return camera.removeprefix("observation.images.")


def _measure_lag(look: Look, camera: str, before: Mapping[int, np.ndarray]) -> CameraLag | None:
    """Return how many ticks a camera's changes come after ``before``: place of an episode → a value for each row."""
    fps = look.series.fps
    farthest = round(FARTHEST_S * fps)
    curves, shown, peaks, looked_at = [], {}, {}, 0
    for at, changes in look.pictures.changes[camera].items():
        start, end = look.series.bounds[at]
        speed = before.get(at, np.zeros(1))[: end - start - 1]
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
    lags = {lag.camera: lag.episodes for lag in look.cameras if lag.against is None}
    for camera, more in look.pictures.more.items():
        numbers = {at: int(look.series.episodes[at]) for at, count in more.items() if count > 0}
        ticks = {at: lags[camera][number] for at, number in numbers.items() if number in lags.get(camera, {})}
        if not ticks or max(map(abs, ticks.values())) > _limit(look):
            continue
        part = np.mean([more[at] / (more[at] + look.series.rows[numbers[at]]) for at in ticks])
        yield look.place(
            np.array(list(ticks)),
            f"{round(float(np.median([more[at] for at in ticks])))} images more of {_short(camera)} are behind each "
            "episode's rows: a discarded take",
            f"The images of the rows come first, and go with them (lag {np.median(list(ticks.values())):+.1f} frames). "
            f"Those behind are {100 * part:.0f} % of these videos.",
            "nothing needs to be recorded again",
            camera=camera,
        )


def exchanged_cameras(look: Look) -> Iterator[Oddity]:
    """Two cameras that change places in a part of the episodes, or show the same."""
    first = look.pictures.first
    for one, two in combinations(first, 2):
        places = sorted(set(first[one]) & set(first[two]))
        images = [np.stack([first[camera][at] for at in places]) for camera in (one, two)]
        usual = [np.median(each, axis=0) for each in images]
        plain = images[0].std(axis=(1, 2, 3)) < OTHER  # black and grey ones have a sentence of their own
        alike = (np.abs(images[0] - images[1]).mean(axis=(1, 2, 3)) < SAME) & ~plain
        apart = [[np.abs(each - one_usual).mean(axis=(1, 2, 3)) for one_usual in usual] for each in images]
        own, other = apart[0][0] + apart[1][1], apart[0][1] + apart[1][0]
        differ = float(np.abs(usual[0] - usual[1]).mean()) > OTHER
        for words, some in (("show the same image", alike), ("are exchanged", differ & (other < NEARER * own))):
            if is_enough(some, np.ones(len(places), bool)):
                yield look.place(
                    np.array(places)[some],
                    f"{one} and {two} {words} in {units.count(int(some.sum()), 'episode')}",
                    "Their first images were compared.",
                    "give these images back to their camera, and look at the other episodes",
                    camera=one,
                )


def frozen_cameras(look: Look) -> Iterator[Oddity]:
    """Cameras whose image stands while the arm moves. It may be the scene of an episode, and so one is enough."""
    columns = [each for each in look.columns[STATE if STATE in look.columns else ACTION] if each.reach > 0]
    for camera, episodes in look.pictures.light.items():
        odd = []
        for at, light in episodes.items():
            start, end = look.series.bounds[at]
            places = np.unique(np.linspace(0, min(len(light), end - start) - 1, PLACES).astype(int))
            moved = [(np.abs(np.diff(each.clean[start + places])) > MOVED * each.reach) for each in columns]
            stood = np.abs(np.diff(light[places], axis=0)).max(axis=(1, 2)) < STOOD
            still = stood & np.any(moved, axis=0) & (np.ptp(light[places]) >= FLAT)
            if np.convolve(still, np.ones(FROZEN)).max(initial=0) >= FROZEN:
                odd.append(at)
        yield from _describe_camera(look, camera, odd, "stands still while the arm moves")


def empty_cameras(look: Look) -> Iterator[Oddity]:
    """Cameras whose images are of one colour. One that differs from episode to episode says something."""
    for camera, episodes in look.pictures.light.items():
        odd = [at for at, light in episodes.items() if np.ptp(light) < FLAT]
        colours = [look.pictures.first[camera][at].mean(axis=(0, 1)) for at in odd]
        if odd and np.ptp(np.stack(colours), axis=0).max() < FLAT:
            yield from _describe_camera(look, camera, odd, "shows one colour")


def _describe_camera(look: Look, camera: str, odd: list[int], words: str) -> Iterator[Oddity]:
    if odd:
        yield look.place(
            np.array(odd),
            f"{camera} {words} in {100 * len(odd) / len(look.pictures.light[camera]):.0f} % of the episodes",
            f"Images of {len(look.pictures.light[camera])} episodes were decoded.",
            "record again; check the camera's cable and lens cap, and close other programs that use it",
            camera=camera,
        )


def lost_light(look: Look) -> Iterator[Oddity]:
    """Images that turn darker in all their parts from one frame to the next, and stay so: a light went out."""
    falls = {
        camera: {at: fall for at, one in each.items() if (fall := _find_fall(one, look.series.fps)) is not None}
        for camera, each in look.pictures.light.items()
    }
    for camera, found in falls.items():
        # One episode is enough: no motion does that. Of black images only a light that all cameras lose is known.
        odd = [at for at, (frame, _, scene) in found.items() if scene or (len(falls) > 1 and all(
            at in each and abs(each[at][0] - frame) <= FALL for each in falls.values()))]  # fmt: skip
        if odd:
            frame, left, _ = found[odd[0]]
            yield look.place(
                np.array(odd),
                f"A light goes out: the images of {_short(camera)} turn {100 * (1 - left):.0f} % darker at once",
                f"In episode {look.series.episodes[odd[0]]} that is at frame {frame}, within {FALL} frames, in "
                f"{100 * MOST_PARTS:.0f} % of the image and more, and stays so.",
                "look at the episodes after these too; record those that are dark again, or leave them out",
                camera=camera,
            )


def _find_fall(light: np.ndarray, fps: float) -> tuple[int, float, bool] | None:
    """Return when (images, rows, columns) turn dark for good, the share that is left, and whether the scene shows."""
    near, light = max(FALL + 1, round(DARK_S * fps)), np.maximum(light, 1.0)
    level = np.log(light.mean(axis=(1, 2)))
    if len(level) <= 2 * near:
        return None
    fall = level[near - 1 : -near - FALL + 1] - level[near - 1 + FALL : len(level) - near + 1]
    at = int(np.argmax(fall)) + near
    before, after = (np.median(some, axis=0) for some in (light[at - near : at], light[at + 1 : at + 1 + near]))
    left, ends = (after / before)[before > DIM * before.mean()], [np.log(each.mean()) for each in (before, after)]
    sudden, stays = fall.max() >= SUDDEN * (ends[0] - ends[1]), level[at + 1 :].max() < np.mean(ends)
    if np.quantile(left, MOST_PARTS) > DARKER or not (sudden and stays):
        return None
    scene = min(before.std(), after.std()) > 0 and np.corrcoef(before.ravel(), after.ravel())[0, 1] >= PATTERN
    return at, float(np.median(left)), bool(scene)
