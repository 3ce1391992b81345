"""Every answer that can be kept has its outline, its plots and its rules.

Another package's rules name the answers that they are for.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest
from support.checks.golden import BY_STUDY

from strobe.budget.results import Budget
from strobe.core import kinds, slices
from strobe.core.findings import Thresholds
from strobe.core.findings.rules import declare_answers
from strobe.core.results.answer import Answer, Result
from strobe.core.results.finding import Finding
from strobe.core.results.units import plain
from strobe.core.runs import store
from strobe.sweep.results import Sweep
from strobe.train.results import TrainResult


def test_every_answer_that_can_be_kept_has_a_kind():
    assert set(slices.kinds()) == set(BY_STUDY)
    for study, kind in slices.kinds().items():
        assert slices.load(kind.answer).model_fields["study"].default == study


@pytest.mark.parametrize("study", BY_STUDY)
def test_every_kind_is_shown_and_judged(study: str):
    answer = store.load_answer(BY_STUDY[study])
    assert answer.study == study
    assert kinds.document(answer).answers[0] == plain(kinds.headline(answer))
    assert any(kinds.figures(answer).values()) == (study != "doctor")  # a self-check is a line of words
    assert not [finding for finding in kinds.advise(answer) if finding.rule == "rule-failed"]


# Rules of another package, each for other answers.


def yield_finding(rule: str) -> Iterator[Finding]:
    yield Finding(rule=rule, level="good", title=rule, found="1 thing", why="It does.")


def unmarked_rule(answer: Answer, _: Thresholds) -> Iterator[Finding]:
    return yield_finding("unmarked")


@declare_answers(TrainResult, Sweep)
def asks_for_two(answer: TrainResult | Sweep, _: Thresholds) -> Iterator[Finding]:
    return yield_finding("asks for two")


@declare_answers(Result)
def asks_for_what_is_measured(answer: Result, _: Thresholds) -> Iterator[Finding]:
    return yield_finding("asks for what is measured")


@declare_answers(Budget)
def breaks(answer: Budget, _: Thresholds) -> Iterator[Finding]:
    yield from yield_finding("before it breaks")
    raise RuntimeError("broken")


RULES = ("unmarked_rule", "asks_for_two", "asks_for_what_is_measured", "breaks", "missing")
MEASURED = {"asks for what is measured"}
MISSING = {f"The rule '{__name__}:missing' failed"}
BROKEN = {f"The rule '{__name__}:breaks' failed"}


@pytest.mark.parametrize(
    ("study", "titles"),
    [
        ("breakdown", {"unmarked"} | MEASURED | MISSING),
        ("compare", {"unmarked"} | MEASURED | MISSING),
        ("train", {"asks for two"} | MEASURED),
        ("rollout", MEASURED),
        ("optimize", MEASURED),
        ("verify", MEASURED),
        ("sweep", {"asks for two"}),
        ("dataloader", set()),
        ("budget", BROKEN),
        ("diff", set()),
    ],
)
def test_another_packages_rule_runs_on_the_answers_that_it_is_for(study, titles, monkeypatch: pytest.MonkeyPatch):
    answer = store.load_answer(BY_STUDY[study])
    alone = kinds.advise(answer)
    entries = [EntryPoint(name, f"{__name__}:{name}", "strobe.rules") for name in RULES]
    monkeypatch.setattr("strobe.core.findings.rules.entry_points", lambda group: entries)
    found = kinds.advise(answer)
    assert {finding.title for finding in found} - {finding.title for finding in alone} == titles
    assert all("broken" in finding.found for finding in found if finding.title in BROKEN)
    assert len(found) == len(alone) + len(titles), "a rule that fails costs no other's finding"
