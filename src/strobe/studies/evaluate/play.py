"""Play the episodes of an evaluation in their order, each variant for as long as it is undecided."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from strobe.errors import UserError
from strobe.measure.decision import LEVEL, decide
from strobe.measure.sampling import Progress
from strobe.results.episode_log import EpisodeLine, EpisodeLog, Key
from strobe.results.evaluation import Decision
from strobe.studies.evaluate.variants import Candidate

Start = tuple[str, int]  # task, seed
Episodes = Mapping[Key, EpisodeLine]


class Player(Protocol):
    """Plays episodes: `strobe.studies.evaluate.stage.Stage`."""

    def play(self, candidate: Candidate, task: str, seed: int) -> EpisodeLine: ...


class Watching(Protocol):
    """Where it reports how far it is."""

    def progress(self, progress: Progress) -> None: ...

    def said(self, line: str) -> None:
        """A line that stays."""


@dataclass(frozen=True)
class Plan:
    """The episodes that are to be played.

    Args:
        candidates: the first is the one that the others are judged against.
        episodes: of each variant on each task, from the seeds ``seed``, ``seed`` + 1 …
        margin: loss of success rate that counts as not worse, 0 to 1.
    """

    candidates: Sequence[Candidate]
    tasks: Sequence[str]
    episodes: int
    margin: float
    seed: int = 0

    @property
    def planned(self) -> int:
        """Episodes of each variant in all."""
        return self.episodes * len(self.tasks)

    def starts(self) -> Iterator[Start]:
        """All starts in their order: the tasks in turn on one seed, then on the next."""
        return ((task, self.seed + number) for number in range(self.episodes) for task in self.tasks)

    def pairs(self, episodes: Episodes, name: str) -> list[tuple[EpisodeLine, EpisodeLine]]:
        """The first variant's episode and that of the variant ``name``, in order, up to the first that is missing."""
        found = []
        for task, seed in self.starts():
            first, second = (episodes.get((one, task, seed)) for one in (self.candidates[0].name, name))
            if first is None or second is None:
                break
            found.append((first, second))
        return found

    def decision(self, episodes: Episodes, name: str) -> Decision:
        """The verdict on the variant ``name`` from the pairs that were played."""
        differences = [int(second.success) - int(first.success) for first, second in self.pairs(episodes, name)]
        return decide(differences, self.margin, LEVEL, len(self.tasks))


def play(plan: Plan, player: Player, log: EpisodeLog, watching: Watching) -> bool:
    """Play what ``plan`` asks for and ``log`` lacks, until all variants are decided or the episodes are used up.

    Returns whether Ctrl-C ended it. Every episode that ended is in the log by then.

    Raises:
        UserError: an episode fails, or a simulator does not start alike from the same seed.
    """
    first, *others = plan.candidates
    undecided = {one.name: one for one in others}
    counter = _Counter(plan, log, watching)
    try:
        for task, seed in plan.starts():
            if others and not undecided:
                break
            started: EpisodeLine | None = None
            for one in (first, *undecided.values()):
                episode = log.episodes.get((one.name, task, seed))
                if episode is None:
                    episode = player.play(one, task, seed)
                    _check_start(started, episode)
                    log.add(episode)
                    counter.played([first.name, *undecided])
                started = started or episode
            for name in list(undecided):
                verdict = _verdict(plan, log.episodes, name, task, seed)
                if verdict is not None:
                    del undecided[name]
                    watching.said(verdict)
            counter.scored(task, seed)
    except KeyboardInterrupt:
        return True
    return False


def _verdict(plan: Plan, episodes: Episodes, name: str, task: str, seed: int) -> str | None:
    """The verdict on a variant after this start, in words; None where there is none yet."""
    if task != plan.tasks[-1]:  # decided only at the end of a round
        return None
    # Up to here, though a log that is gone on with may hold more: the same variants play on as without the break.
    until = {key: line for key, line in episodes.items() if key[2] <= seed}
    decision = plan.decision(until, name)
    if decision.kind == "undecided":
        return None
    kind = decision.kind.replace("the margin", f"{100 * plan.margin:.3g} points")
    return f"{name}: {kind}, decided at {decision.pairs} pairs"


def _check_start(first: EpisodeLine | None, second: EpisodeLine) -> None:
    if first is not None and first.start != second.start:
        raise UserError(
            f"the simulator does not start alike from the same seed ({second.task}, seed {second.seed}: "
            f"'{first.variant}' and '{second.variant}'): no pairs"
        )


class _Counter:
    """Says how many episodes were played, how long the rest can take, and the running score."""

    def __init__(self, plan: Plan, log: EpisodeLog, watching: Watching) -> None:
        self._plan, self._log, self._watching = plan, log, watching
        self._begun, self._played, self._said = time.perf_counter(), 0, len(log.episodes)

    def played(self, playing: Sequence[str]) -> None:
        """An episode has ended; ``playing`` are the variants that are played on with, the first among them."""
        self._played += 1
        took, done = time.perf_counter() - self._begun, len(self._log.episodes)
        left = len(playing) * self._plan.planned - sum(name in playing for name, _, _ in self._log.episodes)
        self._watching.progress(Progress(done, done + left, took, took / self._played * left, "episodes"))

    def scored(self, task: str, seed: int) -> None:
        """All variants have played a start: their scores, where anything was played on it."""
        if len(self._log.episodes) == self._said:
            return
        self._said = len(self._log.episodes)
        scores = []
        for one in self._plan.candidates:
            won = [line.success for (name, _, _), line in self._log.episodes.items() if name == one.name]
            scores.append(f"{one.name} {sum(won)} of {len(won)}")
        self._watching.said(f"{task}, seed {seed}: {'; '.join(scores)}")
