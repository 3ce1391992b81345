"""Better, worse, not worse by more than a margin, or undecided: paired episodes, always with their interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from strobe.core.measure.statistics import centre
from strobe.core.measure.verdicts import FEWEST_PAIRS
from strobe.core.results.data import Interval
from strobe.core.results.numerals import significant
from strobe.evaluate.measure.planning import fewest_pairs_apart
from strobe.evaluate.measure.success_rates import LEVEL, count_in_whole_rounds, decide
from strobe.evaluate.measure.time_to_task import episode_ends, judge_times, time_unjudged_reason
from strobe.evaluate.pairs import Decision, EpisodePair, EpisodesKind, PairedEpisodes, verdict_in_words

MARGIN = 0.1  # loss of success rate that counts as not worse where nothing is said, as for `strobe evaluate`
# A difference of reward that matters: a share of what the baseline's own episodes differ by (half of Cohen's small
# effect), and of their mean, which is what there is where they do not differ.
OF_SPREAD, OF_MEAN = 0.1, 0.01


def judge(
    pairs: Sequence[EpisodePair],
    *,
    baseline: str,
    candidate: str,
    environment: str,
    planned: int | None = None,
    margin: float = MARGIN,
    every: int = 1,
    level: float = LEVEL,
) -> PairedEpisodes:
    """Judge paired episodes by their success rates; by reward where neither side ever succeeded.

    The verdict on success is `success_rates.decide`'s: it may be asked for after each pair. That on reward is
    for one look, at the number of pairs at which ``decide`` ends: where neither ever succeeds, that number is known
    beforehand. It claims a difference only where the interval excludes all that do not matter (`least_of`). Where every
    action of every pair is the same, there is nothing to judge: the two are the same there. Pairs of a round that is
    not complete are shown and not judged, unless it is the first.

    Args:
        pairs: in the order in which they were played.
        planned: pairs that were asked for; None for as many as there are.
        margin: loss of success rate that counts as not worse, above 0 and below 1, stated beforehand.
        every: pairs in a round, where tasks are played in turn.

    Raises:
        ValueError: no pairs.
    """
    if not pairs:
        raise ValueError("no pairs of episodes to judge")
    counted = pairs[: count_in_whole_rounds(len(pairs), every)]
    decision = decide(pair_differences(counted), margin, level, every)
    names = (baseline, candidate, environment)
    judged = _judge_success_or_reward(names, pairs, counted, decision, level)
    judged.planned = planned or len(counted)
    judged.margin = margin
    judged.sentence = _sentence(judged, len(counted))
    _judge_time(judged, counted, level, every)
    return judged


def _judge_success_or_reward(
    names: tuple[str, str, str],
    pairs: Sequence[EpisodePair],
    counted: Sequence[EpisodePair],
    decision: Decision,
    level: float,
) -> PairedEpisodes:
    """Return the verdict without its words: on success, and on reward where neither side ever succeeded.

    Args:
        names: of the baseline, the candidate and the environment.
        counted: those of ``pairs`` that are in whole rounds.
    """
    count = len(counted)
    reward, reward_interval = _reward_difference(counted, level)
    least = least_reward_difference([pair.baseline.reward for pair in counted])
    succeeded = any(pair.baseline.success or pair.candidate.success for pair in counted)
    kind = _kind_by_success(decision, count, level) if succeeded else _kind_by_reward(reward_interval, least)
    return PairedEpisodes(
        baseline=names[0],
        candidate=names[1],
        environment=names[2],
        planned=count,
        pairs=list(pairs),
        kind="the same" if all(pair.same for pair in pairs) else kind,
        by="success" if succeeded else "reward",
        baseline_success=sum(pair.baseline.success for pair in counted) / count,
        candidate_success=sum(pair.candidate.success for pair in counted) / count,
        success=sum(pair_differences(counted)) / count,
        success_interval=decision.interval,
        possible_drop=max(0.0, -decision.interval.low),
        decided=decision.pairs,
        reward=reward,
        reward_interval=reward_interval,
        reward_least=least,
        sentence="",
    )


def _judge_time(judged: PairedEpisodes, counted: Sequence[EpisodePair], level: float, every: int) -> None:
    first, second = episode_ends(pair.baseline for pair in counted), episode_ends(pair.candidate for pair in counted)
    judged.time_not_judged = time_unjudged_reason(second, first)
    if not judged.time_not_judged:
        judged.time = judge_times(first, second, level, every)


def _reward_difference(pairs: Sequence[EpisodePair], level: float) -> tuple[float, Interval | None]:
    """Return candidate − baseline in reward, and its interval; None for fewer than `FEWEST_PAIRS` pairs."""
    differences = np.array([pair.candidate.reward - pair.baseline.reward for pair in pairs])
    middle, low, high, reached = centre(differences, level)
    return middle, Interval(low=low, high=high, level=reached) if len(pairs) >= FEWEST_PAIRS else None


def _kind_by_success(decision: Decision, count: int, level: float) -> EpisodesKind:
    if decision.kind != "undecided":
        return decision.kind
    return "too few" if count < fewest_pairs_apart(level) else "no difference shown"


def _kind_by_reward(interval: Interval | None, least: float) -> EpisodesKind:
    if interval is None:
        return "too few"
    if interval.low > least or interval.high < -least:
        return "better" if interval.low > least else "worse"
    return "no difference shown"


def least_reward_difference(rewards: Sequence[float]) -> float:
    """The least difference of reward that matters, from the baseline's ``rewards``; 0 where they are all 0."""
    values = np.asarray(rewards, float)
    return float(max(OF_SPREAD * values.std(), OF_MEAN * np.abs(values).mean()))


