"""The plan of episodes, and playing them in its order, each variant while it is undecided."""

from __future__ import annotations

import abc
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from strobe.core.errors import UserError
from strobe.core.measure.sampling import Progress
from strobe.core.studies.shared.progress import Reporter
from strobe.evaluate.episode_log import EpisodeLine, EpisodeLog, Key
from strobe.evaluate.measure.success_rates import LEVEL, decide
from strobe.evaluate.pairs import Decision, verdict_in_words

if TYPE_CHECKING:  # torch is not needed here, and takes seconds
    from strobe.core.treatments.treatment import Variant
    from strobe.evaluate.episodes.timings import RequestedTiming

Start = tuple[str, int]  # task, seed
Episodes = Mapping[Key, EpisodeLine]
Pairs = list[tuple[EpisodeLine, EpisodeLine]]  # of the first row and of another one, start by start
FIRST = "baseline"  # name of the policy without a treatment
MOST_SCORES = 4  # scores in a line of progress: of more variants, those that are played on


@dataclass(frozen=True)
class Candidate:
    """A row of what is played: a variant of a policy, and what it is.

    Args:
        written: its treatments as on a command line; '' for the baseline.
        steps: denoising steps; None if the policy has none, or the variant is of another setting.
        recipe: the recipe's file; '' if it has none.
        timing: of its calls, true to time; None where the simulator waits for the policy.
        title: its name, where that is not the variant's and the timing's.
        policy: the name of its policy, where several are played.
    """

    variant: Variant
    written: str = ""
    steps: int | None = None
    recipe: str = ""
    timing: RequestedTiming | None = None
    title: str = ""
    policy: str = ""

    @property
    def name(self) -> str:
        """The variant's name, with its timing: 'baseline', or 'baseline, rtc, 100 ms'."""
        return self.title or ", ".join([self.variant.name, *([self.timing.name] if self.timing is not None else [])])


@dataclass(frozen=True)
class Plan:
    """The episodes that are to be played.

    Args:
        candidates: the first is the one that the others are judged against.
        episodes: of each variant on each task, from the seeds ``seed``, ``seed`` + 1 …
        margin: loss of the score that counts as not worse, 0 to 1.
        full_reward: of a control tick, which is progress 1: progress decides; None: success does.
    """

    candidates: Sequence[Candidate]
    tasks: Sequence[str]
    episodes: int
    margin: float
    seed: int = 0
    full_reward: float | None = None

    @property
    def planned_episodes(self) -> int:
        """Episodes of each variant in all."""
        return self.episodes * len(self.tasks)

    def score(self, line: EpisodeLine) -> float:
        """Return the score of an episode, 0 to 1: 1 for a success; else its progress, where that decides."""
        if line.success or self.full_reward is None:
            return float(line.success)
        assert line.best_reward is not None  # a log without it has another request
        return min(max(line.best_reward / self.full_reward, 0.0), 1.0)

    def starts(self, first: int = 0, count: int | None = None) -> Iterator[Start]:
        """Return ``count`` starts on each task in their order: the tasks in turn on one seed, then on the next.

        Args:
            first: what is added to the first seed.
            count: by default those that are planned.
        """
        numbers = range(first, first + (self.episodes if count is None else count))
        return ((task, self.seed + number) for number in numbers for task in self.tasks)

    def pairs(self, episodes: Episodes, name: str, starts: Iterable[Start] | None = None) -> Pairs:
        """Return the first variant's episodes and those of the variant ``name``, up to the first that is missing.

        Args:
            starts: in their order; by default those that are planned.
        """
        pairs: Pairs = []
        for task, seed in self.starts() if starts is None else starts:
            first, second = (episodes.get((variant, task, seed)) for variant in (self.candidates[0].name, name))
            if first is None or second is None:
                break
            pairs.append((first, second))
        return pairs

    def decision(self, episodes: Episodes, name: str) -> Decision:
        """Return the verdict on the variant ``name`` from the pairs that were played."""
        differences = [self.score(second) - self.score(first) for first, second in self.pairs(episodes, name)]
        return decide(differences, self.margin, LEVEL, len(self.tasks))


