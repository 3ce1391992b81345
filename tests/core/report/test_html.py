"""The page in a real browser: it draws, it keeps to itself, and it runs nothing that came from outside."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from support.checks.golden import BY_STUDY
from support.checks.renderings import count_plots, drop_content_policy, poison_texts, root
from support.examples import runs
from support.suite.browser import Browse
from support.suite.matrix import matrix

from strobe.core import kinds
from strobe.core.report.charts import Plot
from strobe.core.results.answer import Result
from strobe.core.runs import store


def test_the_page_is_one_file_that_asks_for_nothing():
    page = kinds.page(runs.act())
    assert len(page) < 2.5e6
    outside = re.compile(r"""(?:src|href|action|data)\s*=\s*["']?\s*(?:https?:)?//|url\(|@import""", re.I)
    own = re.sub(r'<script type="application/octet-stream".*?</script>', "", page, flags=re.S)
    assert not outside.search(own)
    assert "default-src 'none'" in page
    assert kinds.page(runs.act()) == page


def test_a_breakdown_draws_all_its_plots(browse: Browse):
    dom = browse(kinds.page(runs.act()))
    assert "data-errors" not in root(dom)
    assert count_plots(dom) == 8
    assert dom.count('class="main-svg"') >= 8
    assert len(re.findall(r'class="slice', dom)) > 30
    assert "image backbone" in re.sub(r"<script.*?</script>", "", dom, flags=re.S)


@pytest.mark.slow("a page of every plot in a browser")
def test_a_comparison_draws_what_is_folded_only_when_unfolded(browse: Browse):
    page = kinds.page(runs.rtc())
    assert count_plots(browse(page)) == 2
    dom = browse(page.replace('<details class="section">', '<details class="section" open>'))
    assert count_plots(dom) == sum(map(len, kinds.figures(runs.rtc()).values()))
    assert "data-errors" not in root(dom)


DRAWN = sorted(BY_STUDY, key=lambda study: study not in ("optimize", "sweep"))  # the first two are drawn each time


@pytest.mark.slow("pages of other kinds in a browser", each_change=True)
@pytest.mark.parametrize("study", matrix(DRAWN, keep=2))
def test_a_page_of_each_kind_draws_all_its_plots(study: str, browse: Browse):
    answer = store.load_answer(BY_STUDY[study])
    dom = browse(kinds.page(answer).replace('<details class="section">', '<details class="section" open>'))
    assert "data-errors" not in root(dom)
    assert count_plots(dom) == sum(map(len, kinds.figures(answer).values()))


@pytest.mark.slow("a page in two colour schemes")
def test_plots_follow_the_colour_scheme(browse: Browse):
    page = kinds.page(runs.act())
    assert "fill: rgb(27, 31, 36)" in browse(page)
    dark = browse(page, dark=True)
    assert "fill: rgb(230, 233, 236)" in dark
    assert "fill: rgb(27, 31, 36)" not in dark


def test_a_browser_that_cannot_inflate_is_told(browse: Browse):
    page = drop_content_policy(kinds.page(runs.act()))
    dom = browse(page.replace("<main>", "<script>delete window.DecompressionStream</script><main>"))
    assert "The plots need a browser of 2023 or later" in dom
    assert "data-errors" not in root(dom)
    assert count_plots(dom) == 0


def poison(result: Result) -> Result:
    for measurement in result.measurements:
        measurement.traits.notes = {"said by": "another package"}
    return type(result).model_validate(poison_texts(json.loads(result.model_dump_json())))


@pytest.mark.parametrize("guarded", [True, False], ids=["with policy", "escaping alone"])
@pytest.mark.parametrize("make", matrix([runs.act, runs.rtc]), ids=["breakdown", "compare"])
def test_nothing_from_outside_runs_or_becomes_markup(make: Any, guarded: bool, browse: Browse):
    answer = poison(make())
    page = kinds.page(answer).replace('<details class="section">', '<details class="section" open>')
    dom = browse(page if guarded else drop_content_policy(page))
    assert "data-pwned" not in root(dom)
    assert "data-errors" not in root(dom)
    body = re.sub(r"<script\b.*?</script>", "", dom, flags=re.S)
    assert not re.search(r"<img|<i>|<script", body)
    assert re.findall(r"<b>(.*?)</b>", body) == re.findall(r"<figcaption><b>(.*?)</b>", body)
    assert "font-weight: bold" not in body
    assert "{{7*7}}" in body
    assert count_plots(dom) == sum(map(len, kinds.figures(answer).values())) > 5
    # Plotly shows a name's angle brackets as such.
    assert re.search(r"<text[^>]*>[^<]*&lt;b&gt;bold&lt;/b&gt;", re.sub(r"</?tspan[^>]*>", "", body))


def test_the_icicle_adds_up():
    for key, figures in kinds.figures(runs.act()).items():
        if not key.startswith("measurement"):
            continue
        trace = figures[0].data[0]
        m = runs.act().measurements[int(key[-1])]
        assert sum(trace["values"]) == pytest.approx(m.samples.summary.mean, rel=1e-6)
        assert trace["branchvalues"] == "remainder"
        assert len(set(trace["ids"])) == len(trace["ids"]) == len(m.components) + 1


@pytest.mark.matrix
def test_a_single_sample_and_no_parts_are_drawn_too(browse: Browse):
    run = runs.act()
    only = run.measurements[0]
    only.samples = only.samples.model_copy(update={"values": [3.0], "warmup": [], "summary": runs.summary([3.0])})
    only.components, only.spans = [], []
    dom = browse(kinds.page(run.model_copy(update={"measurements": [only], "findings": []})))
    assert "data-errors" not in root(dom)
    assert count_plots(dom) == 2


@pytest.mark.parametrize(
    ("trace", "layout"),
    [
        ({"type": "bar", "colour": "red"}, {}),
        ({"type": "bar", "orientation": "x"}, {}),
        ({"type": "bar"}, {"xaxis": {"tickmod": "array"}}),
        ({"type": "bar"}, {"barmode": "heap"}),
    ],
)
def test_a_property_that_plotly_does_not_know_is_refused(trace: dict[str, Any], layout: dict[str, Any]) -> None:
    assert Plot("x", "", [{"type": "bar"}], {}).data[0]["type"] == "bar"
    with pytest.raises(ValueError, match=r"Invalid|did you mean|Bad property"):
        Plot("x", "", [trace], layout)