def pair_differences(pairs: Sequence[EpisodePair]) -> list[int]:
    """Candidate − baseline of each pair: −1 where only the baseline succeeded, 1 where only the candidate, else 0."""
    return [int(pair.candidate.success) - int(pair.baseline.success) for pair in pairs]


def _sentence(judged: PairedEpisodes, count: int) -> str:
    where = f"in {count} paired episode{'s' * (count != 1)} of {judged.environment}"
    success = f"success {_percent(judged.candidate_success)} vs {_percent(judged.baseline_success)}"
    ends = judged.success_interval
    points, *between = (significant(100 * share, plus=True) for share in (judged.success, ends.low, ends.high))
    shown = (
        f"{success}, {points} points [{', '.join(between)}] "
        f"({100 * ends.level:.3g} % interval, valid at any number of pairs)"
    )
    if judged.by == "reward":
        shown = f"neither ever succeeded; reward {significant(judged.reward, 4, plus=True)}"
        if (ends := judged.reward_interval) is not None:
            between = [significant(end, 4, plus=True) for end in (ends.low, ends.high)]
            shown += f" [{', '.join(between)}] ({100 * ends.level:.3g} % interval)"
        if judged.reward_least:
            shown += f"; a difference up to {significant(judged.reward_least)} does not count"
    names = f"{judged.candidate} vs {judged.baseline}"
    if judged.kind == "the same":
        return f"{names}: every action is bit-identical {where} ({success})"
    if judged.kind == "too few":
        enough = FEWEST_PAIRS if judged.by == "reward" else fewest_pairs_apart(judged.success_interval.level)
        return f"{names}: inconclusive, needs {enough} paired episodes, has {count}: {shown}"
    if judged.kind == "no difference shown":
        return f"{names}: inconclusive {where}: {shown}"
    if judged.kind == "not worse by more than the margin":
        return f"{names}: {verdict_in_words(judged.kind, judged.margin or MARGIN)} {where}: {shown}"
    return f"{judged.candidate} does {judged.kind} than {judged.baseline} {where}: {shown}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
