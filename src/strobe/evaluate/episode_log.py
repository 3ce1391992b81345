"""episodes.jsonl: each episode of an evaluation as one line, written as soon as it has ended.

The first line holds the request. A kill costs only the episode in progress: bytes after the last complete line are cut
off when the file is opened again, and the evaluation continues from there.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import BinaryIO

from pydantic import Field, ValidationError
from typing_extensions import Self

from strobe.core.errors import UserError, os_error_reason
from strobe.core.results.data import Data, Finite, optional
from strobe.core.untrusted import contents, parse_json
from strobe.evaluate.results import EpisodeTiming
from strobe.loops.results.motion import Motion

NAME = "episodes.jsonl"
MOST_BYTES = 2**28  # a line each, so that one episode at a time is in memory as JSON


class EvaluationRequest(Data):
    """The request of an evaluation. Evaluations with equal requests may share their episodes."""

    policy: str = Field(description="folder, Hub id or type of the policy")
    weights: str = Field(description="digest of a sample of the weights")
    settings: dict[str, object] = Field(description="the policy's config, without its location")
    environment: dict[str, object] = Field(description="LeRobot's EnvConfig")
    tasks: list[str]
    variants: dict[str, str] = Field(description="name → treatments as written; '' for the baseline")
    margin: Finite
    score: str = Field(default="success", description="what decides; of progress with the reward that is all of it")
    seed: int
    rename_map: dict[str, str] = Field(default_factory=dict)
    episodes: int = Field(description="number of episodes of each variant on each task; a resumed run may request more")
    threads: int | None = optional("torch's threads for an episode, which sums may depend on; None: not recorded")


class EpisodeLine(Data):
    """One episode of one variant, and its times."""

    variant: str
    task: str
    seed: int
    start: str = Field(description="digest of the first observation")
    success: bool
    reward: Finite = Field(description="sum over the control ticks")
    best_reward: Finite | None = optional("largest reward of one control tick; None: not recorded")
    ticks: int
    call_ms: list[Finite] = Field(description="time of each call of the policy that ran the model")
    policy_ms: Finite = Field(description="the policy's time over all ticks")
    step_ms: Finite = Field(description="the simulator's time over all ticks, without rendering")
    render_ms: Finite | None = Field(description="rendering time over all ticks; None if not seen")
    reset_ms: Finite
    seconds: Finite | None = optional("as in `strobe.simulators.results.Episode`")
    limit_s: Finite | None = optional("as in `strobe.simulators.results.Episode`")
    timing: EpisodeTiming | None = optional("timing, if the episode was played in real time")
    motion: Motion | None = optional("smoothness of the actions; None if unknown")
    drawn: int | None = optional("number of control ticks with a rendered observation; None: not seen")
    concurrent: int = Field(
        default=0, description="number of other processes that played episodes at the same time, on the same machine"
    )
    node: str = Field(default="", description="node of the cluster that played it; '' if it was played here")


Key = tuple[str, str, int]  # variant, task, seed


class EpisodeLog:
    """The file, open for further lines, and the episodes in it.

    Attributes:
        episodes: by variant, task and seed.
    """

    def __init__(self, path: Path, file: BinaryIO, episodes: dict[Key, EpisodeLine]) -> None:
        self.path, self.episodes = path, episodes
        self._file = file

    @classmethod
    def begin(cls, folder: Path, request: EvaluationRequest) -> Self:
        """Create the log in ``folder``. Raises OSError if it cannot be written."""
        path = folder / NAME
        log = cls(path, _open_locked(path), {})
        log._write({"asked": request.model_dump(mode="json")})
        return log

    @classmethod
    def resume(cls, folder: Path, request: EvaluationRequest) -> Self:
        """Reopen the log in ``folder``.

        Raises:
            UserError: it is missing, was started with other flags, or is corrupt.
        """
        path = folder / NAME
        if not path.exists():
            read(path)  # raises the error
        try:
            file = _open_locked(path)
        except OSError as error:
            raise UserError(f"cannot write {path}: {os_error_reason(error)}") from None
        try:
            before, episodes, end = read(path)
            _same(before, request, folder)
            file.truncate(end)
            log = cls(path, file, episodes)
            if before != request:
                log._write({"asked": request.model_dump(mode="json")})
        except OSError as error:
            file.close()
            raise UserError(f"cannot write {path}: {os_error_reason(error)}") from None
        except UserError:
            file.close()
            raise
        return log

    def add(self, episode: EpisodeLine) -> None:
        """Write an episode at once, so that a kill cannot lose it. Raises OSError, such as on a full disk."""
        self._write(episode.model_dump(mode="json"))
        self.episodes[episode.variant, episode.task, episode.seed] = episode

    def close(self) -> None:
        """Close the file; `episodes` stays."""
        self._file.close()

    def _write(self, line: dict[str, object]) -> None:
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def _open_locked(path: Path) -> BinaryIO:
    """Open the file for further lines, locked to this process until it is closed or the process ends.

    Raises:
        UserError: another process has it open.
        OSError: it cannot be written.
    """
    file = path.open("ab")
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise UserError(f"another strobe evaluate is running in {path.parent}: wait for it, or end it") from None
    except (ImportError, OSError):  # Windows, or a file system without locks
        pass
    return file


def read(path: Path) -> tuple[EvaluationRequest, dict[Key, EpisodeLine], int]:
    """Read an evaluation that is to be resumed, see `parse`.

    Raises:
        UserError: there is no such file, or a line is not valid.
    """
    try:
        return parse(contents(path, MOST_BYTES))
    except OSError as error:
        raise UserError(f"no evaluation to resume at {path.parent}: {path.name}: {os_error_reason(error)}") from None
    except UserError as error:
        raise UserError(f"{path}: {error}; run again without --resume") from None


def parse(content: bytes) -> tuple[EvaluationRequest, dict[Key, EpisodeLine], int]:
    """Return the request, the episodes, and the offset in bytes at which the last complete line ends.

    Raises:
        UserError: a line is not valid. Its message begins with the line, so that the caller can name the file.
    """
    end = content.rfind(b"\n") + 1
    request: EvaluationRequest | None = None
    episodes: dict[Key, EpisodeLine] = {}
    for number, line in enumerate(content[:end].splitlines(), 1):
        try:
            content_of_line = parse_json(line)
            if isinstance(content_of_line, dict) and "asked" in content_of_line:
                request = EvaluationRequest.model_validate(content_of_line["asked"])
                continue
            episode = EpisodeLine.model_validate(content_of_line)
        except (ValidationError, ValueError, RecursionError):
            raise UserError(f"line {number} is not a valid episode") from None
        episodes.setdefault((episode.variant, episode.task, episode.seed), episode)
    if request is None:
        raise UserError("line 1 is not a valid request")
    return request, episodes, end


def _same(before: EvaluationRequest, now: EvaluationRequest, folder: Path) -> None:
    for name in EvaluationRequest.model_fields:
        logged, requested = getattr(before, name), getattr(now, name)
        if logged == requested or (name == "episodes" and logged < requested) or (name == "threads" and logged is None):
            continue
        if name == "threads":
            difference = f"that run used {logged} torch threads, this one {requested}; pass --threads={logged}"
        elif name == "weights":
            difference = "the policy has other weights now"
        elif isinstance(logged, dict):
            changed = [key for key in {**logged, **requested} if logged.get(key) != requested.get(key)]
            difference = f"{name}: another {', '.join(changed)}"
        else:
            difference = f"{name} {logged} there, {requested} here"
        raise UserError(
            f"--resume={folder} began with other flags: {difference[:200]}; give the same flags, or start a new run"
        )
