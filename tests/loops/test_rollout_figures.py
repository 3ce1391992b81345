"""Figures of a rollout from made-up ticks, calls and actions."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.loops.measure.rollout import Action, Call, Tick, inference, late_part, pace, quantiles, queue, seams, series

MS = 1_000_000
PERIODS = st.lists(st.integers(1, 500), min_size=2, max_size=80)


def ticks(periods: list[int], sent: list[bool] | None = None, work: int = 1) -> list[Tick]:
    """Ticks that follow one another after so many milliseconds each."""
    starts = [0, *accumulate(periods)]
    told = sent or [True] * len(starts)
    return [Tick(start * MS, work * MS, one) for start, one in zip(starts, told, strict=False)]


@given(PERIODS)
def test_the_rate_held_is_that_of_the_periods(periods: list[int]):
    found = pace(ticks(periods), 30)
    assert found is not None
    assert found.held_hz == pytest.approx(1e3 * len(periods) / sum(periods))
    assert found.period.n == len(periods)
    assert found.period.median <= found.period.p95 <= found.period.p99 <= found.period.max == max(periods)
    assert found.seconds == pytest.approx(sum(periods) / 1e3)


@given(PERIODS, st.integers(0, 10**6))
def test_a_pause_between_ticks_counts_in_no_period(periods: list[int], pause: int):
    first = ticks(periods)
    begin = first[-1].start_ns + pause * MS
    second = [Tick(begin + one.start_ns, one.work_ns, True, follows=index > 0) for index, one in enumerate(first)]
    alone, both = pace(first, 30), pace([*first, *second], 30)
    assert alone is not None
    assert both is not None
    assert both.held_hz == pytest.approx(alone.held_hz)
    assert both.period.max == alone.period.max


@given(st.lists(st.booleans(), min_size=3, max_size=60))
def test_time_without_an_action_is_that_of_the_starved_ticks(sent: list[bool]):
    found = queue(ticks([10] * (len(sent) - 1), sent, work=10))
    if True not in sent:
        assert found.first_action_ms is None
        assert found.starved == 0
        return
    first = sent.index(True)
    assert found.first_action_ms == 10 * first + 10
    assert found.starved == sent[first:].count(False)
    assert found.starved_ms == pytest.approx(10 * found.starved), "each tick lasts 10 ms, the last one too"
    runs = "".join("x" if one else "." for one in sent[first:]).split("x")
    assert found.longest_ms == pytest.approx(10 * max(map(len, runs)))


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_quantiles_are_ordered_and_within_the_values(values: list[float]):
    found = quantiles(values)
    assert min(values) <= found.median <= found.p95 <= found.p99 <= found.max == max(values)


@given(st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 99)), min_size=1, max_size=300), st.integers(1, 40))
def test_a_thinned_series_keeps_the_worst_of_each_figure(rows: list[tuple[int, int]], most: int):
    made = [Tick(33 * MS * i, w * MS, True, depth=d, age_ns=w * MS) for i, (w, d) in enumerate(rows)]
    found = series(made, [], most)
    assert len(found.at_s) <= most
    assert len(found.at_s) == len(found.work_ms) == len(found.depth) == len(found.starved) == len(found.period_ms)
    assert max(found.work_ms) == max(work for work, _ in rows)
    assert min(depth for depth in found.depth if depth is not None) == min(depth for _, depth in rows)


def test_late_ticks_are_those_whose_work_is_longer_than_the_period():
    made = [Tick(40 * MS * i, (50 if i % 4 == 0 else 20) * MS, True) for i in range(8)]
    found = pace(made, 25)
    assert found is not None
    assert (found.late, found.held_hz) == (2, 25)
    assert found.jitter.max == 0


def test_the_part_that_makes_ticks_late_is_the_innermost_that_has_most_of_it():
    quick = [Tick(0, 0, True, parts={"observation": 5 * MS, "camera front": 1 * MS, "action": 9 * MS})] * 3
    late = [Tick(0, 0, True, parts={"observation": 45 * MS, "camera front": 40 * MS, "action": 9 * MS})]
    assert late_part([*quick, *late], late) == ("camera front", 40.0)
    spread = [Tick(0, 0, True, parts={"observation": 45 * MS, "camera front": 20 * MS, "camera wrist": 20 * MS})]
    assert late_part([*quick, *spread], spread)[0] == "observation"


def test_delays_are_told_without_the_first_call_and_with_what_it_cost():
    calls = [Call(0, 700 * MS, 50, 0, 21, 0, 29)]
    calls += [Call(at * MS, (at + 100) * MS, 50, 21, 3, 3, 47) for at in (1000, 2000, 3000)]
    found = inference(calls, 30)
    assert found is not None
    assert (found.first_ms, found.calls, found.chunk, found.useless) == (700, 4, 50, 0)
    delays = found.delays
    assert delays is not None
    assert (delays.first_needed, delays.first_dropped) == (21, 21)
    assert (delays.assumed.median, delays.needed.median, delays.executed.median) == (21, 3, 3)


def test_a_call_that_ends_on_a_tick_needs_no_further_action():
    found = inference([Call(0, 1, 9, 0)] + [Call(0, 100 * MS, 9, 3)] * 2, 30)
    assert found is not None
    assert found.delays is not None
    assert found.delays.needed.max == 3


def test_seams_are_measured_against_steps_inside_chunks():
    values = [0, 1, 2, 12, 13, 14, 24]
    made = [Action(index // 3, [float(value), 0.0]) for index, value in enumerate(values)]
    (moving, still) = seams(made, ["pan", "lift"])
    assert (moving.step.max, moving.jump.median, moving.jump.n, moving.ratio) == (1, 10, 2, 10)
    assert still.ratio is None
    torn = [Action(one.chunk, one.values, joined=index != 3) for index, one in enumerate(made)]
    assert seams(torn, ["pan", "lift"])[0].jump.n == 1, "a step over a gap is neither"


def test_too_little_says_nothing():
    assert pace(ticks([]), 30) is None
    assert inference([], 30) is None
    assert seams([Action(0, [1.0])], ["pan"]) == []
    assert series([], []).at_s == []
