"""Videos of the first episodes, in the folder ``videos`` of their run."""

from __future__ import annotations

import io
import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from strobe.core.errors import error_line, os_error_reason
from strobe.core.runs import store
from strobe.evaluate.episode_log import EpisodeLine
from strobe.evaluate.episodes.play import Candidate, Episodes, Plan
from strobe.evaluate.results import Video
from strobe.lerobot.quiet import muted_stderr
from strobe.simulators.simulator import Watch

RATE, WIDTH = 10.0, 320  # frames per second of simulated time, and pixels: enough to see what happens
MOST = 600  # frames in memory; a longer episode gets fewer per second


class Film:
    """A `render_callback` of lerobot-eval's rollout: called after the reset and after each control tick.

    It draws by the environment's own `render`, at most `RATE` frames per second of simulated time. A simulator that
    cannot draw ends the film, not the episode.

    Args:
        fps: control ticks per second of simulated time.

    Attributes:
        frames: (height, width, 3) each, uint8, both even, at most `WIDTH` wide.
        trouble: why frames are missing from some tick on.
    """

    def __init__(self, fps: float) -> None:
        self.fps = fps
        self.frames: list[np.ndarray] = []
        self.trouble: str | None = None
        self._stride, self._ticks = max(1, math.ceil(fps / RATE - 1e-9)), 0
        self._last = 0  # tick of the last frame

    @property
    def rate(self) -> float:
        """Frames per second of simulated time."""
        return self.fps / self._stride

    def __call__(self, vector: object) -> None:
        """Take a frame of the vector's first environment, if one is due."""
        tick, self._ticks = self._ticks, self._ticks + 1
        if self.trouble or tick % self._stride:
            return
        try:
            self.frames.append(shrunk(_render(vector)))
        except Exception as error:  # whatever a simulator raises
            self.trouble = f"{type(error).__name__}: {error_line(error, 200)}"
            return
        self._last = tick
        if len(self.frames) >= MOST:
            self.frames, self._stride = self.frames[::2], 2 * self._stride

    def cut(self, ticks: int) -> None:
        """Drop the frame after the last of ``ticks``: some simulators have begun the next episode by then."""
        if self._last >= ticks and len(self.frames) > 1:
            self.frames.pop()


def shrunk(image: object) -> np.ndarray:
    """Return ``image`` as RGB of at most `WIDTH` pixels in width, with even sides as H.264 wants them.

    Raises:
        ValueError: ``image`` is not an image, such as None.
    """
    from PIL import Image

    frame = np.ascontiguousarray(image)
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3 or min(frame.shape) < 2:
        raise ValueError(f"no image of 8-bit RGB: {frame.dtype} {frame.shape}")
    height, width = frame.shape[:2]
    scale = min(1.0, WIDTH / width)
    size = [max(2, 2 * round(side * scale / 2)) for side in (width, height)]
    return np.asarray(Image.fromarray(frame).resize((size[0], size[1]), Image.Resampling.BOX))


def _render(vector: Any) -> Any:
    envs = getattr(vector, "envs", None)
    return envs[0].render() if envs else vector.call("render")[0]


QUALITY = 28  # x264's constant rate factor: a few kilobytes per second of a simulator's flat colours


def encode(frames: Sequence[np.ndarray], rate: float) -> tuple[bytes, str]:
    """Return a video of ``frames`` and the suffix of its file name.

    The video is H.264 in MP4 if PyAV can encode that, else an animated WebP.

    Args:
        frames: (height, width, 3) each, uint8, all of one size with even sides; at least one.
        rate: frames per second.
    """
    try:
        with muted_stderr():  # also while the encoder is freed, which prints its figures only then
            return _mp4(frames, rate), ".mp4"
    except (ImportError, ValueError, OSError):  # no PyAV, or none with x264; FFmpeg's errors are these
        return _webp(frames, rate), ".webp"


