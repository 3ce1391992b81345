"""Faults of a dataset's videos: of the files, and of the frames that an episode needs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from strobe.core.errors import error_line
from strobe.core.untrusted import JsonObject
from strobe.lerobot.datasets.fault import DatasetError, Fault, distance
from strobe.lerobot.datasets.recording import INFO, Recording

_HALF = 0.5  # share of a frame: further away the nearest frame is another one


@dataclass(frozen=True)
class _Video:
    """A file's own figures: the time of each frame in seconds, frames per second, height and width in pixels."""

    times: np.ndarray
    rate: float
    size: tuple[int, int]


def videos(
    recording: Recording, tolerance_s: float, until: float, step: Callable[[], None] = lambda: None
) -> Iterator[Fault]:
    """Yield faults of the videos, file by file. Nothing is decoded.

    A file's header gives its number of frames and its rate. The file's index of frames is read only if an episode does
    not fit to that.

    Args:
        tolerance_s: seconds by which a frame may miss its time, as in LeRobot's flag.
        until: time of `time.monotonic` after which no further file is read.
        step: called after each file.
    """
    for camera, file, episodes in _files(recording):
        if time.monotonic() > until:
            return
        yield from _file(recording, camera, file, episodes, tolerance_s)
        step()


def _files(recording: Recording) -> Iterator[tuple[str, str, list[int]]]:
    for camera in recording.cameras:
        by_file: dict[str, list[int]] = {}
        for episode in recording.chosen:
            by_file.setdefault(recording.video_file(episode, camera), []).append(episode)
        yield from ((camera, file, episodes) for file, episodes in by_file.items())


def _file(recording: Recording, camera: str, file: str, episodes: list[int], tolerance_s: float) -> Iterator[Fault]:
    try:
        video = _read(recording, file, episodes, indexed=False)
        faults = list(_frames(recording, camera, file, video, episodes, tolerance_s))
        if faults or not len(video.times):
            video = _read(recording, file, episodes, indexed=True)
            faults = list(_frames(recording, camera, file, video, episodes, tolerance_s))
    except DatasetError as error:
        yield error.fault
        return
    shape = recording.features[camera].get("shape") or []
    size = tuple(sorted((int(side) for side in shape), reverse=True)[:2])
    if len(size) == 2 and video.size[0] and size != tuple(sorted(video.size, reverse=True)):
        (height, width), listed = video.size, "×".join(str(side) for side in shape)
        what = f"{file} is {height}×{width} pixels, and {INFO} says {listed}"
        yield Fault(f"size {camera}", what, f"correct the 'shape' of {camera} in {INFO}", stops=False)
    yield from faults


