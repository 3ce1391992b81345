"""The plan of an evaluation: its variants, starts and pairs, the verdict on pairs, and the order of its episodes."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strobe.measure.success_rates import LEVEL, decide
from strobe.results.evaluation import Decision, verdict_in_words
from strobe.runs.episode_log import EpisodeLine, Key

if TYPE_CHECKING:
    from strobe.studies.evaluate.settings import Candidate


Start = tuple[str, int]  # task, seed
Episodes = Mapping[Key, EpisodeLine]


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
        """Return all starts in their order: the tasks in turn on one seed, then on the next."""
        return ((task, self.seed + number) for number in range(self.episodes) for task in self.tasks)

    def pairs(self, episodes: Episodes, name: str) -> list[tuple[EpisodeLine, EpisodeLine]]:
        """Return the first variant's episodes and those of the variant ``name``, up to the first that is missing."""
        pairs = []
        for task, seed in self.starts():
            first, second = (episodes.get((variant, task, seed)) for variant in (self.candidates[0].name, name))
            if first is None or second is None:
                break
            pairs.append((first, second))
        return pairs

    def decision(self, episodes: Episodes, name: str) -> Decision:
        """Return the verdict on the variant ``name`` from the pairs that were played."""
        differences = [int(second.success) - int(first.success) for first, second in self.pairs(episodes, name)]
        return decide(differences, self.margin, LEVEL, len(self.tasks))


class Order:
    """How far a plan was played, start by start, and who plays on.

    It depends on the episodes alone, not on who played them or when: several processes may have played ahead of a
    verdict, and what they played of a decided variant does not count.

    Attributes:
        counted: the episodes that one player would have played by now, in its order.
    """

    def __init__(self, plan: Plan) -> None:
        self.counted: dict[Key, EpisodeLine] = {}
        self._plan = plan
        self._starts = list(plan.starts())
        self._first, *self._others = plan.candidates
        self._undecided = {candidate.name: candidate for candidate in self._others}
        self._place = 0

    @property
    def done(self) -> bool:
        """Whether all variants are decided, or the episodes used up."""
        return self._place == len(self._starts) or (bool(self._others) and not self._undecided)

    @property
    def playing(self) -> list[Candidate]:
        """The variants that are played on, the first among them."""
        return [self._first, *self._undecided.values()]

    def advance(self, episodes: Episodes) -> Iterator[tuple[Start, list[str]]]:
        """Count what comes next in order, up to the first episode that is missing.

        Yields each start that all have played, with the verdicts that it brought, in words.
        """
        while not self.done:
            task, seed = self._starts[self._place]
            for candidate in self.playing:
                key = (candidate.name, task, seed)
                if key not in episodes:
                    return
                self.counted[key] = episodes[key]
            self._place += 1
            yield (task, seed), self._decide(task)

    def due(self, taken: Container[Key]) -> tuple[Candidate, str, int] | None:
        """Return the next episode that is not ``taken``, as if nobody were decided before it; None: there is none."""
        if self.done:
            return None
        for task, seed in self._starts[self._place :]:
            for candidate in self.playing:
                if (candidate.name, task, seed) not in taken:
                    return candidate, task, seed
        return None

    def _decide(self, task: str) -> list[str]:
        if task != self._plan.tasks[-1]:  # decided only at the end of a round
            return []
        verdicts = []
        for name in list(self._undecided):
            decision = self._plan.decision(self.counted, name)
            if decision.kind != "undecided":
                del self._undecided[name]
                words = verdict_in_words(decision.kind, self._plan.margin)
                verdicts.append(f"{name}: {words}, decided at {decision.pairs} pairs")
        return verdicts


def counted(plan: Plan, episodes: Episodes) -> Episodes:
    """Return the episodes that count: in order, without those played ahead of a verdict or of a missing one."""
    order = Order(plan)
    for _ in order.advance(episodes):
        pass
    return order.counted
