"""The order of an evaluation's episodes: which come next, which variants are decided by then, which episodes count."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import TYPE_CHECKING

from strobe.results.evaluation import verdict_in_words
from strobe.runs.episode_log import EpisodeLine, Key
from strobe.studies.evaluate.plan import Episodes, Plan, Start

if TYPE_CHECKING:  # torch is not needed here, and takes seconds
    from strobe.studies.evaluate.variants import Candidate


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
        self._undecided = {one.name: one for one in self._others}
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
            for one in self.playing:
                key = (one.name, task, seed)
                if key not in episodes:
                    return
                self.counted[key] = episodes[key]
            self._place += 1
            yield (task, seed), self._decide(task)

    def due(self, taken: Container[Key]) -> tuple[Candidate, str, int] | None:
        """The next episode that is not ``taken``, as if nobody were decided before it; None: there is none."""
        if self.done:
            return None
        for task, seed in self._starts[self._place :]:
            for one in self.playing:
                if (one.name, task, seed) not in taken:
                    return one, task, seed
        return None

    def _decide(self, task: str) -> list[str]:
        if task != self._plan.tasks[-1]:  # decided only at the end of a round
            return []
        said = []
        for name in list(self._undecided):
            decision = self._plan.decision(self.counted, name)
            if decision.kind != "undecided":
                del self._undecided[name]
                words = verdict_in_words(decision.kind, self._plan.margin)
                said.append(f"{name}: {words}, decided at {decision.pairs} pairs")
        return said


def counted(plan: Plan, episodes: Episodes) -> Episodes:
    """The episodes that count: in order, without those that were played ahead of a verdict or of a missing one."""
    order = Order(plan)
    for _ in order.advance(episodes):
        pass
    return order.counted
