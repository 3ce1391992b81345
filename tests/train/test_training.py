"""What a training waited for, from made-up steps: shares, stalls, turns of workers, rates, the loader's parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.core.measure.components import Iteration
from strobe.core.timeline.timeline import Section
from strobe.train import figures as training
from strobe.train.figures import loader_parts, loader_workers

PLAN = training.Plan(1000, {"checkpoint": 100})


def step(at_ms, wait=1.0, forward=5.0, backward=10.0, checkpoint=0.0, epoch=0.0, rest=1.0, cpu=None):
    """One step of the parts given, in milliseconds."""
    parts, now = [], at_ms

    def add(name, ms, *above):
        nonlocal now
        if ms:
            parts.append(Section(name, ("step", *above, name), int(now * 1e6), int((now + ms) * 1e6), "main"))
            now += ms

    start = now
    add(training.EPOCH, epoch, "data")
    add(training.WAIT, wait, "data")
    parts.insert(0, Section("data", ("step", "data"), int(start * 1e6), int(now * 1e6), "main"))
    add("forward", forward)
    add("backward", backward)
    add("checkpoint", checkpoint)
    now += rest
    return Iteration(Section("step", ("step",), int(at_ms * 1e6), int(now * 1e6), "main", cpu_ns=cpu), parts)


def steps(waits, **parts):
    return [step(1000.0 * i, wait=wait, **parts) for i, wait in enumerate(waits)]


def test_shares_are_those_of_the_sections_and_add_up():
    found = training.shares(steps([4.0] * 5))
    assert found == pytest.approx({"data": 4 / 20, "compute": 15 / 20, "interruptions": 0.0, "host": 1 / 20})


@given(st.lists(st.floats(0.5, 100), min_size=1, max_size=20), st.floats(0.5, 50), st.floats(0.5, 50))
def test_shares_always_add_up_to_one(waits, forward, checkpoint):
    found = training.shares(steps(waits, forward=forward, checkpoint=checkpoint))
    assert sum(found.values()) == pytest.approx(1)
    assert all(share >= 0 for share in found.values())


def test_each_stall_is_told_with_what_it_costs_the_planned_training():
    run = steps([500.0, *[1.0] * 19])
    run[10] = step(10_000, wait=61.0, epoch=40.0)
    run[15] = step(15_000, checkpoint=80.0)
    found = {stall.cause: stall for stall in training.stalls(run, PLAN)}
    assert set(found) == {"first batch", "start of an epoch", "checkpoint"}
    assert found["first batch"].each_ms == pytest.approx(499)
    assert found["first batch"].planned_hours is None
    assert found["start of an epoch"].each_ms == pytest.approx(100)
    assert found["start of an epoch"].planned_hours == pytest.approx(50 * 100 / 3.6e6), "one epoch in twenty steps"
    assert found["checkpoint"].planned_hours == pytest.approx(10 * 80 / 3.6e6), "as often as planned, not as seen"


def test_a_steady_run_has_no_stalls():
    assert training.stalls(steps([1.0] * 30), PLAN) == []


@given(st.lists(st.floats(1.0, 1000.0), min_size=1, max_size=60), st.integers(1, 64))
def test_the_rate_is_samples_over_time_within_its_interval(values, samples):
    rate, interval = training.rate(values, samples)
    assert rate == pytest.approx(1e3 * samples * len(values) / sum(values))
    assert (interval is None) == (len(values) < 8)
    if interval is not None:
        assert 0 < interval.low <= rate * (1 + 1e-9)
        assert rate <= interval.high * (1 + 1e-9)


def batch(at_ms, parts, thread="worker 1"):
    """A batch of one sample with ``parts`` of (name, ms, cpu ms), and 1 ms of its own."""
    now, inside = at_ms, []
    for name, ms, cpu in parts:
        path = ("batch", "sample", name)
        inside.append(Section(name, path, int(now * 1e6), int((now + ms) * 1e6), thread, cpu_ns=int(cpu * 1e6)))
        now += ms
    cpu_ns = sum(section.cpu_ns for section in inside) + int(1e6)
    end = int((now + 1) * 1e6)
    whole = Section("batch", ("batch",), int(at_ms * 1e6), end, thread, cpu_ns=cpu_ns)
    sample = Section("sample", ("batch", "sample"), int(at_ms * 1e6), end, thread, cpu_ns=cpu_ns)
    return Iteration(whole, [sample, *inside])


def test_loading_is_cut_into_parts_that_add_up_with_what_they_waited():
    parts = loader_parts([batch(100.0 * i, [("decode", 8.0, 2.0), ("rows", 1.0, 1.0)]) for i in range(4)])
    assert [part.name for part in parts] == ["decode", "rows", "other"]
    assert sum(part.share for part in parts) == pytest.approx(1)
    assert parts[0].ms == pytest.approx(8)
    assert parts[0].waiting == pytest.approx(0.75)
    assert parts[1].waiting == pytest.approx(0)


def test_time_inside_another_part_is_counted_once():
    outer = Section("delta timestamps", ("batch", "sample", "delta timestamps"), 0, int(10e6), "worker 1", cpu_ns=0)
    inner = Section("row reads", (*outer.path, "row reads"), int(1e6), int(8e6), "worker 1", cpu_ns=0)
    whole = Section("batch", ("batch",), 0, int(10e6), "worker 1", cpu_ns=0)
    sample = Section("sample", ("batch", "sample"), 0, int(10e6), "worker 1", cpu_ns=0)
    parts = {part.name: part.ms for part in loader_parts([Iteration(whole, [sample, outer, inner])])}
    assert parts == pytest.approx({"row reads": 7.0, "delta timestamps": 3.0, "other": 0.0})


def test_without_cpu_times_nothing_is_said_of_waiting():
    run = step(0.0)
    assert all(part.waiting is None for part in loader_parts([run]))


def test_each_worker_has_a_row():
    own = [batch(100.0 * i, [("decode", 9.0, 9.0)], "worker 7") for i in range(5)]
    other = [batch(100.0 * i, [("decode", 49.0, 9.0)], "worker 8") for i in range(5)]
    first, second = loader_workers([*own, *other], {"worker 7": "worker 0", "worker 8": "worker 1"})
    assert (first.name, first.batches, first.batch_ms) == ("worker 0", 5, pytest.approx(10))
    assert (second.name, second.batch_ms) == ("worker 1", pytest.approx(50))
    assert first.busy == pytest.approx(50 / 410)
    assert second.cpu == pytest.approx(10 / 50)
