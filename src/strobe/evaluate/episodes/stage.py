"""Where episodes are played: a simulator for each variant, and the policy that variants are put on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lerobot.envs.configs import EnvConfig

from strobe.core.errors import UserError, in_a_line
from strobe.evaluate.episode_log import EpisodeLine
from strobe.evaluate.episodes.play import FIRST, Candidate
from strobe.evaluate.results import EpisodeTiming
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.rollout.measure.robot import motion
from strobe.rollout.results.motion import Motion
from strobe.simulators import environments
from strobe.simulators.seldom_rendered import Rendering
from strobe.simulators.simulator import EpisodeTimes, Played, TimedSimulator

# An episode with its times, how smooth its actions are, and its timing if it was true to time.
PlayedAndTimed = tuple[Played, EpisodeTimes, Motion | None, EpisodeTiming | None]


class LocalEpisodeRunner:
    """Plays one episode of one variant at a time, by lerobot-eval's own rollout.

    The simulator of the first policy starts at once, those of other variants when they are played.

    Args:
        env: LeRobot's ``EnvConfig``.
        subjects: the policies, all in memory, by the names that candidates have for them.
        rendering: whether only the observations that the policy looks at are drawn, as `Simulator` has it.

    Raises:
        UserError: the simulator is not installed or cannot be started.
    """

    def __init__(self, env: EnvConfig, subjects: Mapping[str, PolicySubject], rendering: Rendering = "needed") -> None:
        self.env, self.subjects = env, subjects
        self.watch: Callable[[Any], None] | None = None  # sees each episode, as `Simulator.watch`
        self.rendering: Rendering = rendering
        policy = next(iter(subjects))
        first = self._started(subjects[policy])
        self._simulators = {policy or FIRST: first}
        self.tasks = first.tasks

    @property
    def environment(self) -> str:
        """Name of the simulator, as `environments.display_name`."""
        return environments.display_name(self.env, self.tasks)

    def play(self, candidate: Candidate, task: str, seed: int) -> EpisodeLine:
        """Play one episode. Raises UserError for whatever fails in it."""
        name, subject = candidate.name, self.subjects[candidate.policy]
        try:
            simulator = self._simulator(candidate)
            simulator.watch = self.watch
            undo = candidate.variant.apply(subject)
            try:
                played, times, moved, timing = self._played(simulator, candidate, task, seed)
            finally:
                subject.policy.reset()  # nothing of the episode may be left in its queues
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
            motion=moved,
            timing=timing,
        )

    def _started(self, subject: PolicySubject) -> TimedSimulator:
        return TimedSimulator(self.env, subject, self.rendering)

    def _simulator(self, candidate: Candidate) -> TimedSimulator:
        """Return the variant's: a simulator may go through a list of starts, and all variants must get the same."""
        if candidate.name not in self._simulators:
            self._simulators[candidate.name] = self._started(self.subjects[candidate.policy])
        return self._simulators[candidate.name]

    def _played(self, simulator: TimedSimulator, _candidate: Candidate, task: str, seed: int) -> PlayedAndTimed:
        played, times = simulator.play_timed(task, seed)
        return played, times, motion(played.actions.numpy(), times.call_ticks), None

    def close(self) -> None:
        """Close the simulators."""
        for simulator in self._simulators.values():
            simulator.close()
