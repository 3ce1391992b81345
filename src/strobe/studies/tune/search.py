"""The order in which a tuning plays its episodes: rounds that halve the settings, then the winner against the default.

The rounds are successive halving (Jamieson and Talwalkar, "Non-stochastic best arm identification and hyperparameter
optimization", AISTATS 2016): in each round the settings that remain play as many starts as all rounds before together,
and the better half goes on. A setting that bets show to be worse than the leader (`measure.best_arm.shown_worse`) goes
earlier. All play the same starts.

A winner chosen among many looks better than it is. So nothing is claimed of the rounds: the winner then plays against
the default on fresh starts, in pairs, and that verdict holds at any number of them.
"""

from __future__ import annotations

import functools
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from strobe.measure.best_arm import MARGIN, best, each_pair, ranked, shown_worse
from strobe.measure.success_rates import LEVEL, decide, each_of
from strobe.measure.time_to_task import Ended, ends_of, judge_times
from strobe.runs.episode_log import EpisodeLine, Key
from strobe.studies.evaluate.play import Start, StartByStart

if TYPE_CHECKING:  # torch is not needed here, and takes seconds
    from strobe.studies.evaluate.settings import Candidate

SHARE = 0.35  # of an exhaustive search's episodes, that the rounds play at most
FEWEST = 2  # starts of the first round, however few there are
FRESH = 1_000_000  # added to the seed, for the starts of the closing pairs
LOOKS = 8  # starts between two looks at what bets show; they may be looked at at any time, and each look takes a moment
HOPELESS = 40  # episodes without a success, of all settings together, after which none is looked for
Phase = Literal["rounds", "pairs", "over"]
Why = Literal["success", "time", "rank"]


