"""Better, worse, or no difference that these episodes can show: paired episodes, always with their interval."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from strobe.measure.intervals import centre
from strobe.measure.verdicts import FEWEST_PAIRS
from strobe.results.data import Interval
from strobe.results.episodes import EpisodePair, PairedEpisodes

LEVEL = 0.95  # episodes are dear: timings are judged at 99 %


def judge(
    pairs: Sequence[EpisodePair], *, baseline: str, candidate: str, environment: str, planned: int | None = None
) -> PairedEpisodes:
    """Judge paired episodes by their success rates; by reward where neither side ever succeeded.

    A difference is claimed where the interval excludes 0, with six pairs or more. Where every action of every pair is
    the same, there is nothing to judge: the two are the same there.

    Args:
        planned: pairs that were asked for; None for as many as there are.

    Raises:
        ValueError: no pairs.
    """
    if not pairs:
        raise ValueError("no pairs of episodes to judge")
    count = len(pairs)
    lost = sum(pair.baseline.success and not pair.candidate.success for pair in pairs)
    won = sum(pair.candidate.success and not pair.baseline.success for pair in pairs)
    success = (won - lost) / count
    success_interval = paired_interval(lost, won, count)
    differences = np.array([pair.candidate.reward - pair.baseline.reward for pair in pairs])
    reward, low, high, reached = centre(differences, LEVEL)
    enough = count >= FEWEST_PAIRS
    reward_interval = Interval(low=low, high=high, level=reached) if enough else None
    succeeded = any(pair.baseline.success or pair.candidate.success for pair in pairs)
    decisive = success_interval if succeeded else reward_interval
    if all(pair.same for pair in pairs):
        kind = "the same"
    elif decisive is None or not enough:
        kind = "too few"
    elif decisive.low > 0 or decisive.high < 0:
        kind = "better" if decisive.low > 0 else "worse"
    else:
        kind = "no difference shown"
    judged = PairedEpisodes(
        baseline=baseline,
        candidate=candidate,
        environment=environment,
        planned=planned or count,
        pairs=list(pairs),
        kind=kind,
        by="success" if succeeded else "reward",
        baseline_success=sum(pair.baseline.success for pair in pairs) / count,
        candidate_success=sum(pair.candidate.success for pair in pairs) / count,
        success=success,
        success_interval=success_interval,
        possible_drop=0.0 if kind == "the same" else max(0.0, -success_interval.low),
        reward=reward,
        reward_interval=reward_interval,
        sentence="",
    )
    judged.sentence = _sentence(judged)
    return judged


def paired_interval(lost: int, won: int, pairs: int, level: float = LEVEL) -> Interval:
    """Interval of the difference of two success rates seen on the same starts: won − lost, over all pairs.

    Bonett and Price's adjusted interval ("Adjusted Wald confidence interval for a difference of binomial proportions
    based on paired data", Journal of Educational and Behavioral Statistics 37, 2012), which holds its level with few
    pairs (Fagerland, Lydersen and Laake, Statistics in Medicine 33, 2014).

    Args:
        lost, won: pairs in which only the baseline, only the candidate succeeded.
    """
    from scipy import stats

    first, second = (lost + 1) / (pairs + 2), (won + 1) / (pairs + 2)
    difference = second - first
    deviation = math.sqrt((first + second - difference**2) / (pairs + 2))
    reach = float(stats.norm.ppf((1 + level) / 2)) * deviation
    return Interval(low=max(-1.0, difference - reach), high=min(1.0, difference + reach), level=level)


def pairs_for(drop: float) -> int:
    """The fewest pairs that can exclude a loss of success rate above ``drop``: if none of them differs."""
    pairs = FEWEST_PAIRS
    while -paired_interval(0, 0, pairs).low > drop:
        pairs += 1
    return pairs


def _sentence(judged: PairedEpisodes) -> str:
    count = len(judged.pairs)
    where = f"in {count} paired episode{'s' * (count != 1)} of {judged.environment}"
    seen = f"success {_percent(judged.candidate_success)} against {_percent(judged.baseline_success)}"
    ends = judged.success_interval
    shown = (
        f"{seen}, {100 * judged.success:+.3g} points [{100 * ends.low:+.3g}, {100 * ends.high:+.3g}] "
        f"({100 * ends.level:.3g} % interval)"
    )
    if judged.by == "reward":
        shown = f"neither ever succeeded; reward {judged.reward:+.4g}"
        if (ends := judged.reward_interval) is not None:
            shown += f" [{ends.low:+.4g}, {ends.high:+.4g}] ({100 * ends.level:.3g} % interval)"
    names = f"{judged.candidate} against {judged.baseline}"
    if judged.kind == "the same":
        return f"{names}: every action is the same to the bit {where} ({seen})"
    if judged.kind == "too few":
        return f"{names}: too few episodes to judge ({count}, at least {FEWEST_PAIRS} needed): {shown}"
    if judged.kind == "no difference shown":
        return f"{names}: no difference shown {where}: {shown}"
    return f"{judged.candidate} does {judged.kind} than {judged.baseline} {where}: {shown}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
