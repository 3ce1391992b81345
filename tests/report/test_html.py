"""The page in a real browser: it draws, it keeps to itself, and it runs nothing that came from outside."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from report.conftest import Browse
from support import example_runs as runs
from support.made_up_rollout import header, rtc

from strobe import kinds
from strobe.results.answer import Result
from strobe.studies.diff import diff
from strobe.studies.rollout.answer import answer_of
from strobe.studies.rollout.course import course_of

PAYLOAD = (
    "<script>document.documentElement.dataset.pwned=1</script></script>"
    '"\'><img src=x onerror="document.documentElement.dataset.pwned=1"><b>bold</b>{{7*7}}%{x}&lt;i&gt;<br>'
)
DARK = "--blink-settings=preferredColorScheme=0"


def root(dom: str) -> str:
    """The opening tag of the document, where the page keeps its errors."""
    return dom[dom.index("<html") : dom.index(">", dom.index("<html"))]


def without_policy(page: str) -> str:
    """The page without its content policy: what is left is the escaping alone."""
    return re.sub(r'<meta http-equiv="Content-Security-Policy".*?>', "", page)


def drawn(dom: str) -> int:
    return len(re.findall(r'<div class="plot js-plotly-plot"', dom))


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
    assert drawn(dom) == 8
    assert dom.count('class="main-svg"') >= 8
    assert len(re.findall(r'class="slice', dom)) > 30
    assert "image backbone" in re.sub(r"<script.*?</script>", "", dom, flags=re.S)


def test_a_comparison_draws_what_is_folded_only_when_unfolded(browse: Browse):
    page = kinds.page(runs.rtc())
    assert drawn(browse(page)) == 3
    dom = browse(page.replace('<details class="section">', '<details class="section" open>'))
    assert drawn(dom) == 7
    assert "data-errors" not in root(dom)


def test_a_difference_draws_both_runs(browse: Browse):
    dom = browse(kinds.page(diff(runs.act(), runs.act(), judge=runs.judge)))
    assert "data-errors" not in root(dom)
    assert drawn(dom) == 4


def test_a_rollout_draws_its_course(browse: Browse):
    facts = header()
    result = answer_of(facts, course_of(facts, rtc(lambda call: 700.0 if call == 0 else 90.0, seconds=3)))
    dom = browse(kinds.page(result))
    assert "data-errors" not in root(dom)
    assert drawn(dom) == sum(len(plots) for plots in kinds.figures(result).values())
    assert all(title in dom for title in ("tick (ms)", "actions left", "call (ms)", "age (ms)"))


def test_plots_follow_the_colour_scheme(browse: Browse):
    page = kinds.page(runs.act())
    assert "fill: rgb(27, 31, 36)" in browse(page)
    dark = browse(page, DARK)
    assert "fill: rgb(230, 233, 236)" in dark
    assert "fill: rgb(27, 31, 36)" not in dark


def test_a_browser_that_cannot_inflate_is_told(browse: Browse):
    page = without_policy(kinds.page(runs.act()))
    dom = browse(page.replace("<main>", "<script>delete window.DecompressionStream</script><main>"))
    assert "The plots need a browser of 2023 or later" in dom
    assert "data-errors" not in root(dom)
    assert drawn(dom) == 0


FIXED = {"phase", "clock", "level", "size", "study", "status", "started", "of", "judged_by"}
KINDS = {"faster", "slower", "no difference shown", "too noisy"}


def poisoned(data: Any, key: str = "") -> Any:
    """The same data with the payload before every string and key that is free."""
    if isinstance(data, dict):
        free = key in ("dtypes", "power", "versions", "gflops", "notes", "unseen", "config", "evidence")
        return {(PAYLOAD + k if free else k): poisoned(v, k) for k, v in data.items()}
    if isinstance(data, list):
        return [poisoned(v, key) for v in data]
    fixed = not isinstance(data, str) or key in FIXED or (key == "kind" and data in KINDS)
    return data if fixed else PAYLOAD + data


def poison(result: Result) -> Result:
    for measurement in result.measurements:
        measurement.traits.notes = {"said by": "another package"}
    return type(result).model_validate(poisoned(json.loads(result.model_dump_json())))


@pytest.mark.parametrize("guarded", [True, False], ids=["with policy", "escaping alone"])
@pytest.mark.parametrize("make", [runs.act, runs.rtc], ids=["breakdown", "compare"])
def test_nothing_from_outside_runs_or_becomes_markup(make: Any, guarded: bool, browse: Browse):
    page = kinds.page(poison(make())).replace('<details class="section">', '<details class="section" open>')
    dom = browse(page if guarded else without_policy(page))
    assert "data-pwned" not in root(dom)
    assert "data-errors" not in root(dom)
    body = re.sub(r"<script\b.*?</script>", "", dom, flags=re.S)
    assert not re.search(r"<img|<i>|<script", body)
    assert re.findall(r"<b>(.*?)</b>", body) == re.findall(r"<figcaption><b>(.*?)</b>", body)
    assert "font-weight: bold" not in body
    assert "{{7*7}}" in body
    assert drawn(dom) in (7, 8)
    # Plotly shows a name's angle brackets as such.
    assert re.search(r"<text[^>]*>[^<]*&lt;b&gt;bold&lt;/b&gt;", re.sub(r"</?tspan[^>]*>", "", body))


def test_a_poisoned_difference_is_harmless_too(browse: Browse):
    answer = diff(poison(runs.act()), poison(runs.act()), judge=runs.judge)
    dom = browse(without_policy(kinds.page(answer)))
    assert "data-pwned" not in root(dom)
    assert "<img" not in re.sub(r"<script\b.*?</script>", "", dom, flags=re.S)


def test_the_icicle_adds_up():
    for key, figures in kinds.figures(runs.act()).items():
        if not key.startswith("measurement"):
            continue
        trace = figures[0].data[0]
        m = runs.act().measurements[int(key[-1])]
        assert sum(trace["values"]) == pytest.approx(m.samples.summary.mean, rel=1e-6)
        assert trace["branchvalues"] == "remainder"
        assert len(set(trace["ids"])) == len(trace["ids"]) == len(m.components) + 1


def test_a_single_sample_and_no_parts_are_drawn_too(browse: Browse):
    run = runs.act()
    only = run.measurements[0]
    only.samples = only.samples.model_copy(update={"values": [3.0], "warmup": [], "summary": runs.summary([3.0])})
    only.components, only.spans = [], []
    dom = browse(kinds.page(run.model_copy(update={"measurements": [only], "findings": []})))
    assert "data-errors" not in root(dom)
    assert drawn(dom) == 2
