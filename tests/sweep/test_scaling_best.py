"""What grows how, and which cell is best: on tables whose answer is known."""

from __future__ import annotations

import re
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.suite.example_count import scale_count

from strobe.core.errors import UserError
from strobe.core.measure.statistics import summarise
from strobe.sweep.best import best, parse
from strobe.sweep.results import Axis, Cell, CellRun, Row
from strobe.sweep.scaling import scalings

BATCH = Axis(name="batch_size", values=["1", "2", "4", "8"], numbers=[1, 2, 4, 8], unit="samples")


def cell(values: list[float], batch: int = 1, memory: int | None = None, machine: int = 0, **others: str) -> Cell:
    row = Row(
        measurement="training step",
        phase="training step",
        batch=batch,
        ms=summarise(values),
        repeats=[summarise(values).median],
        throughput=1e3 * batch / summarise(values).median,
        memory_bytes=memory,
    )
    wanted = {"batch_size": str(batch), **others}
    key = repr((wanted, machine))
    run = CellRun(repeat=1, status="done", folder="", machine=machine)
    return Cell(key=key, settings=wanted, status="done", runs=[run], rows=[row])


@settings(deadline=None, max_examples=scale_count(20))
@given(st.floats(-1, 3), st.floats(0.1, 100), st.integers(1, 3))
def test_a_power_is_found_over_groups_of_any_height(exponent: float, height: float, groups: int) -> None:
    cells = [
        cell([height * (group + 1) * batch**exponent] * 6, batch, where=str(group))
        for group, batch in product(range(groups), (1, 2, 4, 8))
    ]
    axes = [BATCH, Axis(name="where", values=[str(g) for g in range(groups)])]
    (found,) = scalings(axes, cells)
    assert found.exponent == pytest.approx(exponent, abs=1e-6)
    assert found.interval is not None
    assert found.interval.low <= exponent + 1e-6
    assert found.interval.high >= exponent - 1e-6
    assert found.groups == groups
    assert found.points == 4 * groups
    assert not found.curved


def test_a_line_is_told_with_its_fixed_part_and_what_has_no_shape_says_so() -> None:
    (found,) = scalings([BATCH], [cell([10 + 3 * batch] * 6, batch) for batch in (1, 2, 4, 8)])
    assert found.slope == pytest.approx(3)
    assert found.fixed == pytest.approx(10)
    assert "10 ms" in found.sentence
    assert "3 ms" in found.sentence
    assert "per sample" in found.sentence

    axis = Axis(name="batch_size", values=["1", "2"], numbers=[1, 2], unit="samples")
    (found,) = scalings([axis], [cell([5.0] * 6, 1), cell([10.0] * 6, 2)])
    assert found.exponent == pytest.approx(1)
    assert found.interval is None
    assert "not tested" in found.sentence

    times = {1: 10.0, 2: 10.0, 4: 60.0, 8: 60.0}
    (found,) = scalings([BATCH], [cell([times[batch]] * 6, batch) for batch in (1, 2, 4, 8)])
    assert found.curved
    assert "look at the plot" in found.sentence

    cells = [cell([10.0 + 0.1 * batch] * 6, 1, batch_size=str(batch)) for batch in (8, 16)]
    axis = Axis(name="batch_size", values=["8", "16"], numbers=[8, 16], unit="samples")
    (found,) = scalings([axis], cells)
    assert found.effect == "ignored"
    assert found.sentence == "batch_size has no effect on training step time."


def test_an_exponent_whose_interval_includes_none_is_no_effect_and_a_wide_one_is_inconclusive() -> None:
    (flat,) = scalings([BATCH], [cell([ms], batch) for batch, ms in {1: 10.0, 2: 10.2, 4: 9.9, 8: 10.1}.items()])
    assert flat.effect == "none"
    assert flat.sentence.startswith("batch_size has no measured effect on training step time. Scaling exponent ")
    times = {1: 10.0, 2: 60.0, 4: 10.0}
    (wide,) = scalings([BATCH], [cell([times[batch]], batch) for batch in (1, 2, 4)])
    assert wide.effect == "inconclusive"
    assert wide.sentence.startswith("scaling exponent of training step time over batch_size: inconclusive")


def test_memory_is_fitted_where_it_is_known_without_failed_cells_and_unlike_machines() -> None:
    cells = [cell([batch * 1.0] * 6, batch, memory=2**30 * batch) for batch in (1, 2, 4)]
    cells.append(Cell(key="x", settings={"batch_size": "8"}, status="out of memory", reason="too much"))
    time, memory = scalings([BATCH], cells)
    assert (time.figure, memory.figure) == ("time", "memory")
    assert time.points == memory.points == 3

    apart = [cell([5.0] * 6, 1, machine=0), cell([50.0] * 6, 2, machine=1)]
    assert scalings([BATCH], apart) == []


def samples(cells: list[Cell]) -> dict[tuple[str, str], list[list[float]]]:
    """Three runs of each cell, 0.5 % apart."""
    spread = (0.99, 1, 1, 1, 1, 1, 1, 1.01)
    return {
        (one.key, "training step"): [
            [one.rows[0].ms.median * run * factor for factor in spread] for run in (0.995, 1, 1.005)
        ]
        for one in cells
    }


