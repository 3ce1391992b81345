"""What the report of a search for a data loader says, and its page in a real browser."""

from __future__ import annotations

import pytest
from support.checks.approval import approve_cases
from support.checks.renderings import count_plots, root, whole
from support.examples.loader import starving_loader
from support.suite.browser import Browse

from strobe.core import kinds
from strobe.dataloader.results import Encoding, StartUp


def test_it_is_shown_as_it_was_approved() -> None:
    refused = starving_loader()
    refused.rows[-1].status, refused.rows[-1].reason, refused.rows[-1].rate = (
        "refused",
        "too little shared memory",
        None,
    )
    approve_cases(
        "dataloader", {"starved": whole(starving_loader(), ""), "a row that was refused": whole(refused, "loaders")}
    )


@pytest.mark.matrix
def test_the_page_draws_in_a_browser(browse: Browse) -> None:
    answer = starving_loader(
        start_ups=[StartUp(start_method="spawn", status="done", first_batch_s=9.0, epoch_start_s=0.3)],
        encodings=[
            Encoding(name="baseline", status="done"),
            Encoding(name="h264", status="failed", reason="no encoder"),
        ],
    )
    dom = browse(kinds.page(answer))
    assert count_plots(dom) == 2
    assert "error" not in root(dom)
