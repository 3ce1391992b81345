"""The page of any judgement of trials is written, whatever its numbers and texts; what was not judged stands on it."""

from __future__ import annotations

from hypothesis import given, settings
from support.any_result import trials
from support.examples import scaled
from support.golden import GOLDEN

from strobe import kinds
from strobe.report import markdown
from strobe.results.any_answer import any_answer
from strobe.results.trials import TrialsResult
from strobe.runs import store


@settings(max_examples=scaled(60))
@given(answer=trials)
def test_any_trials_can_be_shown_and_judged_and_are_read_again(answer: TrialsResult):
    document = kinds.document(answer)
    assert document.answers
    assert markdown.render(document)
    kinds.figures(answer)
    assert not [finding for finding in kinds.advise(answer) if finding.rule == "rule-failed"]
    assert any_answer.validate_json(answer.model_dump_json()) == answer


def test_what_was_not_judged_is_on_the_page():
    (file,) = (file for file in GOLDEN if file.parent.name == "trials")
    answer = store.load_answer(file)
    assert isinstance(answer, TrialsResult)
    answer.rates, answer.rates_not_judged = None, "3 pairs are complete"
    answer.times, answer.times_not_judged = None, "no seconds"
    page = markdown.render(kinds.document(answer))
    assert "is not judged: 3 pairs are complete" in page
    assert "Time to task is not judged: no seconds" in page