def still(frame: np.ndarray) -> bytes:
    """Return one frame as WebP."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(frame).save(buffer, "WEBP", quality=70)
    return buffer.getvalue()


def _mp4(frames: Sequence[np.ndarray], rate: float) -> bytes:
    import av

    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=Fraction(rate).limit_denominator(1000))
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        stream.options = {"crf": str(QUALITY), "preset": "veryfast", "threads": "1"}
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    return buffer.getvalue()


def _webp(frames: Sequence[np.ndarray], rate: float) -> bytes:
    from PIL import Image

    first, *others = (Image.fromarray(frame) for frame in frames)
    buffer = io.BytesIO()
    first.save(buffer, "WEBP", save_all=True, append_images=others, duration=round(1e3 / rate), loop=0, quality=50)
    return buffer.getvalue()


FOLDER = "videos"
POSTER = ".webp"
Keep = Callable[[str, bytes], object]


class WatchablePlayer(Protocol):
    """A player whose episodes can be watched: `strobe.evaluate.episodes.runners.LocalEpisodeRunner`."""

    watch: Watch | None

    def play(self, candidate: Candidate, task: str, seed: int) -> EpisodeLine:
        """Play one episode. Raises UserError for whatever fails in it."""
        ...


class Filming:
    """Plays as ``player`` does, and keeps a video of each variant on the first ``starts`` of the plan.

    The file is there before the episode is in the log. Frames are drawn between control ticks and encoded after the
    episode, so that they are in none of its times. A video that cannot be made costs no episode.

    Args:
        folder: the run's.
        fps: control ticks per second of simulated time.
        keep: takes a file's path in the run's folder, and its content, instead of that folder; it may raise OSError.

    Attributes:
        notes: why a video is missing.
    """

    def __init__(
        self, player: WatchablePlayer, plan: Plan, starts: int, folder: Path, fps: float, keep: Keep | None = None
    ) -> None:
        self.player, self.plan, self.folder, self.fps = player, plan, folder, fps
        self._put = keep or self._write
        self._starts = set(itertools.islice(plan.starts(), starts))
        self.notes: list[str] = []

    def play(self, candidate: Candidate, task: str, seed: int) -> EpisodeLine:
        """Play one episode. Raises what the player raises."""
        if (task, seed) not in self._starts:
            return self.player.play(candidate, task, seed)
        film = Film(self.fps)
        self.player.watch = film
        try:
            line = self.player.play(candidate, task, seed)
        finally:
            self.player.watch = None
        film.cut(line.ticks)
        self._keep(film, line)
        return line

    def videos(self, episodes: Episodes) -> list[Video]:
        """Return the videos that are there, start by start, with what ``episodes`` say of their episodes."""
        videos = []
        for task, seed in itertools.islice(self.plan.starts(), len(self._starts)):
            for candidate in self.plan.candidates:
                name = candidate.name
                line, stem = episodes.get((name, task, seed)), self._stem(name, task, seed)
                file = next((file for file in (f"{stem}.mp4", f"{stem}.anim.webp") if self._has_file(file)), None)
                if line is None or file is None:
                    continue
                videos.append(
                    Video(
                        variant=name,
                        task=task,
                        seed=seed,
                        success=line.success,
                        seconds=line.ticks / self.fps,
                        file=f"{FOLDER}/{file}",
                        poster=f"{FOLDER}/{stem}{POSTER}" if self._has_file(f"{stem}{POSTER}") else None,
                    )
                )
        return videos

    def _has_file(self, name: str) -> bool:
        return (self.folder / FOLDER / name).is_file()

    def _keep(self, film: Film, line: EpisodeLine) -> None:
        trouble = film.trouble
        if film.frames:
            stem = self._stem(line.variant, line.task, line.seed)
            content, ending = encode(film.frames, film.rate)
            try:
                self._put(f"{FOLDER}/{stem}{POSTER}", still(film.frames[-1]))
                self._put(f"{FOLDER}/{stem}{ending if ending == '.mp4' else '.anim' + ending}", content)
            except OSError as error:
                trouble = trouble or os_error_reason(error)
        self._note(trouble)

    def write(self, files: Mapping[str, bytes]) -> None:
        """Write files that were made on another machine into the run's folder; `notes` say why one is missing."""
        try:
            for name, content in files.items():
                self._write(name, content)
        except OSError as error:
            self._note(os_error_reason(error))

    def _write(self, name: str, content: bytes) -> None:
        (self.folder / FOLDER).mkdir(exist_ok=True)
        store.replace(self.folder / name, content)

    def _note(self, trouble: str | None) -> None:
        note = f"videos: {trouble}"
        if trouble and note not in self.notes:
            self.notes.append(note)

    def _stem(self, variant: str, task: str, seed: int) -> str:
        place = [candidate.name for candidate in self.plan.candidates].index(variant)
        words = f"{seed}-{self.plan.tasks.index(task)}-{place} {task} {variant}"
        return re.sub(r"[^a-z0-9.]+", "-", words.lower()).strip("-.")[:100]
