"""A simulator that also times its episodes: the policy's calls, the simulator's steps, its rendering."""

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
        call_ms: each ``select_action`` in which the model ran. In the other ticks it takes a queued action.
        call_ticks: the ticks of these calls, from 0.
        policy_ms: ``select_action`` in all ticks together.
        step_ms: the simulator in all ticks together, without its rendering.
        render_ms: that rendering; None if it was not seen.
        reset_ms: the reset, with the rendering of the first observation.
    """

    call_ms: list[float] = field(default_factory=list)
    call_ticks: list[int] = field(default_factory=list)
    policy_ms: float = 0.0
    step_ms: float = 0.0
    render_ms: float | None = None
    reset_ms: float = 0.0


class TimedSimulator(Simulator):
    """A `Simulator` that times what it plays.

    Before and after each call of the policy it waits for the device, so that the time is the policy's alone.
    """

    def play_timed(self, task: str, seed: int) -> tuple[Played, EpisodeTimes]:
        """Play an episode as `play` does, and return it with its times. Raises UserError as `play` does."""
        vector, policy = self._vectors[task], self.actor.policy
        stopwatch = _Stopwatch(self.actor.device)
        # SmolVLA's and X-VLA's select_action do not call the method that other policies' call.
        chunk = "_get_action_chunk" if hasattr(policy, "_get_action_chunk") else "predict_action_chunk"
        hooks = [Hook(vector, "reset", RESET), Hook(vector, "step", STEP), Hook(policy, "select_action", SELECT)]
        with Attached([*hooks, Hook(policy, chunk, CHUNK), *drawing(vector, RENDER)], stopwatch.wrap):
            played = self.play(task, seed)
        return played, stopwatch.times()


class _Stopwatch:
    """Adds up the time of each hook of one episode."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._totals: dict[str, float] = {}
        self._selected: list[tuple[float, bool]] = []  # time of each select_action, and whether the model ran in it
        self._ran = False
        self._inside = ""

    def wrap(self, inner: Callable[..., Any], hook: Hook, _takes_self: bool) -> Callable[..., Any]:
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
                    self._inside = ""  # drawing between two ticks is not the simulator's

        return call

    def _note(self, name: str, ms: float) -> None:
        if name == SELECT:
            self._selected.append((ms, self._ran))
            self._ran = False
        if name == RENDER and self._inside != STEP:
            return  # part of the reset's time
        self._totals[name] = self._totals.get(name, 0.0) + ms

    def times(self) -> EpisodeTimes:
        """Return the times of the episode so far."""
        rendered = self._totals.get(RENDER)
        chunk_seen = any(
            ran for _, ran in self._selected
        )  # else no method that makes a chunk was seen: every tick counts as a call
        return EpisodeTimes(
            call_ms=[ms for ms, ran in self._selected if ran or not chunk_seen],
            call_ticks=[tick for tick, (_, ran) in enumerate(self._selected) if ran or not chunk_seen],
            policy_ms=self._totals.get(SELECT, 0.0),
            step_ms=max(0.0, self._totals.get(STEP, 0.0) - (rendered or 0.0)),
            render_ms=rendered,
            reset_ms=self._totals.get(RESET, 0.0),
        )
