"""Paired episodes → their part of the document: success and reward side by side, and each pair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from strobe.core.report.document import Column, Row, Section, Table, heads
from strobe.core.results import units
from strobe.core.results.numerals import significant
from strobe.evaluate.pairs import OLDER, PairedEpisodes, time_in_words

KEY = "episodes"
ABOUT = (
    "Pairs of episodes from the same starts with the same noise, played as lerobot-eval plays them, one at a time. "
    "Reward is the sum over an episode. If an episode ends with its success, more reward is not better. The "
    "difference is the centre of the pairs' differences."
)
# Whether the baseline succeeded, and the candidate → how the pair ended.
ENDS = {
    (True, True): "both succeed",
    (True, False): "only {baseline} succeeds",
    (False, True): "only {candidate} succeeds",
    (False, False): "neither succeeds",
}


def answers(judged: Sequence[PairedEpisodes]) -> list[str]:
    """Return a sentence for each candidate that was played."""
    return [f"{played.sentence}.{_time(played)}" for played in judged]


def sections(judged: Sequence[PairedEpisodes]) -> list[Section]:
    """Return both sides' figures with what came of it, and in detail every pair."""
    shown = []
    for index, played in enumerate(judged):
        title = f"Paired episodes: {played.candidate} against {played.baseline}"
        about = [ABOUT, _ends(played), _same(played), _describe_time(played)]
        about += [f"Refused: {played.broken}."] if played.broken else []
        if len(played.pairs) < played.planned:
            how = "Interrupted" if played.decided is None else "Decided early"
            about.append(f"{how}: {len(played.pairs)} of {played.planned} pairs were played.")
        shown.append(Section(f"{KEY}-{index}", title, _sides(played), about))
        shown.append(Section(f"{KEY}-{index}-pairs", f"{title}, pair by pair", _pairs(played), detail=True))
    return shown


def _time(played: PairedEpisodes) -> str:
    """Return the verdict on time to task as a sentence after that on success."""
    if played.time is None:
        return ""
    worse = "it succeeds less often; " if played.kind == "worse" else ""
    before = "success is undecided; " if played.is_undecided else worse
    return f" Time to task: {before}{played.candidate} {time_in_words(played.time)}."


def _describe_time(played: PairedEpisodes) -> str:
    if played.time is None:
        return f"Time to task is not judged: {played.time_not_judged or OLDER}."
    time = played.time
    counts = f"It is sooner in {time.sooner} and later in {time.later} of {units.count(time.pairs, 'pair')}"
    return f"Time to task, by the median pair: {played.candidate} {time_in_words(time)}. {counts}."


def _sides(played: PairedEpisodes) -> Table:
    rows = []
    for name, share, sides in (
        (played.baseline, played.baseline_success, [pair.baseline for pair in played.pairs]),
        (played.candidate, played.candidate_success, [pair.candidate for pair in played.pairs]),
    ):
        # Divided before they are added: no sum of rewards may leave the range of a float.
        means = [sum(getattr(side, of) / len(sides) for side in sides) for of in ("reward", "best_reward", "ticks")]
        rows.append(Row([name, units.percent(share), *map(units.number, means)]))
    success, ends, reward = played.success, played.success_interval, played.reward_interval
    points = [f"{significant(100 * value, plus=True)}" for value in (success, ends.low, ends.high)]
    rows.append(Row(["difference", f"{points[0]} points", significant(played.reward, 4, plus=True), None, None]))
    span = reward and f"{significant(reward.low, 4, plus=True)} to {significant(reward.high, 4, plus=True)}"
    level = f"{100 * ends.level:.3g} % CI"
    rows.append(Row([level, f"{points[1]} to {points[2]}", span, None, None]))
    return Table(heads("< | Success | Reward (mean) | Best reward (mean) | Control ticks (mean)"), rows)


def _pairs(played: PairedEpisodes) -> Table:
    names = [played.baseline, played.candidate]
    columns = heads("<Task | Seed")
    for name in names:
        columns += [Column(f"{name}: ended", numeric=False), Column("Reward"), Column("Ticks")]
    columns += [Column("Actions the same for (ticks)"), Column("Largest difference of actions")]
    rows = []
    for pair in played.pairs:
        cells: list[str | None] = [pair.task, str(pair.seed)]
        for side in (pair.baseline, pair.candidate):
            cells += ["success" if side.success else "failure", units.number(side.reward), str(side.ticks)]
        rows.append(Row([*cells, str(pair.same_ticks), units.number(pair.largest_error, 3)]))
    return Table(columns, rows)


def _ends(played: PairedEpisodes) -> str:
    counts = Counter((pair.baseline.success, pair.candidate.success) for pair in played.pairs)
    names = {"baseline": played.baseline, "candidate": played.candidate}
    ends = ", ".join(f"in {counts[ended]} {words.format(**names)}" for ended, words in ENDS.items() if counts[ended])
    return f"Of {units.count(len(played.pairs), 'pair')}: {ends}."


def _same(played: PairedEpisodes) -> str:
    same = sum(pair.same for pair in played.pairs)
    if same == len(played.pairs):
        return "Every action of every pair is bit-identical."
    largest = max(pair.largest_error for pair in played.pairs)
    opening = f"In {same} every action is bit-identical. In the others two" if same else "Two"
    return (
        f"{opening} actions of one tick differ by up to {largest:.3g}, in the action's own units: the simulator makes "
        "a small difference grow."
    )
