"""Where episodes are played: a simulator for each variant, and the policy that variants are put on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from strobe.core.errors import UserError, in_a_line
from strobe.evaluate.episode_log import EpisodeLine
from strobe.evaluate.episodes.settings import FIRST, Candidate
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.rollout.measure.robot import motion
from strobe.simulators import environments
from strobe.simulators.seldom_rendered import Rendering
from strobe.simulators.simulator import EpisodeTimes, Played, TimedSimulator


class LocalEpisodeRunner:
    """Plays one episode of one variant at a time, by lerobot-eval's own rollout.

    Args:
        env: LeRobot's ``EnvConfig``.
        rendering: whether only the observations that the policy looks at are drawn, as `Simulator` has it.
        first: the variant whose simulator starts at once; others start when they are played.

    Raises:
        UserError: the simulator is not installed or cannot be started.
    """

    def __init__(
        self, env: object, subject: PolicySubject, rendering: Rendering = "needed", first: str = FIRST
    ) -> None:
        self.env, self.subject = env, subject
        self.watch: Callable[[Any], None] | None = None  # sees each episode, as `Simulator.watch`
        self.rendering: Rendering = rendering
        self._simulators = {first: self._started()}
        self.tasks = self._simulators[first].tasks

    @property
    def environment(self) -> str:
        """Name of the simulator, as `environments.display_name`."""
        return environments.display_name(self.env, self.tasks)

    def play(self, candidate: Candidate, task: str, seed: int) -> EpisodeLine:
        """Play one episode. Raises UserError for whatever fails in it."""
        name = candidate.name
        try:
            simulator = self._simulator(name)
            simulator.watch = self.watch
            undo = candidate.variant.apply(self.subject)
            try:
                played, times, more = self._played(simulator, candidate, task, seed)
            finally:
                self.subject.policy.reset()  # nothing of the episode may be left in its queues
                undo()
        except Exception as error:  # whatever a treatment raises: the episodes before it are kept
            words = in_a_line(error, 300)
            why = words if isinstance(error, UserError) else f"{type(error).__name__}: {words}"
            raise UserError(f"'{name}' failed on {task}, seed {seed}: {why}") from error
        episode = played.episode
        return EpisodeLine(
            variant=name,
            task=task,
            seed=seed,
            start=played.start,
            success=episode.success,
            reward=episode.reward,
            ticks=episode.ticks,
            call_ms=[round(ms, 4) for ms in times.call_ms],
            policy_ms=times.policy_ms,
            step_ms=times.step_ms,
            render_ms=times.render_ms,
            reset_ms=times.reset_ms,
            drawn=played.drawn,
            seconds=episode.seconds,
            limit_s=episode.limit_s,
            **more,
        )

    def _started(self) -> TimedSimulator:
        return TimedSimulator(self.env, self.subject, self.rendering)

    def _simulator(self, name: str) -> TimedSimulator:
        """Return the variant's: a simulator may go through a list of starts, and all variants must get the same."""
        if name not in self._simulators:
            self._simulators[name] = self._started()
        return self._simulators[name]

    def _played(
        self, simulator: Any, _candidate: Candidate, task: str, seed: int
    ) -> tuple[Played, EpisodeTimes, dict[str, Any]]:
        """Play an episode; return it, its times, and further fields of its line."""
        played, times = simulator.play_timed(task, seed)
        return played, times, {"motion": motion(played.actions.numpy(), times.call_ticks)}

    def close(self) -> None:
        """Close the simulators."""
        for simulator in self._simulators.values():
            simulator.close()


class EpisodeRunnerByVariant:
    """An episode runner for each of several policies, all in memory: variant → its runner."""

    def __init__(self, stages: Mapping[str, LocalEpisodeRunner]) -> None:
        self._stages = stages
        self.watch: Callable[[Any], None] | None = None  # sees each episode, as `Simulator.watch`
        self._first = next(iter(stages.values()))
        self.tasks = self._first.tasks

    @property
    def environment(self) -> str:
        """Name of the simulator, as `environments.display_name`."""
        return self._first.environment

    def play(self, candidate: Candidate, task: str, seed: int) -> EpisodeLine:
        """Play one episode. Raises UserError for whatever fails in it."""
        stage = self._stages[candidate.name]
        stage.watch = self.watch
        return stage.play(candidate, task, seed)

    def close(self) -> None:
        """Close the simulators."""
        for stage in self._stages.values():
            stage.close()
