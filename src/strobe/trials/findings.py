"""Rules on trials: where they were not run as planned, and what the order of a pair does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strobe.core.findings.thresholds import Thresholds
from strobe.core.results import units
from strobe.core.results.finding import Finding, info, warning
from strobe.trials.results import TrialsResult

MOST_LISTED = 8
SURE = 0.01  # the p-value below which second trials of a pair differ from first ones


def half_run(result: TrialsResult, _: Thresholds) -> Iterator[Finding]:
    last = max((trial.pair for trial in result.trials), default=0)
    if pairs := [pair for pair in result.half_run if pair < last]:
        does = "has one trial, and does" if len(pairs) == 1 else "have one trial, and do"
        yield warning(
            rule="trials-half-pairs",
            title=f"{units.count(len(pairs), 'pair')} {does} not count",
            found=f"One of two trials is filled in: {_list_pairs(pairs)}.",
            why="A verdict in pairs needs both trials. If pairs are given up after a bad first trial, the others look "
            "better than the settings are.",
            do="Run the missing trial from the same start, or write its outcome down.",
        )


def passed_over(result: TrialsResult, _: Thresholds) -> Iterator[Finding]:
    if pairs := result.passed_over:
        yield info(
            rule="trials-passed-over",
            title=f"{units.count(len(pairs), 'pair')} {'was' if len(pairs) == 1 else 'were'} not run, and later ones "
            "were",
            found=f"No trial is filled in: {_list_pairs(pairs)}.",
            why="If pairs are left out for a reason that has to do with the settings, the others do not stand for all.",
            do="Run the pairs that were left out, or say in the note why not.",
        )


def other_order(result: TrialsResult, _: Thresholds) -> Iterator[Finding]:
    if pairs := result.other_order:
        were = "was" if len(pairs) == 1 else "were"
        yield warning(
            rule="trials-order",
            title=f"{units.count(len(pairs), 'pair')} {were} not run in the order that was drawn",
            found=f"The codes differ from those of the plan: {_list_pairs(pairs)}.",
            why="A drawn order keeps what changes with time, such as a warm gripper, from favouring one setting. An "
            "order that somebody chose does not.",
            do="Take the rows from the top. If the codes were only typed wrong, fix them.",
        )


def other_start(result: TrialsResult, _: Thresholds) -> Iterator[Finding]:
    if pairs := result.other_start:
        yield warning(
            rule="trials-start",
            title=f"{units.count(len(pairs), 'pair')} {'has' if len(pairs) == 1 else 'have'} two different starts",
            found=f"The column condition differs between the two trials: {_list_pairs(pairs)}.",
            why="If one start is easier, the pair compares starts and not settings.",
            do="Bring the scene to the same start for both trials of a pair. If the words mean the same start, write "
            "them alike.",
        )


def place_in_pair(result: TrialsResult, _: Thresholds) -> Iterator[Finding]:
    places = result.places
    if places is not None and places.p < SURE:
        often = "more" if places.won > places.lost else "less"
        yield warning(
            rule="trials-place",
            title=f"The second trial of a pair succeeds {often} often than the first, with either setting",
            found=f"Of {places.pairs} pairs, only the first trial succeeded in {places.lost} and only the second in "
            f"{places.won} (McNemar's exact test: p = {places.p:.2g}).",
            why="Something changes between the two trials of a pair: the scene is not brought back as it was, the "
            "operator learns, a motor grows warm. The drawn order spreads that over both settings. It still hides a "
            "small difference.",
            do="Bring the scene back in the same way before each trial, and let the motors rest for as long.",
        )


def _list_pairs(pairs: Sequence[int]) -> str:
    shown = ", ".join(map(str, pairs[:MOST_LISTED]))
    return f"pair{units.plural(len(pairs))} {shown}{' …' if len(pairs) > MOST_LISTED else ''}"


RULES = (half_run, passed_over, other_order, other_start, place_in_pair)
