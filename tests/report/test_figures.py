"""Every plot of a report is one that Plotly knows: its own `Figure` refuses names and values that it would not draw."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from support import example_loader, example_sweeps
from support import example_runs as runs

from strobe import kinds
from strobe.results.answer import Answer
from strobe.results.dataloader import Encoding, StartUp
from strobe.runs import store
from strobe.studies.budget import budget
from strobe.studies.diff import diff

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
TABLE = "steps,total,vision,denoise\n10,171,17,98\n5,122,17,49\n2,93,17,20\n"


def figures(page: str) -> list[dict[str, Any]]:
    """Return the figures that the page gives Plotly to draw."""
    (found,) = re.findall(r'<script type="application/json" id="figures">(.*?)</script>', page, re.S)
    return json.loads(found)


def of_a_table(folder: Path) -> Answer:
    (folder / "latencies.csv").write_text(TABLE)
    return budget([folder / "latencies.csv"], 20.0, 30.0)


def search(_: Path) -> Answer:
    start_ups = [StartUp(start_method="spawn", status="done", first_batch_s=9.0, epoch_start_s=0.3)]
    return example_loader.starved(start_ups=start_ups, encodings=[Encoding(name="as it is", status="done")])


# Each kind of answer (a ladder and a training are among the examples in the docs), and how many plots it has.
ANSWERS: dict[str, tuple[Callable[[Path], Answer], int]] = {
    "breakdown": (lambda _: runs.act(), 8),
    "compare": (lambda _: runs.rtc(), 7),
    "diff": (lambda _: diff(runs.act(), runs.act(), judge=runs.judge), 4),
    "budget": (of_a_table, 1),
    "dataloader": (search, 2),
    "sweep over two axes": (lambda _: example_sweeps.square(), 6),
    "sweep over one axis": (lambda _: example_sweeps.line(), 2),
    "sweep of comparisons": (lambda _: example_sweeps.comparison(), 5),
    "sweep over unlike machines": (lambda _: example_sweeps.unlike(), 8),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_plotly_knows_every_property_of_a_plot(kind: str, tmp_path: Path) -> None:
    make, least = ANSWERS[kind]
    drawn = figures(kinds.page(make(tmp_path)))
    assert len(drawn) >= least
    check(drawn)


@pytest.mark.parametrize("example", sorted(folder.name for folder in EXAMPLES.iterdir() if folder.is_dir()))
def test_and_of_the_runs_in_the_docs(example: str) -> None:
    drawn = figures(kinds.page(store.load_answer(EXAMPLES / example)))
    assert drawn
    check(drawn)


def check(drawn: list[dict[str, Any]]) -> None:
    for plot in drawn:
        assert plot["title"], "the page shows it, not Plotly"
        try:
            figure = go.Figure(data=plot["data"], layout=plot["layout"])
        except ValueError as error:
            raise AssertionError(f"Plotly refuses '{plot['title']}': {error}") from error
        assert figure.data, f"'{plot['title']}' draws nothing"


def test_a_property_that_plotly_does_not_know_is_found() -> None:
    for data, layout in (
        ([{"type": "bar", "colour": "red"}], {}),
        ([{"type": "bar"}], {"xaxis": {"tickmod": "array"}}),
    ):
        with pytest.raises(AssertionError, match="Plotly refuses 'x'"):
            check([{"title": "x", "data": data, "layout": layout}])
