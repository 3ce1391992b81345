"""Play the episodes of an evaluation in their order, each variant for as long as it is undecided."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from strobe.errors import UserError
from strobe.measure.sampling import Progress
from strobe.runs.episode_log import EpisodeLine, EpisodeLog
from strobe.studies.evaluate.plan import Episodes, Order, Plan, Start

if TYPE_CHECKING:  # torch is not needed here, and takes seconds
    from strobe.studies.evaluate.settings import Candidate


@runtime_checkable
class Player(Protocol):
    """Plays episodes: `strobe.studies.evaluate.stage.Stage`."""

    def play(self, candidate: Candidate, task: str, seed: int) -> EpisodeLine: ...


class Crew(Protocol):
    """Plays several episodes at a time: `strobe.studies.evaluate.crews`."""

    @property
    def free(self) -> int:
        """How many more episodes it can take now."""
        ...

    def hand(self, candidate: Candidate, task: str, seed: int) -> None:
        """Let somebody who is free play an episode."""

    def ended(self) -> EpisodeLine | None:
        """Wait for an episode that was handed out to end; None where instead more can be taken now.

        Raises:
            UserError: it fails.
        """
        ...

    def close(self) -> None:
        """End what is still being played. Asked again, it does nothing."""


class EpisodeReporter(Protocol):
    """Reports how far it is."""

    def progress(self, progress: Progress) -> None: ...

    def say(self, line: str) -> None:
        """A line that stays."""


def play(plan: Plan, player: Player | Crew, log: EpisodeLog, watching: EpisodeReporter) -> bool:
    """Play what ``plan`` asks for and ``log`` lacks, until all variants are decided or the episodes are used up.

    A crew plays ahead in the same order. What it plays of a variant that is decided meanwhile stays in the log and does
    not count (`Order`), so that the answer is that of one player.

    Returns whether Ctrl-C ended it. Every episode that ended is in the log by then.

    Raises:
        UserError: an episode fails, or a simulator does not start alike from the same seed.
    """
    crew = _Alone(player) if isinstance(player, Player) else player
    order, counter = Order(plan), _Counter(plan, log, watching)
    out = set()
    try:
        while True:
            for start, verdicts in order.advance(log.episodes):
                for verdict in verdicts:
                    watching.say(verdict)
                counter.scored(start, order.counted)
            if order.done:  # what is still being played is not needed
                return False
            while crew.free and (due := order.due(log.episodes.keys() | out)) is not None:
                out.add((due[0].name, *due[1:]))
                crew.hand(*due)
            episode = crew.ended()
            if episode is None:
                continue
            out.discard((episode.variant, episode.task, episode.seed))
            _check_start(plan, log.episodes, episode)
            log.add(episode)
            counter.played(episode, [one.name for one in order.playing])
    except KeyboardInterrupt:
        return True
    finally:
        crew.close()  # what is measured next must not run beside them


class _Alone:
    """A crew of one player, who plays when the episode is waited for."""

    def __init__(self, player: Player) -> None:
        self._player = player
        self._handed: list[tuple[Candidate, str, int]] = []

    @property
    def free(self) -> int:
        return 1 - len(self._handed)

    def hand(self, candidate: Candidate, task: str, seed: int) -> None:
        self._handed.append((candidate, task, seed))

    def ended(self) -> EpisodeLine:
        return self._player.play(*self._handed.pop())

    def close(self) -> None: ...


def _check_start(plan: Plan, episodes: Episodes, episode: EpisodeLine) -> None:
    there = (episodes.get((one.name, episode.task, episode.seed)) for one in plan.candidates)
    first = next((line for line in there if line is not None), None)
    if first is not None and first.start != episode.start:
        sides = [f"'{one.variant}'{f' on node {one.node}' * bool(one.node)}" for one in (first, episode)]
        raise UserError(
            f"the simulator does not start alike from the same seed ({episode.task}, seed {episode.seed}: "
            f"{' and '.join(sides)}): no pairs"
        )


class _Counter:
    """Says how many episodes were played, how long the rest can take, and the running score."""

    def __init__(self, plan: Plan, log: EpisodeLog, watching: EpisodeReporter) -> None:
        self._plan, self._log, self._watching = plan, log, watching
        self._begun, self._played, self._starts = time.perf_counter(), 0, set[Start]()

    def played(self, episode: EpisodeLine, playing: list[str]) -> None:
        """An episode has ended; ``playing`` are the variants that are played on with, the first among them."""
        self._played += 1
        self._starts.add((episode.task, episode.seed))
        took, done = time.perf_counter() - self._begun, len(self._log.episodes)
        left = len(playing) * self._plan.planned - sum(name in playing for name, _, _ in self._log.episodes)
        self._watching.progress(Progress(done, done + left, took, took / self._played * left, "episodes"))

    def scored(self, start: Start, counted: Episodes) -> None:
        """All variants have played a start: their scores so far, where anything was played on it."""
        if start not in self._starts:
            return
        scores = []
        for one in self._plan.candidates:
            won = [line.success for (name, _, _), line in counted.items() if name == one.name]
            scores.append(f"{one.name} {sum(won)} of {len(won)}")
        self._watching.say(f"{start[0]}, seed {start[1]}: {'; '.join(scores)}")