class Order(abc.ABC):
    """Says which episode is played next, and what the episodes so far decide.

    All rows that are played on play each start before the next one. It depends on the episodes alone, not on who played
    them or when: several processes may have played ahead of a verdict, and what they played of a decided row does not
    count.

    Attributes:
        counted: the episodes that one player would have played by now, in its order.
    """

    def __init__(self, candidates: Sequence[Candidate], tasks: Sequence[str], starts: Iterable[Start]) -> None:
        self.counted: dict[Key, EpisodeLine] = {}
        self._candidates, self._tasks = candidates, tasks
        self._begin(starts)

    def _begin(self, starts: Iterable[Start]) -> None:
        self._starts, self._place = list(starts), 0

    @property
    def candidates(self) -> Sequence[Candidate]:
        """All variants, the first first."""
        return self._candidates

    @property
    def is_finished(self) -> bool:
        """Whether all variants are decided, or the episodes used up."""
        return self._place == len(self._starts) or self._is_settled

    @property
    @abc.abstractmethod
    def playing(self) -> list[Candidate]:
        """The variants that are played on, in their order."""

    @property
    @abc.abstractmethod
    def _is_settled(self) -> bool:
        """Whether more episodes would decide nothing."""

    @abc.abstractmethod
    def _decide(self) -> list[str]:
        """Decide at the end of a round, in which each task was played once more. Return the verdicts, in words."""

    def advance(self, episodes: Episodes) -> Iterator[tuple[Start, list[str]]]:
        """Count what comes next in order, up to the first episode that is missing.

        Yields each start that all have played, with the verdicts that it brought, in words.
        """
        while not self.is_finished:
            task, seed = self._starts[self._place]
            for candidate in self.playing:
                key = (candidate.name, task, seed)
                if key not in episodes:
                    return
                self.counted[key] = episodes[key]
            self._place += 1
            yield (task, seed), self._decide() if task == self._tasks[-1] else []

    @property
    def _ahead(self) -> int:
        return len(self._starts)

    def due(self, taken: Container[Key]) -> tuple[Candidate, str, int] | None:
        """Return the next episode that is not ``taken``, as if nobody were decided before it; None: there is none."""
        if self.is_finished:
            return None
        for task, seed in self._starts[self._place : self._ahead]:
            for candidate in self.playing:
                if (candidate.name, task, seed) not in taken:
                    return candidate, task, seed
        return None

    def remaining(self, played: Container[Key]) -> int:
        """Return how many episodes are still to be played, at most."""
        return sum((each.name, *start) not in played for start in self._starts for each in self.playing)