def _frames(
    recording: Recording, camera: str, file: str, video: _Video, episodes: list[int], tolerance_s: float
) -> Iterator[Fault]:
    fps, times = recording.fps, video.times
    if not len(times):
        return
    if video.rate and abs(video.rate / fps - 1) > 0.01:
        what = f"{file} has {video.rate:.4g} frames per second, and {INFO} says {fps:g}"
        repair = f"encode it again at {fps:g} frames per second, or {recording.restore(file)}"
        yield Fault(f"video rate {camera}", what, repair)
        return
    needed = sum(int(recording.episodes[episode]["length"]) for episode in episodes)
    for episode in episodes:
        row = recording.episodes[episode]
        start, length = float(row[f"videos/{camera}/from_timestamp"]), int(row["length"])
        if not length:
            continue
        begins = _begins(recording, camera, file, episode)
        moved = start - begins
        due_s = start + np.arange(length) / fps
        nearest = np.clip(np.searchsorted(times, due_s), 1, max(len(times) - 1, 1))
        nearest -= (nearest < len(times)) & (due_s - times[nearest - 1] < times[nearest % len(times)] - due_s)
        error_s = due_s - times[np.minimum(nearest, len(times) - 1)]
        missed = np.abs(error_s) >= tolerance_s
        frame = int(np.argmax(missed))
        place = f"episode {episode}, frame {frame if missed.any() else 0} of {camera}"
        if abs(moved) * fps > 0.01:
            # This is the cause, whichever frames are then missed.
            what = (
                f"{place} is {distance(moved, fps)} too {'late' if moved > 0 else 'early'}: its from_timestamp is "
                f"{start:.6g} s, and in {file} the episode begins at {begins:.6g} s"
            )
            repair = f"set videos/{camera}/from_timestamp of the episode in meta/episodes to {begins:.6g}"
            repair += _nearest(moved, fps)
            yield Fault(f"moved {camera}", what, repair, (episode,), stops=bool(missed.any()))
        elif missed.any() and due_s[frame] > times[-1] + _HALF / fps and not _is_whole(row, camera, times[-1], fps):
            what = (
                f"{place} is not in {file}: that ends {distance(due_s[-1] - times[-1], fps)} before the episode, "
                f"after {len(times):,} frames"
            )
            what += f" of {needed:,}" if needed > len(times) else ""
            yield Fault(f"short {file}", what, recording.restore(file), (episode,))
        elif lost := _find_frame_mismatch(recording, camera, file, episode, stops=bool(missed.any())):
            yield lost
        elif missed.any():
            what = f"{place} is {distance(error_s[frame], fps)} off: it belongs at {due_s[frame]:.6g} s of {file}"
            repair = recording.restore(file) + _nearest(error_s[frame], fps)
            yield Fault(f"off {file}", what, repair, (episode,))


def _is_whole(row: JsonObject, camera: str, last_s: float, fps: float) -> bool:
    """Return whether a file has all frames that ``meta/episodes`` gives the episode: what lacks was never written."""
    return last_s + 1.5 / fps > float(row[f"videos/{camera}/to_timestamp"])


def _find_frame_mismatch(recording: Recording, camera: str, file: str, episode: int, *, stops: bool) -> Fault | None:
    """Return the fault of an episode that has more or fewer frames in its video than rows (lerobot #4462)."""
    row = recording.episodes[episode]
    length = int(row["length"])
    seconds = float(row[f"videos/{camera}/to_timestamp"]) - float(row[f"videos/{camera}/from_timestamp"])
    there = round(seconds * recording.fps)
    if there == length:
        return None
    what = f"episode {episode} has {there:,} frames of {camera} in {file}, and {length:,} rows"
    apart = abs(length - there)
    brief = (
        f"Episode {episode} has {there:,} frames of {camera.removeprefix('observation.images.')} for {length:,} rows"
    )
    if there > length:  # lerobot #4109: LeRobot 0.4.3 to 0.6.0 left those of a discarded take behind an episode's own
        why = "If they are a discarded take behind the rows, images and rows go together. If not, images belong to "
        why += f"rows up to {apart} tick{'s' * (apart != 1)} away."
        repair = f"look at the images: strobe preflight --dataset.root={recording.root} --decode"
        return Fault(f"behind {camera}", what, repair, (episode,), False, why, brief)
    why = f"After the lost frames an image belongs to the row {apart} tick{'s' * (apart != 1)} before it or after it."
    why += " Its last rows have no image." if stops else " Its last rows show the next episode."
    return Fault(f"lost {camera}", what, "record it again", (episode,), stops, why, brief)


