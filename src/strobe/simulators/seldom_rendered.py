"""Draw only those observations that the policy looks at: the others keep the last image.

Drawing is most of an episode's time where there is no GPU (LeRobot's MetaWorld draws 480 × 480 pixels at every control
tick), and a policy that executes 8 actions of a chunk looks at one image in 8 ticks. The physics of the simulators here
do not depend on drawing, so that actions and outcome stay the same to the bit.

It is done only where all of this is known: the policy looks at images in the calls of the model and nowhere else, and
the processors keep no images (`strobe.simulators.camera_use`); the simulator draws nothing but observations in a tick.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol

from strobe.simulators import libero
from strobe.timeline.probe import Hook

Rendering = Literal["needed", "always"]

STEP, DRAW = "step", "draw"

# Simulators that draw once in a tick, for the observation. MetaWorld's draws again when an episode has ended, for a
# reset whose observation LeRobot drops.
_ONLY_OBSERVATIONS = ("gym_pusht.", "lerobot.envs.metaworld")


class Looking(Protocol):
    """Tells which observations are looked at."""

    def due(self) -> bool:
        """Whether the observation that comes next is; asked before the simulator's step."""
        ...


class SeldomRendered:
    """Puts the last image in the place of those that nobody looks at, while it is attached.

    Attributes:
        drawn: control ticks whose observation was drawn; 0 until one is.
        kept: how often the last image was put in the place of one.
        seen: whether the simulator was seen to draw.
    """

    def __init__(self, looks: Looking | None) -> None:
        """``looks``: None to draw every time."""
        self._looks = looks
        self.drawn, self.kept, self.seen = 0, 0, False
        self._due, self._drew, self._stepping = True, False, False
        self._known: set[int] = set()
        self._last: dict[str, Any] = {}

    def hooks(self, vector: Any) -> list[Hook]:
        """Where `around` goes."""
        places = list(_places(vector))
        known = [owner for inside, owner, _ in places if type(inside).__module__.startswith(_ONLY_OBSERVATIONS)]
        self._known = {id(owner) for owner in known}
        return [Hook(vector, "step", STEP), *(Hook(owner, method, DRAW) for _, owner, method in places)]

    def around(self, inner: Callable[..., Any], hook: Hook, _takes_self: bool) -> Callable[..., Any]:
        """Return the wrapper of a hook's callable."""
        return self._step(inner) if hook.name == STEP else self._draw(inner, hook.owner)

    def _step(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(inner)
        def step(*args: Any, **kwargs: Any) -> Any:
            self._due = self._looks is None or self._looks.due()
            self._drew, self._stepping = False, True
            try:
                return inner(*args, **kwargs)
            finally:
                self._stepping = False
                self.drawn += self._drew

        return step

    def _draw(self, inner: Callable[..., Any], owner: Any) -> Callable[..., Any]:
        may_keep = self._looks is not None and id(owner) in self._known

        @functools.wraps(inner)
        def draw(*args: Any, **kwargs: Any) -> Any:
            self.seen = True
            key = repr((args, kwargs))
            # Outside of a tick it is the first observation, or a video: those are drawn.
            if may_keep and self._stepping and key in self._last and (self._drew or not self._due):
                self.kept += not self._drew
                return self._last[key]
            self._drew = self._stepping
            self._last[key] = image = inner(*args, **kwargs)
            return image

        return draw


def drawing(vector: Any, name: str) -> list[Hook]:
    """Hooks called ``name`` where the simulator of ``vector`` draws, as far as that is known."""
    return [Hook(owner, method, name) for _, owner, method in _places(vector)]


def _places(vector: Any) -> Iterator[tuple[Any, Any, str]]:
    """Yield for each environment itself, without its wrappers, and the object and its method that draw."""
    for env in getattr(vector, "envs", ()):
        inside = getattr(env, "unwrapped", env)
        if callable(start := getattr(inside, "_ensure_env", None)):
            start()  # what the first reset would do: LeRobot starts some simulators as late as that
        if (cameras := libero.simulation(inside)) is not None:
            yield inside, cameras, "render"
            continue
        # gym-pusht draws in _render, also for observations; LeRobot's MetaWorld asks the simulator that it holds.
        for owner, method in ((inside, "_render"), (getattr(inside, "_env", None), "render"), (inside, "render")):
            if callable(getattr(owner, method, None)):
                yield inside, owner, method
                break