@dataclass(frozen=True)
class SearchPlan:
    """The episodes that may be played.

    Args:
        candidates: the settings; the first is the default, which the winner is judged against.
        starts: of each setting in the rounds, on each task, at most: what an exhaustive search would play.
        pairs: fresh starts on each task for the winner and the default, at most.
        margin: loss of success rate that counts as not worse, 0 to 1.
    """

    candidates: Sequence[Candidate]
    tasks: Sequence[str]
    starts: int
    pairs: int
    margin: float
    seed: int = 0

    def starts_from(self, first: int, count: int) -> Iterator[Start]:
        """Return ``count`` starts on each task, from seed + ``first``: tasks in turn, seed after seed."""
        return ((task, self.seed + first + number) for number in range(count) for task in self.tasks)

    @functools.cached_property
    def rounds(self) -> list[int]:
        """Starts on each task after which the settings are ranked, the last one included.

        The first round is as long as `SHARE` allows if no setting goes early, and each further one doubles the starts.
        """
        lengths = range(self.starts, FEWEST - 1, -1)
        allowed = SHARE * len(self.candidates) * self.starts
        return next((ends for first in lengths if self._cost(ends := self._ends(first)) <= allowed), self._ends(FEWEST))

    def _ends(self, first: int) -> list[int]:
        ends, remaining = [min(first, self.starts)], -(-len(self.candidates) // 2)
        while remaining > 1 and ends[-1] < self.starts:
            ends.append(min(2 * ends[-1], self.starts))
            remaining = -(-remaining // 2)
        return ends

    def _cost(self, ends: Sequence[int]) -> int:
        """Return the episodes on each task, if the settings are halved at each of ``ends`` and none goes before."""
        cost, before, remaining = 0, 0, len(self.candidates)
        for end in ends:
            cost += remaining * (end - before)
            before, remaining = end, -(-remaining // 2)
        return cost


class Search(StartByStart):
    """How far a tuning was played; an order of `strobe.studies.evaluate.play`.

    Attributes:
        left: setting → why it was played no further: shown to be worse than the leader in 'success' or 'time', or seen
            to be behind others ('rank').
        hopeless: whether no setting succeeded, so that none can be found.
        winner: the best in the rounds; '' before their end.
    """

    def __init__(self, plan: SearchPlan) -> None:
        super().__init__(plan.candidates, plan.tasks, plan.starts_from(0, plan.starts))
        self.plan = plan
        self.left: dict[str, Why] = {}
        self.hopeless = False
        self.phase: Phase = "rounds"
        self.winner = ""
        self._round = 0

    @property
    def playing(self) -> list[Candidate]:
        """The settings that are played on; in the closing pairs the default and the winner."""
        default = self.candidates[0].name
        names = {default, self.winner} if self.phase == "pairs" else self._remaining
        return [candidate for candidate in self.candidates if candidate.name in names]

    @property
    def _settled(self) -> bool:
        return self.phase == "over"

    @property
    def _remaining(self) -> list[str]:
        return [each.name for each in self.candidates if each.name not in self.left]

    @property
    def _ahead(self) -> int:
        """The end of the round: after it fewer settings play."""
        return self._round_ends if self.phase == "rounds" else len(self._starts)

    @property
    def _round_ends(self) -> int:
        return self.plan.rounds[self._round] * len(self.plan.tasks)

    def remaining(self, played: Container[Key]) -> int:
        """Return how many episodes are still to be played, at most, with the closing pairs."""
        tasks, ahead = len(self.plan.tasks), 0
        if self.phase == "pairs":
            return super().remaining(played)
        before, count = self._place // tasks, len(self.playing)
        for end in self.plan.rounds[self._round :]:
            ahead += count * (end - before) * tasks
            before, count = end, -(-count // 2)
        return ahead + 2 * self.plan.pairs * tasks

    def played_in_rounds(self) -> dict[str, list[Ended]]:
        """Return the episodes of each setting in the rounds, in their order."""
        played: dict[str, list[EpisodeLine]] = {candidate.name: [] for candidate in self.candidates}
        for (name, _, seed), line in self.counted.items():
            if seed < self.plan.seed + FRESH:
                played[name].append(line)
        return {name: ends_of(lines) for name, lines in played.items()}

    def pairs(self) -> tuple[list[EpisodeLine], list[EpisodeLine]]:
        """Return the closing episodes of the default and of the winner, start by start."""
        sides: tuple[list[EpisodeLine], list[EpisodeLine]] = [], []
        names = (self.plan.candidates[0].name, self.winner)
        for task, seed in self.plan.starts_from(FRESH, self.plan.pairs):
            lines = [self.counted.get((name, task, seed)) for name in names]
            if lines[0] is None or lines[1] is None or not self.winner:
                break
            sides[0].append(lines[0])
            sides[1].append(lines[1])
        return sides

    def _decide(self) -> list[str]:
        return self._decide_pairs() if self.phase == "pairs" else self._decide_round()

    def _decide_round(self) -> list[str]:
        said: list[str] = []
        tasks, remaining = len(self.plan.tasks), self._remaining
        everything = self.played_in_rounds()
        played = {name: everything[name] for name in remaining}
        over = self._place == self._round_ends
        if not any(each.success for episodes in everything.values() for each in episodes):
            return self._without_success(sum(map(len, everything.values())), over)
        if not over and self._place % (LOOKS * tasks):
            return said
        leader = ranked(played)[0]
        # The leader is chosen by the same episodes, so every pair counts; each may differ in success and in time.
        level = each_pair(len(self.candidates), each_of(2, LEVEL))
        for name in remaining:
            if name != leader and (why := shown_worse(played[leader], played[name], level, tasks)):
                self.left[name] = why
                said.append(f"{name}: shown to be worse in {why} than {leader}, at {len(played[name])} episodes")
        if over:
            played = {name: played[name] for name in self._remaining}
            for name in played.keys() - set(best(played, -(-len(remaining) // 2))):
                self.left[name] = "rank"
            self._round += 1
        if len(self._remaining) == 1 or self._round == len(self.plan.rounds):
            self.winner = ranked({name: played[name] for name in self._remaining})[0]
            for name in set(self._remaining) - {self.winner}:
                self.left[name] = "rank"
            if self.winner == self.candidates[0].name:
                self.phase = "over"
            else:
                self.phase = "pairs"
                self._begin(self.plan.starts_from(FRESH, self.plan.pairs))
            said.append(f"best in the rounds: {self.winner}")
        elif over:
            said.append(f"{len(self._remaining)} of {len(self.plan.candidates)} settings are played on")
        return said

    def _without_success(self, episodes: int, over: bool) -> list[str]:
        """End a hopeless search. Nothing is ranked before the first success."""
        self._round += over
        if episodes < HOPELESS and self._round < len(self.plan.rounds):
            return []
        self.hopeless, self.phase = True, "over"
        return [f"no setting succeeded in {episodes} episodes: nothing can be tuned"]

    def _decide_pairs(self) -> list[str]:
        """End the closing pairs once success is shown to differ, or both are decided, or the pairs are used up.

        Where a difference of success was seen that matters, "not worse" does not end them: it may still be shown.
        """
        tasks, last = len(self.plan.tasks), self._place == len(self._starts)
        if self._place % (LOOKS * tasks) and not last:
            return []
        first, second = map(ends_of, self.pairs())
        differences = [int(b.success) - int(a.success) for a, b in zip(first, second, strict=True)]
        success = decide(differences, self.plan.margin, each_of(2, LEVEL), tasks).kind
        time = judge_times(first, second, each_of(2, LEVEL), tasks).kind
        alike = abs(sum(differences)) <= MARGIN * len(differences)
        settled = success in ("better", "worse") or (success != "undecided" and time != "not shown" and alike)
        if settled or last:
            self.phase = "over"
        return []