def undecodable(recording: Recording, tolerance_s: float, until: float) -> Iterator[Fault]:
    """Yield faults of frames that their file lists and that cannot be decoded, video by video, while there is time.

    Args:
        tolerance_s, until: as for `videos`.
    """
    import av

    for camera, file, episodes in _files(recording):
        times: list[float] = []
        try:
            with av.open(str(recording.root / file)) as container:
                for frame in container.decode(video=0):
                    times.append(float(frame.time or 0.0))
                    if time.monotonic() > until:
                        return
        except av.FFmpegError as error:
            reached = max(times, default=0.0) + _HALF / recording.fps
            ends = {episode: recording.episodes[episode][f"videos/{camera}/to_timestamp"] for episode in episodes}
            # Later frames may be encoded relative to it.
            behind = [episode for episode in episodes if ends[episode] > reached] or episodes
            reason = error_line(_reason(error, recording.root / file), 120)
            what = f"{file} is damaged after {len(times):,} frames, in episode {behind[0]} ({reason})"
            yield Fault(f"damaged {file}", what, recording.restore(file), tuple(behind))
            continue
        if not times:
            what = f"no frame of {file} can be decoded"
            yield Fault(f"damaged {file}", what, recording.restore(file), tuple(episodes))
        yield from _frames(recording, camera, file, _Video(np.sort(times), 0.0, (0, 0)), episodes, tolerance_s)


def _begins(recording: Recording, camera: str, file: str, episode: int) -> float:
    """Return the start of an episode in its file, in seconds. LeRobot writes it at the end of the one before."""
    if episode - 1 not in recording.episodes or recording.video_file(episode - 1, camera) != file:
        return 0.0
    return float(recording.episodes[episode - 1][f"videos/{camera}/to_timestamp"])


def _nearest(error_s: float, fps: float) -> str:
    if abs(error_s) * fps >= _HALF:
        return ""
    return f", or let lerobot-train take the nearest frame (--tolerance_s={abs(error_s) * 1.05 + 1e-4:.2g})"


def _read(recording: Recording, file: str, episodes: list[int], *, indexed: bool) -> _Video:
    """Read the file's header, or with ``indexed`` the time of each of its frames.

    Raises:
        DatasetError: the file is missing, or is not a video.
    """
    import av

    path = recording.root / file
    if not path.is_file():
        raise DatasetError(Fault(f"video {file}", f"{file} is missing", recording.restore(file), tuple(episodes)))
    size_bytes, expected_bytes = path.stat().st_size, _expected_bytes(path)
    if size_bytes < expected_bytes:
        what = f"{file} is cut off: it has {size_bytes:,} bytes of {expected_bytes:,}"
        raise DatasetError(Fault(f"video {file}", what, recording.restore(file), tuple(episodes)))
    try:
        with closing(av.open(str(path))) as container:
            stream: Any = container.streams.video[0]
            rate, size = float(stream.average_rate or 0), (int(stream.height or 0), int(stream.width or 0))
            if indexed:
                times = np.sort([float(p.pts * p.time_base) for p in container.demux(stream) if p.pts is not None])
            else:
                begins = float((stream.start_time or 0) * (stream.time_base or 0))
                times = begins + np.arange(int(stream.frames or 0)) / (rate or 1.0)
            return _Video(times, rate, size)
    except (av.FFmpegError, IndexError) as error:
        reason = error_line(_reason(error, path), 120)
        what = f"{file} is not a readable video ({reason}; {size_bytes:,} bytes)"
        raise DatasetError(Fault(f"video {file}", what, recording.restore(file), tuple(episodes))) from None


def _expected_bytes(path: Path) -> int:
    """Return the bytes of an MP4 file by the lengths of its boxes (ISO/IEC 14496-12, 4.2); 0 for another file."""
    end, size_bytes = 0, path.stat().st_size
    with path.open("rb") as file:
        while end < size_bytes:
            file.seek(end)
            head = file.read(16)
            if len(head) < 8 or not (end or head[4:8] == b"ftyp"):
                return 0
            size = int.from_bytes(head[:4], "big")
            if size == 1:
                size = int.from_bytes(head[8:16], "big")
            if size < 8:  # 0: to the end of the file
                return end if size else size_bytes
            end += size
    return end


def _reason(error: Exception, path: Path) -> str:
    return str(getattr(error, "strerror", "") or error).replace(str(path), "")
