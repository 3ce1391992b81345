"""The page of any breakdown of a policy server is written, whatever its numbers and texts."""

from __future__ import annotations

from hypothesis import given, settings
from support.any_result import servers
from support.examples import scaled
from support.golden import GOLDEN

from strobe import kinds
from strobe.report import markdown
from strobe.results.any_answer import any_answer
from strobe.results.server import ServerAnswer
from strobe.runs import store


@settings(max_examples=scaled(60))
@given(answer=servers)
def test_any_server_can_be_shown_and_judged_and_is_read_again(answer: ServerAnswer):
    document = kinds.document(answer)
    assert document.answers
    assert markdown.render(document)
    kinds.figures(answer)
    assert not [finding for finding in kinds.advise(answer) if finding.rule == "rule-failed"]
    assert any_answer.validate_json(answer.model_dump_json()) == answer


def test_what_was_not_judged_is_on_the_page():
    (file,) = (file for file in GOLDEN if file.parent.name == "server")
    answer = store.load_answer(file)
    answer.not_judged = ["the age of actions: give the robot's rate"]  # type: ignore[attr-defined]
    assert "not judged: the age of actions" in markdown.render(kinds.document(answer))
