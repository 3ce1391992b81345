"""The budget's arithmetic: lines, needs, asynchrony."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.budget import figures as budget
from strobe.budget.command import budget as budget_of
from strobe.budget.results import Latency
from strobe.core.treatments.spec import table
from strobe.ladder.results import Need

positive = st.floats(0.1, 1e4)


@given(positive, positive, st.lists(st.integers(1, 50), min_size=2, max_size=6, unique=True))
def test_a_line_without_noise_is_found_again(fixed, each, steps):
    found = budget.line("denoise", [(n, fixed + each * n) for n in steps])
    assert found.per_step_ms == pytest.approx(each, rel=1e-6, abs=1e-6)
    assert found.fixed_ms == pytest.approx(fixed, rel=1e-4, abs=1e-4)
    assert set(found.predicted) == set(steps)
    assert (found.per_step_interval is None) == (len(steps) < 3)


def test_one_number_of_steps_gives_no_line():
    assert budget.line("total", [(10, 170.0), (10, 171.0)]) is None


@given(positive, st.dictionaries(st.text("abc", min_size=1, max_size=3), positive, min_size=1, max_size=4), positive)
def test_a_part_that_falls_to_its_need_meets_the_target(target, parts, rest):
    total_ms = sum(parts.values()) + rest
    for need in Need.list_needs(parts, total_ms, target):
        if need.needed_ms is not None:
            assert total_ms - need.ms + need.needed_ms == pytest.approx(target)
            assert need.needed_ms < need.ms
        else:
            assert total_ms - need.ms >= target * (1 - 1e-9)


def test_a_target_that_is_met_needs_nothing():
    assert Need.list_needs({"a": 30.0}, 40.0, 50.0) == []


@given(st.floats(1, 1000), st.floats(5, 200))
def test_a_chunk_lasts_until_the_next_is_there(total, hz):
    found = budget.asynchrony(Latency(steps=1, total_ms=total, parts={}), hz)
    assert found.delay_ticks * 1e3 / hz >= total * (1 - 1e-6)
    assert (found.delay_ticks - 1) * 1e3 / hz <= total
    assert found.horizon >= found.delay_ticks
    assert found.oldest_ms >= found.youngest_ms >= total * (1 - 1e-6)


@pytest.mark.parametrize(("target", "most"), [(200.0, 12), (83.4, 1), (83.0, None)])
def test_the_most_steps_that_meet_a_target(target, most):
    line = budget.line("total", [(1, 83.33), (2, 93.09), (10, 171.2)])
    assert budget.most_steps(line, [], target) == most


@pytest.mark.parametrize(
    ("points", "most"),
    [
        ([(1, 30.0), (2, 30.0), (3, 30.0)], 3),  # flat: rounding alone rises
        ([(1, 30.0), (2, 30.05), (3, 30.04)], 3),  # a slope of 0.02 [−0.28, 0.33]
        ([(1, 30.0), (2, 30.0001)], 2),  # two points: nobody knows how well
        ([(1, 30.0), (2, 30.001), (3, 30.002)], 30),  # known, and no line reaches to 20,000 steps
        ([(1, 20.0), (2, 25.0), (3, 30.0)], 7),
    ],
)
def test_a_slope_that_is_not_known_gives_no_count(points, most):
    line = budget.line("total", points)
    latencies = [Latency(steps=steps, total_ms=ms, parts={}) for steps, ms in points]
    assert budget.most_steps(line, latencies, 50.0) == most
    assert bool(line.unknown_beyond) == (most == points[-1][0])


def test_steps_beyond_those_measured_take_what_a_step_may_cost_at_most():
    random = np.random.default_rng(0)
    late = 0
    for _ in range(200):
        points = [(steps, 20 + 0.5 * steps + random.normal(0, 0.3)) for steps in (1, 2, 3, 5)]
        latencies = [Latency(steps=steps, total_ms=ms, parts={}) for steps, ms in points]
        most = budget.most_steps(budget.line("total", points), latencies, 40.0)
        assert most is not None
        late += 20 + 0.5 * most > 40.0
    assert late <= 0.05 * 200


@pytest.mark.parametrize(
    ("part", "keys"),
    [
        ("vision tower", {"engine", "engine.precision", "fp8", "int8"}),
        ("prefix KV cache", {"engine", "fp8", "int8", "graph"}),
        ("denoise step", {"engine", "fp8", "int8", "graph"}),
        ("RTC step", {"guidance"}),
        ("preprocessing", {"preprocessing"}),
    ],
)
def test_the_hints_name_engines_fp8_int8_and_graphs_by_keys_that_there_are(tmp_path, part, keys):
    file = tmp_path / "latencies.csv"
    file.write_text(f"steps,total,{part}\n10,171.4,160\n")
    [need] = budget_of([file], 20, 30).needs
    named = set(re.findall(r"(?<![\w.-])([a-z_]\w*(?:\.\w+)?)(?==)", " ".join(need.treatments)))
    assert keys <= named
    options = {f"{key}.{option}" for key, words in table().items() for option in words.options}
    assert {key for key in named if not key.startswith("policy.")} <= {*table(), *options}
