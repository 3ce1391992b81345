"""Busy and idle time add up, whatever overlaps; each gap has the cause that the intervals show."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strobe.traces.occupancy import Stretch, find_gaps, length, merge, subtract

stretches = st.lists(
    st.builds(
        lambda start, length, kind: Stretch(start, start + length, kind),
        st.integers(-50, 150),
        st.integers(-5, 40),
        st.sampled_from(["work", "work", "queued", "wait", "copy"]),
    ),
    max_size=30,
)


@given(stretches)
@example([Stretch(0, 100)])
@example([Stretch(-10, 5), Stretch(5, 5), Stretch(95, 200)])
def test_busy_and_gaps_cut_the_span_as_counting_moments_does(given_stretches):
    gaps = find_gaps(given_stretches, 0, 100)
    work = [s for s in given_stretches if s.kind == "work"]
    worked = {moment for moment in range(100) if any(s.start <= moment < s.end for s in work)}
    assert all(gap.end > gap.start for gap in gaps)
    assert {m for gap in gaps for m in range(gap.start, gap.end)} == set(range(100)) - worked
    assert all(before.end < after.start for before, after in pairwise(gaps))


@given(stretches)
def test_causes_are_what_a_plain_search_says(given_stretches):
    def overlaps(kind, left, right):
        return any(s.kind == kind and s.end > s.start and s.start < right and s.end > left for s in given_stretches)

    for gap in find_gaps(given_stretches, 0, 100):
        if not overlaps("work", 0, gap.start):
            assert gap.cause == "start"
        elif not overlaps("work", gap.end, 100):
            assert gap.cause == "end"
        elif overlaps("queued", gap.start, gap.start + 1):
            assert gap.cause == "queued"
        elif overlaps("wait", gap.start, gap.end):
            assert gap.cause == "wait"
        else:
            assert gap.cause == ("copy" if overlaps("copy", gap.start, gap.end) else "idle")


@given(stretches, st.randoms())
def test_the_order_of_the_stretches_does_not_matter(given_stretches, random):
    shuffled = list(given_stretches)
    random.shuffle(shuffled)
    assert find_gaps(shuffled, 0, 100) == find_gaps(given_stretches, 0, 100)


@pytest.mark.parametrize(
    ("between", "cause"),
    [
        ([], "idle"),
        ([Stretch(5, 60, "queued")], "queued"),
        ([Stretch(45, 60, "queued")], "idle"),  # launched only when the device had run dry
        ([Stretch(30, 45, "wait")], "wait"),
        ([Stretch(30, 45, "copy")], "copy"),
        ([Stretch(30, 45, "copy"), Stretch(30, 45, "wait")], "wait"),
        ([Stretch(10, 40, "wait")], "idle"),
        ([Stretch(5, 60, "queued"), Stretch(30, 45, "wait")], "queued"),
    ],
)
def test_a_gap_has_its_cause(between, cause):
    streams = [Stretch(10, 30), Stretch(20, 40), Stretch(60, 90)]  # two streams overlap
    gaps = find_gaps([*streams, *between], 0, 100)
    assert [(gap.start, gap.end, gap.cause) for gap in gaps] == [(0, 10, "start"), (40, 60, cause), (90, 100, "end")]


def test_nothing_at_all_is_one_gap():
    (gap,) = find_gaps([], 0, 10)
    assert (gap.start, gap.end) == (0, 10)
    assert find_gaps([Stretch(0, 5)], 10, 10) == []


pieces = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)


@given(pieces, pieces)
def test_unions_are_those_of_counted_moments(some, others):
    def moments(stretches):
        return {moment for start, stop in stretches for moment in range(start, stop)}

    assert length(merge(some)) == len(moments(some))
    assert moments(subtract(merge(some), merge(others))) == moments(some) - moments(others)
