"""Observations of a rollout on their way to disk, and back: what the robot saw and felt at each tick.

A folder of plain files, written as the robot runs:

    index.jsonl     one line of JSON for each tick that was kept, in the order of time:
                      t       start of the tick, in nanoseconds: the same number as in its event ("tick", t)
                      state   the observation's numbers by their names, such as "shoulder_pan.pos"; strings too
                      frames  by camera [offset, bytes]: where in the camera's file its frame lies. A frame that the
                              loop read again (the same array) is stored once and named again
                      missed  arrays that could not be kept, by name with the reason; left out where there are none
    <camera>.mjpeg  the camera's frames, JPEGs of quality 95 one after another, as video players read them. Frames that
                    are no three bytes per pixel (depth) are PNGs, in <camera>.pngs

A line is written after its frames, so all that a line names is there, whatever ended the run. A last line that was cut
off is left out. Numbers and frames are those that the robot gave, before LeRobot's observation processor.

Writing takes a core about 4 ms for each new frame of 640x480, on a thread of its own. The loop only appends a reference
to a deque of fixed length; where the thread falls behind, the oldest are dropped. A tick without a line was dropped.
"""

from __future__ import annotations

import json
import re
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from strobe.core.errors import UserError, os_error_reason
from strobe.core.untrusted import JsonObject, contents, parse_json

INDEX = "index.jsonl"
MOST_INDEX, MOST_FRAME = 2**28, 2**26  # bytes that are read: of the index, and of a frame
MOST_HELD = 16  # observations in memory: 30 MB with two cameras of 640x480
EVERY_S = 0.01  # interval between two looks for new ones

Observation = Mapping[str, Any]