def test_the_best_under_a_constraint_and_those_not_shown_to_be_worse() -> None:
    gib = 2**30
    cells = [
        cell([10.0] * 8, 1, memory=2 * gib),
        cell([16.0] * 8, 2, memory=4 * gib),
        cell([32.1] * 8, 4, memory=6 * gib),
        cell([48.0] * 8, 8, memory=9 * gib),
    ]
    found = best(parse("throughput where memory_gib<8", ["batch_size"]), cells, samples(cells))
    assert found.settings == {"batch_size": "2"}
    assert found.ties == [{"batch_size": "4"}]
    assert found.sentence == "Best throughput: `batch_size=2`."
    assert found.details[0] == "It reaches 125 samples/s, with memory_gib < 8."
    anywhere = best(parse("throughput", ["batch_size"]), cells, samples(cells))
    assert anywhere.settings == {"batch_size": "8"}
    assert anywhere.ties == []
    few = best(parse("time_ms where batch_size>=4", ["batch_size"]), cells, samples(cells))
    assert few.settings == {"batch_size": "4"}
    lean = best(parse("memory_gib", ["batch_size"]), cells, samples(cells))
    assert (lean.settings, lean.ties) == ({"batch_size": "1"}, [])
    none = best(parse("throughput where memory_gib<1", ["batch_size"]), cells, samples(cells))
    assert none.key is None
    assert "no configuration meets" in none.sentence


def measured_cells(runs: dict[str, list[list[float]]]) -> tuple[list[Cell], dict[tuple[str, str], list[list[float]]]]:
    cells = [cell([ms for run in of_cell for ms in run], where=name) for name, of_cell in runs.items()]
    return cells, {(one.key, "training step"): of_cell for one, of_cell in zip(cells, runs.values(), strict=True)}


def repeat_run(run: list[float], runs: int = 3, apart: float = 0.001) -> list[list[float]]:
    """So many runs, each slower than the one before by ``apart``."""
    return [[ms * (1 + at * apart) for ms in run] for at in range(runs)]


def test_the_best_p95_is_judged_by_its_p95_and_not_by_the_median() -> None:
    steady, spiky = [100.0 + index % 5 for index in range(100)], [99.0 + index % 3 for index in range(100)]
    spiky[::8] = [300.0 + 7 * index % 50 for index in range(13)]
    cells, times = measured_cells({"steady": repeat_run(steady), "spiky": repeat_run(spiky)})
    tail, middle = best(parse("p95_ms", ["where"]), cells, times), best(parse("time_ms", ["where"]), cells, times)
    assert tail.settings["where"] == "steady"
    assert (tail.ties, tail.unjudged) == ([], [])
    assert middle.settings["where"] == "spiky", "by the median the spiky one is the faster one"


def test_one_run_of_a_cell_is_not_judged_however_many_samples_it_has() -> None:
    cells, times = measured_cells(
        {"a": [[100.0 + i % 3 for i in range(400)]], "b": [[300.0 + i % 3 for i in range(400)]]}
    )
    found = best(parse("time_ms", ["where"]), cells, times)
    assert (found.ties, [one["where"] for one in found.unjudged]) == ([], ["b"])
    assert not any("slower" in line for line in found.details)
    assert "--repeats=3" in found.details[-1]


def test_too_few_samples_for_a_p95_are_not_judged_and_what_is_not_shown_comes_with_its_size() -> None:
    few = {"a": repeat_run([100.0 + i % 3 for i in range(19)]), "b": repeat_run([300.0 + i % 3 for i in range(19)])}
    found = best(parse("p95_ms", ["where"]), *measured_cells(few))
    assert (found.ties, [one["where"] for one in found.unjudged]) == ([], ["b"])
    assert "a p95 needs 20 samples of each run, has 19" in found.details[-1]
    near = {"a": repeat_run([100.0] * 9, apart=0.01), "b": repeat_run([101.0] * 9, apart=0.01)}
    found = best(parse("time_ms", ["where"]), *measured_cells(near))
    assert len(found.ties) == 1
    assert float(re.findall(r"up to ([.\d]+) % slower", " ".join(found.details))[0]) >= 1


def test_repeats_that_differ_leave_a_difference_open_that_equal_ones_show() -> None:
    for apart, shown in ((0.04, False), (0.002, True)):
        cells, times = measured_cells(
            {"a": repeat_run([100.0] * 60, apart=apart), "b": repeat_run([108.0] * 60, apart=apart)}
        )
        assert bool(best(parse("time_ms", ["where"]), cells, times).ties) is not shown


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("througput", "did you mean 'throughput'"),
        ("throughput where memory<8", "did you mean 'memory_gib'"),
        ("throughput where memory_gib<lots", "a number is needed"),
        ("throughput where memory_gib", "cannot read"),
        ("throughput please now", "cannot be read"),
        ("", "cannot be read"),
    ],
)
def test_a_wish_that_cannot_be_read(text: str, says: str) -> None:
    with pytest.raises(UserError, match=says) as told:
        parse(text, ["batch_size"])
    assert "\n" not in str(told.value)
