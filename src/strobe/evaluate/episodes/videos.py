"""Videos of the first episodes, in the folder ``videos`` of their run."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from strobe.core.errors import in_words
from strobe.core.runs import store
from strobe.evaluate.episode_log import EpisodeLine
from strobe.evaluate.episodes.play import Candidate, Episodes, Plan
from strobe.evaluate.results import Video
from strobe.simulators.film import Film, encode, still

FOLDER = "videos"
POSTER = ".webp"
Keep = Callable[[str, bytes], Any]


class WatchablePlayer(Protocol):
    """A player whose episodes can be watched: `strobe.evaluate.episodes.stage.LocalEpisodeRunner`."""

    watch: Callable[[Any], None] | None

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
                file = next((file for file in (f"{stem}.mp4", f"{stem}.anim.webp") if self._exists(file)), None)
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
                        poster=f"{FOLDER}/{stem}{POSTER}" if self._exists(f"{stem}{POSTER}") else None,
                    )
                )
        return videos

    def _exists(self, name: str) -> bool:
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
                trouble = trouble or in_words(error)
        self._note(trouble)

    def write(self, files: Mapping[str, bytes]) -> None:
        """Write files that were made on another machine into the run's folder; `notes` say why one is missing."""
        try:
            for name, content in files.items():
                self._write(name, content)
        except OSError as error:
            self._note(in_words(error))

    def _write(self, name: str, content: bytes) -> None:
        (self.folder / FOLDER).mkdir(exist_ok=True)
        store.replace(self.folder / name, content)

    def _note(self, trouble: str) -> None:
        note = f"videos: {trouble}"
        if trouble and note not in self.notes:
            self.notes.append(note)

    def _stem(self, variant: str, task: str, seed: int) -> str:
        """Return a file's name, beginning with places: two names may differ in what no file name may hold."""
        place = [candidate.name for candidate in self.plan.candidates].index(variant)
        words = f"{seed}-{self.plan.tasks.index(task)}-{place} {task} {variant}"
        return re.sub(r"[^a-z0-9.]+", "-", words.lower()).strip("-.")[:100]