class Keeper:
    """Writes observations into ``folder``.

    Attributes:
        append: takes ``(nanoseconds, observation)`` from the loop; never waits.
        kept: observations that were written.
        failed: why writing ended early, in words.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kept = 0
        self.failed: str | None = None
        self._held: deque[tuple[int, Observation]] = deque(maxlen=MOST_HELD)
        self.append = self._held.append
        self._latest: dict[str, tuple[object, list[int]]] = {}  # by camera: its latest array, and where that lies
        self._files: dict[str, IO[bytes]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write, name="strobe-observations", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Write the remaining observations, and end."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._held.clear()
        self._latest.clear()

    def _write(self) -> None:
        try:
            while not self._held:
                if self._ended.wait(EVERY_S) and not self._held:
                    return
            self.folder.mkdir(parents=True)
            with (self.folder / INDEX).open("x") as index:
                ended = False
                while not ended:
                    ended = self._ended.wait(EVERY_S)
                    while self._held:
                        at, observation = self._held.popleft()
                        index.write(f"{json.dumps(self._line(at, observation))}\n")
                        index.flush()
                        self.kept += 1
        except Exception as error:  # the robot runs on without it
            self.failed = os_error_reason(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        finally:
            for file in self._files.values():
                file.close()

    def _line(self, at: int, observation: Observation) -> dict[str, object]:
        line: JsonObject = {"t": at, "state": {}, "frames": {}}
        for name, value in observation.items():
            if getattr(value, "ndim", 0) >= 2:
                try:
                    line["frames"][name] = self._frame(name, value)
                except ValueError as error:
                    line.setdefault("missed", {})[name] = str(error)
            elif isinstance(value, str):
                line["state"][name] = value
            else:
                line["state"][name] = np.asarray(value).tolist()
        for file in self._files.values():
            file.flush()
        return line

    def _frame(self, name: str, frame: object) -> list[int]:
        latest, place = self._latest.get(name, (None, [0, 0]))
        if frame is latest:
            return place
        coded, kind = encode_frame(np.asarray(frame))
        file = self._files.get(name)
        if file is None:
            file = self._files[name] = (self.folder / f"{_slug(name)}.{kind}").open("xb")
        place = [file.tell(), len(coded)]
        file.write(coded)
        self._latest[name] = (frame, place)
        return place


def encode_frame(frame: np.ndarray) -> tuple[bytes, str]:
    """Encode a frame (height, width, channels) as a JPEG, or as a PNG where that would lose more than a little.

    Returns:
        Its bytes, and 'mjpeg' or 'pngs'. Raises ValueError for a frame that is neither.
    """
    colour = frame.ndim == 3 and frame.shape[2] == 3 and frame.dtype == np.uint8
    if colour:
        return jpeg(frame), "mjpeg"
    if frame.dtype not in (np.uint8, np.uint16) or (frame.ndim > 2 and frame.shape[2] != 1):
        raise ValueError(f"no picture: {frame.dtype} of the shape {frame.shape}")
    import cv2

    return cv2.imencode(".png", frame)[1].tobytes(), "pngs"


class Observations:
    """The observations in a folder that a `Keeper` wrote.

    Attributes:
        times: starts of the ticks that were kept, in nanoseconds.

    Raises:
        UserError: there are none.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lines: list[JsonObject] = []
        try:
            for text in contents(folder / INDEX, MOST_INDEX).splitlines():
                line = parse_json(text)
                if not _is_line(line):
                    raise UserError(f"{folder / INDEX} is damaged: line {len(self._lines) + 1} is not an observation")
                self._lines.append(line)
        except OSError as error:
            raise UserError(f"no observations in {folder}: {os_error_reason(error)}") from None
        except ValueError:
            pass  # cut off
        if not self._lines:
            raise UserError(f"no observations in {folder}: it contains none")
        self.times = [line["t"] for line in self._lines]
        self._pictures: dict[tuple[str, int], np.ndarray] = {}  # the latest of each camera

    def latest_observation(self, moment: int) -> tuple[dict[str, Any], int]:
        """Return the latest observation at or before ``moment`` (nanoseconds), else the first; and its time.

        Raises:
            UserError: a frame of it cannot be read.
        """
        place = max(0, bisect_right(self.times, moment) - 1)
        line = self._lines[place]
        state = line["state"].items()
        observation: dict[str, Any] = {name: np.asarray(one) if isinstance(one, list) else one for name, one in state}
        for camera, (offset, size) in line["frames"].items():
            observation[camera] = self._picture(camera, offset, size)
        return observation, line["t"]

    def iter_encoded(self) -> Iterator[tuple[int, dict[str, object], dict[str, tuple[bytes, str]]]]:
        """Yield each observation: its time, its numbers, and by camera its new frame's bytes with their media type.

        Raises:
            UserError: a frame cannot be read.
        """
        shown: dict[str, int] = {}
        for line in self._lines:
            frames = {}
            for camera, (offset, size) in line["frames"].items():
                if shown.get(camera) != offset:
                    shown[camera] = offset
                    file, data = self._bytes(camera, offset, size)
                    frames[camera] = data, "image/jpeg" if file.suffix == ".mjpeg" else "image/png"
            yield line["t"], line["state"], frames

    def _bytes(self, camera: str, offset: int, size: int) -> tuple[Path, bytes]:
        file = next(iter(sorted(self.folder.glob(f"{_slug(camera)}.*"))), self.folder / f"{_slug(camera)}.mjpeg")
        try:
            with file.open("rb") as opened:
                opened.seek(offset)
                return file, opened.read(size)
        except OSError as error:
            raise UserError(f"cannot read {file}: {os_error_reason(error)}") from None

    def _picture(self, camera: str, offset: int, size: int) -> np.ndarray:
        import cv2

        if (camera, offset) not in self._pictures:
            file, coded = self._bytes(camera, offset, size)
            picture = cv2.imdecode(np.frombuffer(coded, np.uint8), cv2.IMREAD_UNCHANGED) if len(coded) == size else None
            if picture is None:
                raise UserError(f"{file} is damaged at byte {offset:,}: no picture of {camera}")
            if picture.ndim == 3:
                picture = cv2.cvtColor(picture, cv2.COLOR_BGR2RGB)
            self._pictures = {key: picture for key, picture in self._pictures.items() if key[0] != camera}
            self._pictures[camera, offset] = picture
        return self._pictures[camera, offset]


def _is_line(line: object) -> bool:
    """Return whether ``line`` has the fields of an observation; a frame has fewer than `MOST_FRAME` bytes."""
    if (
        not isinstance(line, dict)
        or not isinstance(line.get("state"), dict)
        or not isinstance(line.get("frames"), dict)
    ):
        return False
    places = [[line.get("t"), 0], *line["frames"].values()]
    if not all(isinstance(place, list) and len(place) == 2 for place in places):
        return False
    whole = all(type(number) is int and 0 <= number < 2**63 for place in places for number in place)
    return whole and all(size < MOST_FRAME for _, size in places)


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name)


T = TypeVar("T")
QUALITY = 95  # JPEG's quality


def jpeg(pixels: np.ndarray) -> bytes:
    """Return the JPEG of an image of (height, width, colours), red first, in uint8."""
    import cv2

    if pixels.shape[2] == 3:
        pixels = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
    done, coded = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
    return coded.tobytes() if done else pixels.tobytes()


def time_repeated(work: Callable[[], T], times: int) -> tuple[T, int]:
    """Return what ``work`` returns, and the median nanoseconds of so many calls, one or more."""
    took: list[int] = []
    while True:
        begun = time.perf_counter_ns()
        made = work()
        took.append(time.perf_counter_ns() - begun)
        if len(took) >= times:
            return made, sorted(took)[len(took) // 2]
