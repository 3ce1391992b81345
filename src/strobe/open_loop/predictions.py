"""Predict a chunk on each recorded frame, with the present wiring and with each change of the observation.

All predictions on a frame are made with the same noise.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from strobe.core.errors import UserError
from strobe.core.measure.sampling import Progress
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.open_loop.changes import Observed, elsewhere
from strobe.open_loop.errors import FEWEST_EPISODES

if TYPE_CHECKING:
    from strobe.core.subjects.subject import Observation

Array = NDArray[np.float64]
MOST_FRAMES = 240
AGAIN = 8  # frames on which a policy is called with other noise too
FEWEST_FRAMES = 2 * FEWEST_EPISODES  # fewest frames on which changes must be affordable


@dataclass
class Predictions:
    """Chunks predicted on frames, each array (frames, actions, action dim), in the action's own units.

    Args:
        frames: numbers of the frames in the data set.
        wired: as the policy is wired.
        changed: name of an `Observed` → with that change.
        elsewhere: input → with this input of another frame; NaN for the first frame.
        again: with other noise; NaN behind the first `AGAIN` frames. None if nothing was predicted.
        failed: name of a change or an input → why its calls failed.
        omitted: why changes of the observation were left out, and which, in words.
        stopped: whether Ctrl-C ended it.
        call_s: of a call as the policy is wired: median of those after the first; None without any.
    """

    frames: list[int] = field(default_factory=list)
    wired: Array = field(default_factory=lambda: np.zeros((0, 0, 0)))
    changed: dict[str, Array] = field(default_factory=dict)
    elsewhere: dict[str, Array] = field(default_factory=dict)
    again: Array | None = None
    failed: dict[str, str] = field(default_factory=dict)
    omitted: str | None = None
    stopped: bool = False
    seconds: float = 0.0
    call_s: float | None = None


def predict(
    subject: PolicySubject,
    frames: Sequence[int],
    observed: Sequence[Observed],
    inputs: Sequence[str],
    seconds: float,
    progress: Callable[[Progress], None],
    begun: float | None = None,
) -> Predictions:
    """Predict on ``frames`` in their order until ``seconds`` are over; Ctrl-C ends it, and keeps what is there.

    Args:
        observed: changes of the observation.
        inputs: those of which each is taken from another frame, to see whether the policy looks at it.
        begun: when ``seconds`` began, of `time.monotonic`; None for now.

    Raises:
        UserError: the policy cannot predict on the first frame in its wiring.
    """
    work = _Work(subject, list(observed), list(inputs), seconds, begun)
    done = 0
    try:
        for number, frame in enumerate(frames):
            if number and work.elapsed_s > seconds:
                break
            work.predict_frame(frame)
            done = number + 1
            if number == 0:
                work.afford()
            rate = work.elapsed_s / done
            remaining = min(max(seconds - work.elapsed_s, 0.0), rate * (len(frames) - done))
            progress(Progress(done, len(frames), work.elapsed_s, remaining, "frames"))
    except KeyboardInterrupt:
        return work.result(done, stopped=True)
    return work.result(done, stopped=False)


class _Work:
    """The predictions so far: for each frame name → chunk, with 'wired' for the policy in its own wiring."""

    def __init__(
        self,
        subject: PolicySubject,
        observed: list[Observed],
        inputs: list[str],
        seconds: float,
        begun: float | None,
    ) -> None:
        self._subject, self._observed, self._inputs, self._seconds = subject, observed, inputs, seconds
        self._begun = time.monotonic() if begun is None else begun
        self._calls: list[float] = []  # seconds of each, as the policy is wired
        self._frames: list[int] = []
        self._chunks: list[dict[str, Array]] = []
        self._failed: dict[str, str] = {}
        self._omitted: str | None = None
        self._previous: Observation | None = None

    @property
    def elapsed_s(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._begun

    def predict_frame(self, frame: int) -> None:
        """Predict on a frame in all ways."""
        frames = self._subject.inputs.frames
        assert frames is not None
        seen = frames.observation(frame)
        if not self._chunks:  # the first call warms up
            self._predict_actions(seen, frame)
        began = time.monotonic()
        chunks = {"wired": self._predict_actions(seen, frame)}
        self._calls.append(time.monotonic() - began)
        if len(self._chunks) < AGAIN:
            chunks["again"] = self._predict_actions(seen, frame + AGAIN)
        for change in self._observed:
            self._try(chunks, f"changed {change.name}", lambda change=change: change.change(dict(seen)), frame)
        if self._previous is not None:
            other = self._previous
            for name in self._inputs:
                self._try(chunks, f"elsewhere {name}", lambda name=name: elsewhere(name, seen, other), frame)
        self._previous = seen
        self._frames.append(frame)
        self._chunks.append(chunks)

    def afford(self) -> None:
        """Leave out changes for which the time is too short."""
        remaining = self._seconds - self.elapsed_s
        for extra in (True, False):
            calls = 1 + len(self._observed) + len(self._inputs)
            needed = self._calls[0] * calls * FEWEST_FRAMES
            if needed <= remaining or not self._observed:
                return
            names = "pairs of the state's dimensions" if extra else "changes of the inputs"
            self._omitted = (
                f"{names} need about {self.elapsed_s + needed:.0f} s: give --seconds={self.elapsed_s + needed:.0f}"
            )
            self._observed = [change for change in self._observed if extra and not change.extra]
        self._inputs = []

    def result(self, done: int, *, stopped: bool) -> Predictions:
        """Return what was predicted on the first ``done`` frames."""
        chunks = self._chunks[:done]
        made = Predictions(
            self._frames[:done], failed=self._failed, omitted=self._omitted, stopped=stopped, seconds=self.elapsed_s,
            call_s=statistics.median(self._calls) if self._calls else None,
        )  # fmt: skip
        if not chunks:
            return made
        made.wired = np.stack([each["wired"] for each in chunks])
        empty = np.full(made.wired.shape[1:], np.nan)
        made.again = np.stack([each.get("again", empty) for each in chunks])
        judged = {f"changed {change.name}" for change in self._observed} | {
            f"elsewhere {name}" for name in self._inputs
        }
        for name in sorted(judged & {name for each in chunks for name in each}):
            kind, _, what = name.partition(" ")
            values = np.stack([each.get(name, empty) for each in chunks])
            (made.changed if kind == "changed" else made.elsewhere)[what] = values
        return made

    def _predict_actions(self, seen: Observation, frame: int) -> Array:
        return self._subject.act(seen, self._subject.seed + frame)[0].double().cpu().numpy()

    def _try(self, chunks: dict[str, Array], name: str, make: Callable[[], dict[str, object]], frame: int) -> None:
        what = name.partition(" ")[2]
        if what in self._failed:
            return
        try:
            predicted = self._predict_actions(make(), frame)
            if predicted.shape != chunks["wired"].shape:
                raise UserError("the policy returns a chunk of another size")
            chunks[name] = predicted
        except Exception as error:  # such as a camera of another size: only this change is not judged
            lines = str(error).strip().splitlines() or [type(error).__name__]
            self._failed[what] = lines[0][:120]
