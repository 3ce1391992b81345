"""The plan of an evaluation: its variants, starts and pairs, and the verdict on pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strobe.measure.success_rates import LEVEL, decide
from strobe.results.evaluation import Decision
from strobe.runs.episode_log import EpisodeLine, Key

if TYPE_CHECKING:
    from strobe.studies.evaluate.variants import Candidate


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
