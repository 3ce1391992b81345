"""A simulator that goes on while the policy computes: one episode on a clock of its own.

A simulator moves by whole control ticks. Its tick k spans the time from k to k + 1 periods. The tick executes the last
action that was sent before its middle, so an action takes effect with its real delay, to half a period. The loop sees
the observation at the end of the last completed tick, as a camera gives its last picture.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from gymnasium.vector import SyncVectorEnv
from lerobot.envs import utils as lerobot_envs
from lerobot.utils.constants import ACTION
from torch import Tensor

from strobe.lerobot import versions
from strobe.lerobot.envs import environments
from strobe.lerobot.envs.environments import Observation
from strobe.simulators.held_action import Action, Hold
from strobe.simulators.results import Episode
from strobe.simulators.simulator import Played, Watch, digest

SLACK_NS = 100_000  # moments are rounded to nanoseconds; nothing that matters is as short as this
TICKET = "ticket"  # stands for the observation in LeRobot's engine; the observation itself goes around it


@dataclass
class ActedWorld:
    """One episode of ``vector``, a gymnasium vector of one environment: a `World` of the replay's control loop.

    Args:
        to_policy, to_env: LeRobot's processors of the environment.
        period_ns: duration of a control tick.
        watch: called with ``vector`` after the reset and after each of its ticks, as lerobot-eval's render_callback is.

    Attributes:
        taken: for each tick of the simulator, the number of the loop's tick whose action it executed; None: held.
        lost: actions that were replaced by a later one before the simulator executed them.
        looked: the observation that was read last, as lerobot-eval hands it to the policy's own preprocessor.
        start: digest of the first observation.
        size: dimensions of an action.
        rests: whether the simulator is held before the first action; else it does not step until then.
    """

    vector: SyncVectorEnv
    to_policy: Callable[[Observation], Observation]
    to_env: Callable[[Observation], Observation]
    period_ns: float
    hold: Hold
    watch: Watch | None = None
    is_over: bool = False
    taken: list[int | None] = field(default_factory=list)
    lost: int = 0
    looked: Observation = field(default_factory=dict)
    start: str = ""
    size: int = 0
    rests: bool = True

    def begin(self, seed: int) -> None:
        """Reset the simulator to ``seed``, at moment 0."""
        observation, _ = self.vector.reset(seed=[seed], options=versions.reset_options())
        if self.watch is not None:
            self.watch(self.vector)
        self._seen = self._before = observation
        self.start = digest(self._prepare_observation(observation))
        self._most = int(self.vector.call("_max_episode_steps")[0])
        shape = self.vector.single_action_space.shape
        assert shape is not None  # LeRobot's actions are vectors
        self.size = int(shape[0])
        position = observation.get("agent_pos") if isinstance(observation, dict) else None
        fits = position is not None and np.shape(position) == (1, self.size)
        self._rest = np.asarray(position, np.float32)[0] if fits else None
        self.rests = self.hold.kind == "zero" or fits
        self._passed = 0  # ticks of the clock
        self._sent = 0  # ticks of the loop
        self._command: tuple[int, Action] | None = None
        self._last: Action | None = None
        self._actions: list[Action] = []
        self._rewards: list[float] = []
        self._success = False

    def observe(self, moment: int) -> Callable[[], Observation]:
        """Return a function that prepares the observation of ``moment`` and gives the engine a ticket for it."""
        while not self.is_over and (self._passed + 1) * self.period_ns <= moment + SLACK_NS:
            self._step()
        seen = self._seen if self._passed * self.period_ns <= moment + SLACK_NS else self._before

        def look() -> Observation:
            self.looked = self._prepare_observation(seen)
            return {TICKET: 0.0}

        return look

    def act(self, moment: int, action: Tensor | None) -> None:
        """Take the action of the loop's next tick, (action dim,), sent at ``moment``; None if the tick has none."""
        while not self.is_over and (self._passed + 0.5) * self.period_ns + SLACK_NS < moment:
            self._step()
        number, self._sent = self._sent, self._sent + 1
        if self.is_over or action is None:
            return
        self.lost += self._command is not None
        self._command = number, self.to_env({ACTION: action.unsqueeze(0)})[ACTION].to("cpu").numpy()[0]

    @property
    def actions(self) -> list[Action]:
        """The simulator's actions so far, including held ones."""
        return self._actions

    def finished_episode(self) -> Played:
        """Return the episode, once it is over."""
        rewards = torch.tensor(self._rewards, dtype=torch.float64)
        episode = Episode(
            success=self._success,
            reward=float(rewards.sum()),
            best_reward=float(rewards.max()),
            ticks=len(rewards),
            seconds=self._passed * self.period_ns / 1e9,  # those at the start too in which the simulator stood still
            limit_s=self._most * self.period_ns / 1e9,
        )
        return Played(episode, self.start, torch.from_numpy(np.stack(self._actions)))

    def _step(self) -> None:
        self._passed += 1
        if self._command is not None:
            number, action = self._command
            self._command, self._last = None, action
        else:
            number, action = None, self.hold.action(self._last, self._rest, self.size)
        if action is None:  # nothing was sent yet, and no action is known that keeps it still
            return
        self._before = self._seen
        self._seen, reward, terminated, truncated, info = self.vector.step(action[None])
        if self.watch is not None:
            self.watch(self.vector)
        self.taken.append(number)
        self._actions.append(np.array(action))
        self._rewards.append(float(reward[0]))
        self._success = self._success or _has_succeeded(info)
        self.is_over = bool(terminated[0] or truncated[0]) or len(self._rewards) >= self._most

    def _prepare_observation(self, observation: Observation) -> Observation:
        prepared: Observation = dict(lerobot_envs.preprocess_observation(observation))
        prepared["task"] = environments.environment_tasks(self.vector)
        return self.to_policy(prepared)


def _has_succeeded(info: Observation) -> bool:
    final = info.get("final_info", info)
    if not isinstance(final, dict):  # gymnasium before 1.0: an entry for each environment, None if it goes on
        final = final[0] if final[0] is not None else {}
    success = final.get("is_success", False)
    return bool(np.asarray(success).reshape(-1)[0])
