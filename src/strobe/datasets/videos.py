"""Faults of a dataset's videos: files, and the frames that an episode needs of them. Nothing is decoded."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from strobe.datasets.fault import Broken, Fault, off
from strobe.datasets.recording import INFO, Recording
from strobe.errors import in_a_line

_HALF = 0.5  # of a frame: further away the nearest frame is another one


@dataclass(frozen=True)
class _Video:
    """What a file says: the time of each frame in seconds, frames per second, height and width in pixels."""

    times: np.ndarray
    rate: float
    size: tuple[int, int]


def videos(recording: Recording, tolerance_s: float, until: float) -> Iterator[Fault]:
    """Faults of the videos, file by file.

    A file's header says how many frames it has and how many there are per second; only where an episode does not fit to
    that is the file's index of frames read.

    Args:
        tolerance_s: how far a frame may be from the time that it is wanted at, in seconds, as LeRobot is told.
        until: of `time.monotonic`; files that are not begun by then are not looked at.
    """
    for camera in recording.cameras:
        by_file: dict[str, list[int]] = {}
        for episode in recording.chosen:
            by_file.setdefault(recording.video_file(episode, camera), []).append(episode)
        for file, episodes in by_file.items():
            if time.monotonic() > until:
                return
            yield from _file(recording, camera, file, episodes, tolerance_s)


def _file(recording: Recording, camera: str, file: str, episodes: list[int], tolerance_s: float) -> Iterator[Fault]:
    try:
        video = _read(recording, file, episodes, indexed=False)
        found = list(_frames(recording, camera, file, video, episodes, tolerance_s))
        if found or not len(video.times):
            video = _read(recording, file, episodes, indexed=True)
            found = list(_frames(recording, camera, file, video, episodes, tolerance_s))
    except Broken as error:
        yield error.fault
        return
    shape = recording.features[camera].get("shape") or []
    size = tuple(sorted((int(side) for side in shape), reverse=True)[:2])
    if len(size) == 2 and video.size[0] and size != tuple(sorted(video.size, reverse=True)):
        (height, width), said = video.size, "×".join(str(side) for side in shape)
        what = f"{file} is {height}×{width} pixels, and {INFO} says {said}"
        yield Fault(f"size {camera}", what, f"correct the 'shape' of {camera} in {INFO}", stops=False)
    yield from found


def _frames(
    recording: Recording, camera: str, file: str, video: _Video, episodes: list[int], tolerance_s: float
) -> Iterator[Fault]:
    fps, times = recording.fps, video.times
    if not len(times):
        return
    if video.rate and abs(video.rate / fps - 1) > 0.01:
        what = f"{file} has {video.rate:.4g} frames per second, and {INFO} says {fps:g}"
        repair = f"encode it again at {fps:g} frames per second, or {recording.again(file)}"
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
        wanted = start + np.arange(length) / fps
        nearest = np.clip(np.searchsorted(times, wanted), 1, max(len(times) - 1, 1))
        nearest -= (nearest < len(times)) & (wanted - times[nearest - 1] < times[nearest % len(times)] - wanted)
        away = wanted - times[np.minimum(nearest, len(times) - 1)]
        missed = np.abs(away) >= tolerance_s
        frame = int(np.argmax(missed))
        place = f"episode {episode}, frame {frame if missed.any() else 0} of {camera}"
        if abs(moved) * fps > 0.01:
            # This is what is wrong, whatever frames are then missed.
            what = (
                f"{place} is {off(moved, fps)} too {'late' if moved > 0 else 'early'}: its from_timestamp is "
                f"{start:.6g} s, and in {file} the episode begins at {begins:.6g} s"
            )
            repair = f"set videos/{camera}/from_timestamp of the episode in meta/episodes to {begins:.6g}"
            repair += _nearest(moved, fps)
            yield Fault(f"moved {camera}", what, repair, (episode,), stops=bool(missed.any()))
        elif missed.any() and wanted[frame] > times[-1] + _HALF / fps:
            what = (
                f"{place} is not in {file}: that ends {off(wanted[-1] - times[-1], fps)} before the episode, "
                f"after {len(times):,} frames"
            )
            what += f" of {needed:,}" if needed > len(times) else ""
            yield Fault(f"short {file}", what, recording.again(file), (episode,))
        elif missed.any():
            what = f"{place} is {off(away[frame], fps)} off: it is wanted at {wanted[frame]:.6g} s of {file}"
            repair = recording.again(file) + _nearest(away[frame], fps)
            yield Fault(f"off {file}", what, repair, (episode,))


def undecodable(recording: Recording, tolerance_s: float, until: float) -> Iterator[Fault]:
    """Frames that cannot be decoded, though their file lists them; video by video, as far as there is time.

    Args:
        tolerance_s, until: as of `videos`.
    """
    import av

    for camera in recording.cameras:
        by_file: dict[str, list[int]] = {}
        for episode in recording.chosen:
            by_file.setdefault(recording.video_file(episode, camera), []).append(episode)
        for file, episodes in by_file.items():
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
                # What is encoded after it may rest on it.
                behind = [episode for episode in episodes if ends[episode] > reached] or episodes
                reason = in_a_line(_reason(error, recording.root / file), 120)
                what = f"{file} is damaged after {len(times):,} frames, in episode {behind[0]} ({reason})"
                yield Fault(f"damaged {file}", what, recording.again(file), tuple(behind))
                continue
            if not times:
                what = f"no frame of {file} can be decoded"
                yield Fault(f"damaged {file}", what, recording.again(file), tuple(episodes))
            yield from _frames(recording, camera, file, _Video(np.sort(times), 0.0, (0, 0)), episodes, tolerance_s)


def _begins(recording: Recording, camera: str, file: str, episode: int) -> float:
    """Where an episode begins in its file, in seconds, as LeRobot writes them: where the one before ends."""
    if episode - 1 not in recording.episodes or recording.video_file(episode - 1, camera) != file:
        return 0.0
    return float(recording.episodes[episode - 1][f"videos/{camera}/to_timestamp"])


def _nearest(away: float, fps: float) -> str:
    if abs(away) * fps >= _HALF:
        return ""
    return f", or let lerobot-train take the nearest frame (--tolerance_s={abs(away) * 1.05 + 1e-4:.2g})"


def _read(recording: Recording, file: str, episodes: list[int], *, indexed: bool) -> _Video:
    """The file's header, or with ``indexed`` the time of each of its frames.

    Raises:
        Broken: it is missing, or no video.
    """
    import av

    path = recording.root / file
    if not path.is_file():
        raise Broken(Fault(f"video {file}", f"{file} is missing", recording.again(file), tuple(episodes)))
    there, whole = path.stat().st_size, _whole(path)
    if there < whole:
        what = f"{file} is cut off: it has {there:,} bytes of {whole:,}"
        raise Broken(Fault(f"video {file}", what, recording.again(file), tuple(episodes)))
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
        reason = in_a_line(_reason(error, path), 120)
        what = f"{file} is no video that can be read ({reason}; {there:,} bytes)"
        raise Broken(Fault(f"video {file}", what, recording.again(file), tuple(episodes))) from None


def _whole(path: Path) -> int:
    """How many bytes an MP4 file has by the lengths of its boxes (ISO/IEC 14496-12, 4.2); 0 where it is none."""
    end, there = 0, path.stat().st_size
    with path.open("rb") as file:
        while end < there:
            file.seek(end)
            head = file.read(16)
            if len(head) < 8 or not (end or head[4:8] == b"ftyp"):
                return 0
            size = int.from_bytes(head[:4], "big")
            if size == 1:
                size = int.from_bytes(head[8:16], "big")
            if size < 8:  # 0: to the end of the file
                return end if size else there
            end += size
    return end


def _reason(error: Exception, path: Path) -> str:
    return str(getattr(error, "strerror", "") or error).replace(str(path), "")
