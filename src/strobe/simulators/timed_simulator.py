"""A simulator whose episodes also say where their time went: the policy's calls, the simulator, its rendering."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from strobe.simulators.seldom_rendered import drawing
from strobe.simulators.simulator import Played, Simulator
from strobe.timeline.clock import synchronise
from strobe.timeline.probe import Attached, Hook

RESET, STEP, RENDER, SELECT, CHUNK = "reset", "step", "rendering", "policy", "chunk"


@dataclass
class EpisodeTimes:
    """Times of one episode, in milliseconds.

    Attributes:
        call_ms: of each ``select_action`` in which the model ran. In the other ticks it takes a queued action.
        call_ticks: the ticks of these calls, from 0.
        policy_ms: of ``select_action`` in all ticks together, and ``ticks``, how many.
        step_ms: of the simulator in all ticks together, without the rendering that it asked for.
        render_ms: of that rendering; None where it was not seen.
        reset_ms: of the reset, with the rendering of the first observation.
    """

    call_ms: list[float] = field(default_factory=list)
    call_ticks: list[int] = field(default_factory=list)
    policy_ms: float = 0.0
    step_ms: float = 0.0
    render_ms: float | None = None
    reset_ms: float = 0.0


class TimedSimulator(Simulator):
    """A `Simulator` that times what it plays.

    Calls of the policy wait for its device, before and after, so that they hold the policy's work and nothing else.
    """

    def play_timed(self, task: str, seed: int) -> tuple[Played, EpisodeTimes]:
        """`play`, and the times of the episode. Raises UserError as it does."""
        vector, policy = self._vectors[task], self.actor.policy
        stopwatch = _Stopwatch(self.actor.device)
        # SmolVLA's and X-VLA's select_action do not go through the method that other policies' go through.
        chunk = "_get_action_chunk" if hasattr(policy, "_get_action_chunk") else "predict_action_chunk"
        hooks = [Hook(vector, "reset", RESET), Hook(vector, "step", STEP), Hook(policy, "select_action", SELECT)]
        with Attached([*hooks, Hook(policy, chunk, CHUNK), *drawing(vector, RENDER)], stopwatch.around):
            played = self.play(task, seed)
        return played, stopwatch.times()


class _Stopwatch:
    """Adds up the time of each hook of one episode."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._totals: dict[str, float] = {}
        self._selected: list[tuple[float, bool]] = []  # of each select_action, and whether the model ran in it
        self._ran = False
        self._inside = ""

    def around(self, inner: Callable[..., Any], hook: Hook, _takes_self: bool) -> Callable[..., Any]:
        """Return the stopwatch's wrapper of a hook's callable."""
        name = hook.name

        @functools.wraps(inner)
        def call(*args: Any, **kwargs: Any) -> Any:
            if name == CHUNK:
                self._ran = True
                return inner(*args, **kwargs)
            if name == SELECT:
                synchronise(self._device)
            elif name != RENDER:
                self._inside = name
            begun = time.perf_counter()
            try:
                result = inner(*args, **kwargs)
                if name == SELECT:
                    synchronise(self._device)
                return result
            finally:
                self._note(name, 1e3 * (time.perf_counter() - begun))
                if name in (RESET, STEP):
                    self._inside = ""  # who draws between two ticks is not the simulator

        return call

    def _note(self, name: str, ms: float) -> None:
        if name == SELECT:
            self._selected.append((ms, self._ran))
            self._ran = False
        if name == RENDER and self._inside != STEP:
            return  # of the reset, whose time holds it
        self._totals[name] = self._totals.get(name, 0.0) + ms

    def times(self) -> EpisodeTimes:
        rendered = self._totals.get(RENDER)
        told = any(ran for _, ran in self._selected)  # else no method that makes a chunk was seen: each is a call
        return EpisodeTimes(
            call_ms=[ms for ms, ran in self._selected if ran or not told],
            call_ticks=[tick for tick, (_, ran) in enumerate(self._selected) if ran or not told],
            policy_ms=self._totals.get(SELECT, 0.0),
            step_ms=max(0.0, self._totals.get(STEP, 0.0) - (rendered or 0.0)),
            render_ms=rendered,
            reset_ms=self._totals.get(RESET, 0.0),
        )