class PairsInOrder(Order):
    """Each variant is played in pairs with the first, until its verdict is certain."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.candidates, plan.tasks, plan.starts())
        self._plan = plan
        self._first, *self._others = plan.candidates
        self._undecided = {candidate.name: candidate for candidate in self._others}

    @property
    def playing(self) -> list[Candidate]:
        """The variants that are played on, the first among them."""
        return [self._first, *self._undecided.values()]

    @property
    def _is_settled(self) -> bool:
        return bool(self._others) and not self._undecided

    def _decide(self) -> list[str]:
        verdicts = []
        for name in list(self._undecided):
            decision = self._plan.decision(self.counted, name)
            if decision.kind != "undecided":
                del self._undecided[name]
                words = verdict_in_words(decision.kind, self._plan.margin)
                verdicts.append(f"{name}: {words}, decided after {decision.pairs} pairs")
        return verdicts


@runtime_checkable
class EpisodeRunner(Protocol):
    """Plays episodes: `strobe.evaluate.episodes.runners.LocalEpisodeRunner`."""

    def play(self, candidate: Candidate, task: str, seed: int) -> EpisodeLine:
        """Play one episode. Raises UserError for whatever fails in it."""
        ...


class ParallelEpisodeRunner(Protocol):
    """Plays several episodes at a time: `strobe.evaluate.episodes.crews`."""

    @property
    def free(self) -> int:
        """How many more episodes it can take now."""
        ...

    def hand(self, candidate: Candidate, task: str, seed: int) -> None:
        """Let somebody who is free play an episode."""

    def wait_for_episode(self) -> EpisodeLine | None:
        """Wait for an episode that was handed out to end; None if instead more can be taken now.

        Raises:
            UserError: it fails.
        """
        ...

    def close(self) -> None:
        """End what is still being played. A second call does nothing."""


class EpisodeReporter(Reporter, Protocol):
    """Shows what is being played, and how many episodes of how many."""

    def say(self, line: str) -> None:
        """A line that stays."""


@dataclass(frozen=True)
class Session:
    """Episodes that are played once: where, by whom, and the log that they go to.

    Args:
        environment: the simulator's name.
        plan: of all rows.
        log: empty, or with the episodes of the run that --resume continues.
        fps: control ticks of the simulator per second.
    """

    environment: str
    plan: Plan
    player: EpisodeRunner | ParallelEpisodeRunner
    log: EpisodeLog
    watching: EpisodeReporter
    fps: float | None = None

    def play(self, order: Order) -> bool:
        """Play the episodes of ``order``. Return whether Ctrl-C ended it. Raises UserError as `play` does."""
        interrupted = play(order, self.player, self.log, self.watching)
        for _ in order.advance(self.log.episodes):  # what the last episode decided
            pass
        return interrupted


def play(
    order: Order, player: EpisodeRunner | ParallelEpisodeRunner, log: EpisodeLog, watching: EpisodeReporter
) -> bool:
    """Play the episodes of ``order`` that ``log`` lacks, until it is finished.

    A crew plays ahead in the same order. What it plays of a variant that is decided meanwhile stays in the log and does
    not count, so that the answer is that of one player.

    Returns whether Ctrl-C ended it. Every episode that ended is in the log by then.

    Raises:
        UserError: an episode fails, or the same seed gives different starts.
    """
    crew = _OneAtATime(player) if isinstance(player, EpisodeRunner) else player
    counter = _Counter(order, log, watching)
    out = set()
    try:
        while True:
            for start, verdicts in order.advance(log.episodes):
                for verdict in verdicts:
                    watching.say(verdict)
                counter.show_scores(start)
            if order.is_finished:  # what is still being played is not needed
                return False
            while crew.free and (due := order.due(log.episodes.keys() | out)) is not None:
                out.add((due[0].name, *due[1:]))
                crew.hand(*due)
            episode = crew.wait_for_episode()
            if episode is None:
                continue
            out.discard((episode.variant, episode.task, episode.seed))
            _check_start(order.candidates, log.episodes, episode)
            log.add(episode)
            counter.show_progress(episode)
    except KeyboardInterrupt:
        return True
    finally:
        crew.close()  # what is measured next must not run at the same time


class _OneAtATime:
    """A crew of one player, who plays when the episode is waited for."""

    def __init__(self, player: EpisodeRunner) -> None:
        self._player = player
        self._handed: list[tuple[Candidate, str, int]] = []

    @property
    def free(self) -> int:
        return 1 - len(self._handed)

    def hand(self, candidate: Candidate, task: str, seed: int) -> None:
        self._handed.append((candidate, task, seed))

    def wait_for_episode(self) -> EpisodeLine:
        return self._player.play(*self._handed.pop())

    def close(self) -> None: ...


def _check_start(candidates: Sequence[Candidate], episodes: Episodes, episode: EpisodeLine) -> None:
    played = (episodes.get((candidate.name, episode.task, episode.seed)) for candidate in candidates)
    first = next((line for line in played if line is not None), None)
    if first is not None and first.start != episode.start:
        sides = [f"'{line.variant}'{f' on node {line.node}' * bool(line.node)}" for line in (first, episode)]
        raise UserError(
            f"the same seed gives different starts ({episode.task}, seed {episode.seed}: {' and '.join(sides)}), so "
            "episodes cannot be paired"
        )


class _Counter:
    """Says how many episodes were played, how long the rest can take, and the running score."""

    def __init__(self, order: Order, log: EpisodeLog, watching: EpisodeReporter) -> None:
        self._order, self._log, self._watching = order, log, watching
        self._begun, self._played, self._starts, self._scored = time.perf_counter(), 0, set[Start](), 0

    def show_progress(self, episode: EpisodeLine) -> None:
        """Show that an episode has ended, and the time that the rest can take."""
        self._played += 1
        self._starts.add((episode.task, episode.seed))
        took, done = time.perf_counter() - self._begun, len(self._log.episodes)
        remaining = self._order.remaining(self._log.episodes)
        remaining_s = took / self._played * remaining
        self._watching.progress(Progress(done, done + remaining, took, remaining_s, "episodes"))

    def show_scores(self, start: Start) -> None:
        """Say the successes so far, now and then, after a start that all have played."""
        if start not in self._starts:
            return
        self._scored += 1
        if self._scored & (self._scored - 1):  # after 1, 2, 4, 8 … starts: a line for each would bury the answer
            return
        playing = self._order.candidates if len(self._order.candidates) <= MOST_SCORES else self._order.playing
        scores = []
        for candidate in playing:
            won = [line.success for (name, _, _), line in self._order.counted.items() if name == candidate.name]
            scores.append(f"{candidate.name} {sum(won)} of {len(won)}")
        more = f"; {len(scores) - MOST_SCORES} more" if len(scores) > MOST_SCORES else ""
        starts = f"{self._scored} start{'s' * (self._scored != 1)}"
        self._watching.say(f"successes after {starts}: {'; '.join(scores[:MOST_SCORES])}{more}")
