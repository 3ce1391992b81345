"""What the report of a search for a data loader says, and its page in a real browser."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from support.any_result import loaders
from support.browser import Browse
from support.example_loader import starved
from support.examples import scaled
from support.health import EVERY_CHECK
from support.shown import drawn, printed, root

from strobe import kinds
from strobe.report import markdown
from strobe.report.dataloader import answers, plots
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


def test_the_answer_is_the_flags_and_what_they_win() -> None:
    said = answers(starved())
    assert said[0] == "Train with --num_workers=2 --prefetch_factor=4"
    assert said[1].startswith("They load 150")
    assert "120.0 samples/s (as given), and the loader keeps up" in said[1]
    assert "89 ms with your flags and 67 ms with these" in said[2]
    assert "2.5 h or 1.9 h over 100,000 steps" in said[2]


def test_every_candidate_is_a_row_with_its_reason_and_the_need_is_a_line() -> None:
    answer = starved()
    answer.rows[-1].status, answer.rows[-1].reason, answer.rows[-1].rate = "refused", "too little shared memory", None
    shown = printed(answer, width=220)
    assert "refused: too little shared memory" in shown
    assert "recommended" in shown
    assert "your flags" in shown
    lines = {trace["name"]: trace for trace in plots(answer)["loaders"][0].data}
    assert lines["the step's need"]["y"] == [120.0, 120.0]
    assert lines["prefetch 4"]["x"] == [1, 2, 4, 8]
    assert lines["no workers"]["x"] == [0]


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
