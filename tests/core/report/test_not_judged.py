"""What was not judged stands on the page, with its reason."""

from __future__ import annotations

from typing import Any

import pytest
from support.checks.golden import golden

from strobe.core import kinds
from strobe.core.report import markdown

NOT_JUDGED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "server": ({"not_judged": ["the age of actions: give the robot's rate"]}, ("not judged: the age of actions",)),
    "trials": (
        {"rates": None, "rates_not_judged": "3 pairs are complete", "times": None, "times_not_judged": "no seconds"},
        ("is not judged: 3 pairs are complete", "Time to task is not judged: no seconds"),
    ),
}


@pytest.mark.parametrize("name", NOT_JUDGED)
def test_what_was_not_judged_is_on_the_page(name: str) -> None:
    fields, said = NOT_JUDGED[name]
    page = markdown.render(kinds.document(golden(name).model_copy(update=fields)))
    assert [words for words in said if words not in page] == []
