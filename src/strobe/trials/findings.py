"""Rules on trials: where they were not run as planned, and what the order of a pair does."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.core.findings.texts import Found, finding
from strobe.core.findings.thresholds import Thresholds
from strobe.trials.results import TrialsResult

MOST_LISTED = 8
SURE = 0.01  # the p-value below which second trials of a pair differ from first ones


@finding("trials-half-pairs", "warning")
def half_run(result: TrialsResult, _: Thresholds) -> Found:
    """{count} pair{count:plural} {have} one trial, and {do} not count.

    Found: One of two trials is filled in: {listed}.
    Why: A verdict in pairs needs both trials. If pairs are given up after a bad first trial, the others look better
        than the settings are.
    Do: Run the missing trial from the same start, or write its outcome down.
    """
    last = max((trial.pair for trial in result.trials), default=0)
    yield from _pairs([pair for pair in result.half_run if pair < last], ("has", "have"), ("does", "do"))


@finding("trials-passed-over", "info")
def passed_over(result: TrialsResult, _: Thresholds) -> Found:
    """{count} pair{count:plural} {have} not run, and later ones were.

    Found: No trial is filled in: {listed}.
    Why: If pairs are left out for a reason that has to do with the settings, the others do not stand for all.
    Do: Run them, or say in the note why not.
    """
    yield from _pairs(result.passed_over, ("was", "were"))


@finding("trials-order", "warning")
def other_order(result: TrialsResult, _: Thresholds) -> Found:
    """{count} pair{count:plural} {have} not run in the order that was drawn.

    Found: The codes differ from those of the plan: {listed}.
    Why: A drawn order keeps what changes with time, such as a warm gripper, from favouring one setting. An order that
        somebody chose does not.
    Do: Take the rows from the top. If the codes were only typed wrong, fix them.
    """
    yield from _pairs(result.other_order, ("was", "were"))


@finding("trials-start", "warning")
def other_start(result: TrialsResult, _: Thresholds) -> Found:
    """{count} pair{count:plural} {have} two different starts.

    Found: The column condition differs between the two trials: {listed}.
    Why: If one start is easier, the pair compares starts and not settings.
    Do: Bring the scene to the same start for both trials of a pair. If the words mean the same start, write them alike.
    """
    yield from _pairs(result.other_start, ("has", "have"))


@finding("trials-place", "warning")
def place_in_pair(result: TrialsResult, _: Thresholds) -> Found:
    """The second trial of a pair succeeds {often} often than the first, with either setting.

    Found: Of {places.pairs} pairs, only the first trial succeeded in {places.lost} and only the second in {places.won}
        (McNemar's exact test: p = {places.p:.2g}).
    Why: Something changes between the two trials of a pair: the scene is not brought back as it was, the operator
        learns, a motor grows warm. The drawn order spreads that over both settings. It still hides a small difference.
    Do: Bring the scene back in the same way before each trial, and let the motors rest for as long.
    """
    places = result.places
    if places is not None and places.p < SURE:
        often = "more" if places.won > places.lost else "less"
        yield {"pairs": float(places.pairs), "first": float(places.lost), "second": float(places.won)}, locals()


def _pairs(pairs: Sequence[int], have: tuple[str, str], do: tuple[str, str] = ("", "")) -> Found:
    if pairs:
        count, several = len(pairs), len(pairs) != 1
        shown = f"{', '.join(map(str, pairs[:MOST_LISTED]))}{' …' if count > MOST_LISTED else ''}"
        listed = f"pair{'s' * several} {shown}"
        yield {"pairs": float(count)}, {"count": count, "have": have[several], "do": do[several], "listed": listed}


RULES = (half_run, passed_over, other_order, other_start, place_in_pair)
