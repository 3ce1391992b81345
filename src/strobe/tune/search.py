"""The order in which a tuning plays its episodes: rounds that halve the settings, then the winner against the default.

The rounds are successive halving (Jamieson and Talwalkar, "Non-stochastic best arm identification and hyperparameter
optimization", AISTATS 2016): in each round the settings that remain play further starts, and the better half goes on.
There, a round's share of the budget is the same for all, so that a setting plays as many starts in a round as in all
rounds before. Here each round has as many starts as the others, because the best of many is lost in the first round
more than in later ones (`benchmarks/tune.py`: 2.5 instead of 7 %). A setting that bets show to be worse than the leader
(`measure.best_arm.shown_worse`) goes earlier, and what it does not play makes the later rounds longer. All play the
same starts.

A winner chosen among many looks better than it is. So the rounds claim nothing: the winner then plays against
the default in held-out pairs, on new starts, and that verdict holds at any number of them.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from strobe.core.measure.statistics import bonferroni
from strobe.evaluate.episode_log import EpisodeLine, Key
from strobe.evaluate.episodes.play import Order, Pairs, Plan, Start
from strobe.evaluate.measure.best_arm import MARGIN, best, bonferroni_pairs, rank_settings, shown_worse
from strobe.evaluate.measure.success_rates import LEVEL, decide
from strobe.evaluate.measure.time_to_task import Ended, episode_ends, judge_times

if TYPE_CHECKING:  # torch is not needed here, and takes seconds
    from strobe.evaluate.episodes.play import Candidate

SHARE = 0.35  # most episodes in the rounds, as a share of an exhaustive search's
FEWEST = 2  # starts of the first round, however few there are
HELD_OUT = 1_000_000  # added to the seed, for the starts of the closing pairs
LOOKS = 8  # starts between two looks at what bets show; they may be looked at at any time, and each look takes a moment
# Episodes without a success, of all settings together, after which none is looked for; and starts, because the settings
# share them: a policy that succeeds from one start in three fails from five of them 13 times in 100, with any setting.
HOPELESS, HOPELESS_STARTS = 40, 16
Phase = Literal["rounds", "pairs", "over"]
Why = Literal["success", "time", "rank"]


@dataclass(frozen=True)
class SearchPlan(Plan):
    """The episodes that may be played: of each setting in the rounds what an exhaustive search would play, at most.

    The first candidate is the default, which the winner is judged against.

    Args:
        held_out: further starts on each task for the winner and the default, at most.
    """

    held_out: int = 0

    @property
    def rounds(self) -> int:
        """Rounds until one setting remains, if each halves them."""
        return max(1, math.ceil(math.log2(len(self.candidates))))

    def round_end(self, number: int, before: int, settings: int, spent: int) -> int:
        """Return the starts on each task after which a round ends.

        The rounds that are left have equally many. Together they play what `SHARE` allows, if no setting goes early.

        Args:
            number: of the round, from 0 on.
            before: starts on each task that were played before it.
            settings: those that play it.
            spent: episodes on each task, of all settings, that were played before it.
        """
        playing = [-(-settings // 2**later) for later in range(self.rounds - number)]
        allowed = round(SHARE * len(self.candidates) * self.episodes - spent, 6)
        more = math.floor(allowed / sum(count for count in playing if count > 1 or count == settings))
        return min(self.episodes, before + max(more, FEWEST if not number else 1))


class Search(Order):
    """How far a tuning was played; an order of `strobe.evaluate.episodes.play`.

    Attributes:
        left: setting → why it was played no further: shown to be worse than the leader in 'success' or 'time', or seen
            to be behind others ('rank').
        hopeless: whether no setting succeeded, so that none can be found.
        winner: the best in the rounds; None before their end.
    """

    def __init__(self, plan: SearchPlan) -> None:
        super().__init__(plan.candidates, plan.tasks, plan.starts())
        self.plan = plan
        self.left: dict[str, Why] = {}
        self.hopeless = False
        self.phase: Phase = "rounds"
        self.winner: str | None = None
        self._round, self._end = 0, plan.round_end(0, 0, len(plan.candidates), 0)

    @property
    def playing(self) -> list[Candidate]:
        """The settings that are played on; in the closing pairs the default and the winner."""
        default = self.candidates[0].name
        names = {default, self.winner} if self.phase == "pairs" else self._remaining
        return [candidate for candidate in self.candidates if candidate.name in names]

    @property
    def _is_settled(self) -> bool:
        return self.phase == "over"

    @property
    def _remaining(self) -> list[str]:
        return [each.name for each in self.candidates if each.name not in self.left]

    @property
    def _ahead(self) -> int:
        return self._round_ends if self.phase == "rounds" else len(self._starts)

    @property
    def _round_ends(self) -> int:
        return self._end * len(self.plan.tasks)

    @property
    def _last(self) -> bool:
        return self._round + 1 == self.plan.rounds or self._end == self.plan.episodes

    def remaining(self, played: Container[Key]) -> int:
        """Return how many episodes are still to be played, at most, with the closing pairs."""
        tasks, ahead = len(self.plan.tasks), 0
        if self.phase == "pairs":
            return super().remaining(played)
        plan, before, end, count = self.plan, self._place // tasks, self._end, len(self.playing)
        spent = sum(map(len, self.played_in_rounds().values())) // tasks
        for number in range(self._round, plan.rounds):
            ahead += count * (end - before)
            before, count = end, -(-count // 2)
            end = plan.round_end(number + 1, before, count, spent + ahead) if number + 1 < plan.rounds else before
        return ahead * tasks + 2 * plan.held_out * tasks

    def played_in_rounds(self) -> dict[str, list[Ended]]:
        """Return the episodes of each setting in the rounds, in their order."""
        played: dict[str, list[EpisodeLine]] = {candidate.name: [] for candidate in self.candidates}
        for (name, _, seed), line in self.counted.items():
            if seed < self.plan.seed + HELD_OUT:
                played[name].append(line)
        return {name: episode_ends(lines) for name, lines in played.items()}

    def pairs(self) -> Pairs:
        """Return the closing episodes of the default and of the winner, start by start."""
        return self.plan.pairs(self.counted, self.winner, self._held_out_starts()) if self.winner else []

    def _held_out_starts(self) -> Iterator[Start]:
        return self.plan.starts(HELD_OUT, self.plan.held_out)

    def _decide(self) -> list[str]:
        return self._decide_pairs() if self.phase == "pairs" else self._decide_round()

    def _decide_round(self) -> list[str]:
        said: list[str] = []
        tasks, remaining = len(self.plan.tasks), self._remaining
        everything = self.played_in_rounds()
        played = {name: everything[name] for name in remaining}
        over = self._place == self._round_ends
        if not any(each.success for episodes in everything.values() for each in episodes):
            return self._stop_if_hopeless(sum(map(len, everything.values())), over)
        if not over and self._place % (LOOKS * tasks):
            return said
        leader = rank_settings(played)[0]
        # The leader is chosen by the same episodes, so every pair counts; each may differ in success and in time.
        level = bonferroni_pairs(len(self.candidates), bonferroni(2, LEVEL))
        for name in remaining:
            if name != leader and (why := shown_worse(played[leader], played[name], level, tasks)):
                self.left[name] = why
                said.append(f"{name}: worse in {why} than {leader}, after {len(played[name])} episodes")
        if over:
            played = {name: played[name] for name in self._remaining}
            for name in played.keys() - set(best(played, -(-len(remaining) // 2))):
                self.left[name] = "rank"
        if len(self._remaining) == 1 or (over and self._last):
            self.winner = rank_settings({name: played[name] for name in self._remaining})[0]
            for name in set(self._remaining) - {self.winner}:
                self.left[name] = "rank"
            if self.winner == self.candidates[0].name:
                self.phase = "over"
            else:
                self.phase = "pairs"
                self._begin(self._held_out_starts())
            said.append(f"best of the selection phase: {self.winner}")
        elif over:
            self._begin_round()
            said.append(f"{len(self._remaining)} of {len(self.plan.candidates)} settings remain")
        return said

    def _stop_if_hopeless(self, episodes: int, over: bool) -> list[str]:
        enough = episodes >= HOPELESS and self._place >= HOPELESS_STARTS
        if enough or (over and self._last):
            self.hopeless, self.phase = True, "over"
            return [f"no setting succeeded in {episodes} episodes: the search ends"]
        if over:
            self._begin_round()
        return []

    def _begin_round(self) -> None:
        spent = sum(map(len, self.played_in_rounds().values())) // len(self.plan.tasks)
        self._round += 1
        self._end = self.plan.round_end(self._round, self._end, len(self._remaining), spent)

    def _decide_pairs(self) -> list[str]:
        """End the closing pairs once success is shown to differ, or both are decided, or the pairs are used up.

        Where a difference of success was seen that matters, "not worse" does not end them: it may still be shown.
        """
        tasks, last = len(self.plan.tasks), self._place == len(self._starts)
        if self._place % (LOOKS * tasks) and not last:
            return []
        first, second = (episode_ends(side) for side in zip(*self.pairs(), strict=True))
        differences = [int(b.success) - int(a.success) for a, b in zip(first, second, strict=True)]
        success = decide(differences, self.plan.margin, bonferroni(2, LEVEL), tasks).kind
        time = judge_times(first, second, bonferroni(2, LEVEL), tasks).kind
        alike = abs(sum(differences)) <= MARGIN * len(differences)
        settled = success in ("better", "worse") or (success != "undecided" and time != "not shown" and alike)
        if settled or last:
            self.phase = "over"
        return []
