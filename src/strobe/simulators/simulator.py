"""Play a policy in one of LeRobot's simulators, timed or not: an episode from a seed, by lerobot-eval's own rollout."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any
from unittest import mock

import torch
from gymnasium.vector import SyncVectorEnv
from lerobot.envs.configs import EnvConfig
from lerobot.utils.constants import ACTION
from torch import Tensor

from strobe.core.errors import UserError
from strobe.core.timeline.clock import synchronise
from strobe.core.timeline.layers import Call
from strobe.core.timeline.probe import Attached, Hook
from strobe.lerobot.envs import environments, libero
from strobe.lerobot.envs.environments import Observation
from strobe.lerobot.envs.seldom_rendered import Looks, Rendering, SeldomRendered, drawing
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.lerobot.quiet import quiet
from strobe.simulators.results import Episode

Watch = Callable[[SyncVectorEnv], None]  # called after the reset of an episode and after each tick
READ = "is_success"
OTHERS = ("success", "succeed")  # seen in simulators of plug-ins


@contextlib.contextmanager
def outcomes_reported(vector: SyncVectorEnv) -> Iterator[None]:
    """Put the key that lerobot-eval's rollout reads into the last info of each episode of ``vector``, while open.

    Without the key, LeRobot 0.6.1 counts every episode that ends as a success: its default, ``[False]``, is a list that
    is not empty, and so true. A simulator with another name for the outcome is read by that name.

    Raises:
        UserError: within, at the end of an episode, if the simulator does not report whether it succeeded.
    """
    step = vector.step

    def step_with_outcome(*args: object, **kwargs: object) -> Any:
        *rest, info = step(*args, **kwargs)
        last = info.get("final_info")
        if isinstance(last, dict) and READ not in last:
            name = next((name for name in OTHERS if name in last), None)
            if name is None:
                raise UserError(
                    f"the simulator does not report whether an episode succeeded: no '{READ}' in its last info "
                    f"({', '.join(last) or 'empty'})"
                )
            last[READ] = last[name]
        return (*rest, info)

    with mock.patch.object(vector, "step", step_with_outcome):
        yield


@dataclass(frozen=True)
class Played:
    """An episode with its start and its actions.

    Args:
        start: digest of the first observation.
        actions: (control ticks, action dim) on the CPU, as the simulator got them.
        drawn: control ticks after which the simulator drew an observation; None if drawing was not seen.
    """

    episode: Episode
    start: str
    actions: Tensor
    drawn: int | None = None

    def same_ticks(self, other: Played) -> int:
        """Return the number of control ticks from the start whose actions are the same to the bit."""
        ours, theirs = self._while_both(other)
        differ = (ours != theirs).any(dim=1)
        return int(differ.int().argmax()) if differ.any() else len(ours)

    def largest_error(self, other: Played) -> float:
        """Return the largest absolute difference of actions of one tick, while both ran, in the action's units."""
        ours, theirs = self._while_both(other)
        return float((ours.double() - theirs.double()).abs().max())

    def _while_both(self, other: Played) -> tuple[Tensor, Tensor]:
        shorter = min(len(self.actions), len(other.actions))
        return self.actions[:shorter], other.actions[:shorter]


