"""What the report of a search for a data loader says, and its page in a real browser."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from support.any_result import loaders
from support.approved import approve_cases
from support.browser import Browse
from support.example_loader import starved
from support.examples import scaled
from support.health import EVERY_CHECK
from support.shown import drawn, printed, root, whole

from strobe import kinds
from strobe.report import markdown
from strobe.results.dataloader import Dataloader, Encoding, StartUp
from strobe.runs import store


@settings(max_examples=scaled(40), deadline=None, suppress_health_check=EVERY_CHECK)
@given(answer=loaders)
def test_any_search_can_be_shown_and_kept(answer: Dataloader, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert printed(answer)
    assert markdown.render(kinds.document(answer))
    assert "</html>" in kinds.page(answer)
    folder = tmp_path_factory.mktemp("run")
    store.save(answer, folder)
    assert store.load_answer(folder) == answer


def test_it_is_shown_as_it_was_approved() -> None:
    refused = starved()
    refused.rows[-1].status, refused.rows[-1].reason, refused.rows[-1].rate = (
        "refused",
        "too little shared memory",
        None,
    )
    approve_cases("dataloader", {"starved": whole(starved(), ""), "a row that was refused": whole(refused, "loaders")})


@pytest.mark.matrix
def test_the_page_draws_in_a_browser(browse: Browse) -> None:
    answer = starved(
        start_ups=[StartUp(start_method="spawn", status="done", first_batch_s=9.0, epoch_start_s=0.3)],
        encodings=[
            Encoding(name="as it is", status="done"),
            Encoding(name="h264", status="failed", reason="no encoder"),
        ],
    )
    dom = browse(kinds.page(answer))
    assert drawn(dom) == 2
    assert "error" not in root(dom)