class Simulator:
    """The simulators of LeRobot's ``EnvConfig``, one for each of its tasks, each started when it is first played.

    One environment is played at a time, as on a robot, not a batch of them. The policy acts with the treatments that it
    has at that time.

    Args:
        rendering: 'needed' draws the observations that the policy looks at, which changes no action; 'always' draws
            them all.

    Raises:
        UserError: the simulator is not installed, or cannot be started.
    """

    def __init__(self, env: EnvConfig, actor: PolicySubject, rendering: Rendering = "needed") -> None:
        from lerobot.envs.factory import make_env_pre_post_processors

        self.actor = actor
        self.watch: Watch | None = None
        self.rendering: Rendering = rendering
        self.name = env.type
        self._fps = float(env.fps)
        with environments.errors_in_a_line(env.type):
            self.vectors = environments.make(env)  # task → its environments, as LeRobot makes them
            self._to_policy, self._to_env = make_env_pre_post_processors(env, actor.policy.config)

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks: the suite's, with the task's number if there are several."""
        return list(self.vectors)

    def play(self, task: str, seed: int) -> Played:
        """Play one episode of ``task`` from ``seed``, which is also the seed of the policy's noise.

        Raises:
            UserError: the simulator fails at the start; policy and simulator do not fit.
        """
        actor, vector = self.actor, self.vectors[task]
        first, seldom = _First(self._to_policy), SeldomRendered(self._looks() if self.rendering == "needed" else None)
        actor.policy.eval()
        torch.manual_seed(seed)
        libero.choose_starts(vector, [seed])
        with (
            _import_without_bar() as lerobot_eval,
            environments.errors_in_a_line(self.name, "failed in an episode"),
            Attached(seldom.hooks(vector), seldom.wrap),
            outcomes_reported(vector),
        ):
            out = lerobot_eval.rollout(
                vector,
                actor.policy,
                first,  # pyright: ignore[reportArgumentType]
                self._to_env,
                actor.prepare,  # pyright: ignore[reportArgumentType]
                actor.postprocessor,
                seeds=[seed],
                render_callback=self.watch,
            )
        rewards = out["reward"][0].double()
        episode = Episode(
            success=bool(out["success"][0].any()),
            reward=float(rewards.sum()),
            best_reward=float(rewards.max()),
            ticks=len(rewards),
            **_seconds(len(rewards), vector, self._fps),
        )
        return Played(episode, first.digest, out[ACTION][0].clone(), seldom.drawn if seldom.seen else None)

    def _looks(self, early: int = 0) -> Looks:
        pipelines = (self._to_policy, self.actor.preprocessor)
        return Looks(self.actor.policy, (step for pipeline in pipelines for step in pipeline.steps), early)

    def close(self) -> None:
        """Close the simulators that were started."""
        for vector in self.vectors.values():
            with contextlib.suppress(Exception):  # a renderer that has ended already must not end the run
                vector.close()


def _seconds(ticks: int, vector: SyncVectorEnv, fps: float) -> dict[str, float]:
    """Return the seconds of ``ticks``, and those that an episode may last, for `Episode`."""
    return {"seconds": ticks / fps, "limit_s": int(vector.call("_max_episode_steps")[0]) / fps} if fps > 0 else {}


@contextlib.contextmanager
def _import_without_bar() -> Iterator[ModuleType]:
    with quiet():  # it takes seconds to import, and prints
        from lerobot.scripts import lerobot_eval
    with mock.patch.object(lerobot_eval, "inside_slurm", return_value=True):
        yield lerobot_eval


class _First:
    """The environment's own preprocessor, with a digest of the first observation that it sees."""

    def __init__(self, step: Callable[[Observation], Observation]) -> None:
        self.step, self.digest = step, ""

    def __call__(self, observation: Observation) -> Observation:
        observation = self.step(observation)
        if not self.digest:
            self.digest = digest(observation)
        return observation


def digest(observation: Observation) -> str:
    """Return a digest of an observation that is ready for the policy's own preprocessor."""
    seen = hashlib.sha256()
    for key in sorted(observation):
        value = observation[key]
        content = value.contiguous().cpu().numpy().tobytes() if isinstance(value, Tensor) else repr(value).encode()
        seen.update(key.encode() + content)
    return seen.hexdigest()


# Times of the episodes: the policy's calls, the simulator's steps, its rendering.

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
        vector, policy = self.vectors[task], self.actor.policy
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

    def wrap(self, inner: Call, hook: Hook, _takes_self: bool) -> Call:
        """Return the stopwatch's wrapper of a hook's callable."""
        name = hook.name

        @functools.wraps(inner)
        def call(*args: object, **kwargs: object) -> object:
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
        # Where no method that makes a chunk was seen, every tick counts as a call.
        chunk_seen = any(ran for _, ran in self._selected)
        return EpisodeTimes(
            call_ms=[ms for ms, ran in self._selected if ran or not chunk_seen],
            call_ticks=[tick for tick, (_, ran) in enumerate(self._selected) if ran or not chunk_seen],
            policy_ms=self._totals.get(SELECT, 0.0),
            step_ms=max(0.0, self._totals.get(STEP, 0.0) - (rendered or 0.0)),
            render_ms=rendered,
            reset_ms=self._totals.get(RESET, 0.0),
        )
