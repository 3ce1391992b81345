"""The tour ends in its time: a stop that would take longer is left out, and its command is printed."""

from __future__ import annotations

import io
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.suite.scripts import load_script

from strobe.core.errors import UserError

tours = load_script("tour")


class Tour:
    """A tour of stops that take ``times`` as long as usual by a clock of their own; ``ran`` are those that ran."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, times: float, stops: list[Any]) -> None:
        self.ran: list[str] = []
        self.now = 0.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)
        pace, written = tours.Pace(), io.StringIO()
        self.now += tours.RECORD_S * times
        pace.note_stop(tours.RECORD_S)
        made = [tours.Stop(s.title, s.usual_s, s.argv, self._run(s, times), s.lacking) for s in stops]
        self.code = tours.run_stops(made, pace, Console(file=written, width=200))
        self.text = written.getvalue()

    def _run(self, stop: Any, times: float) -> Any:
        def run(argv: list[str]) -> int:
            self.ran.append(stop.title)
            self.now += stop.usual_s * times
            return 0

        return run


@pytest.fixture
def stops(tmp_path: Path) -> list[Any]:
    made = tours.tour_stops(tours.TourConfig(output_dir=tmp_path), tmp_path / "pusht", Console(file=io.StringIO()))
    return [tours.Stop(stop.title, stop.usual_s, stop.argv, stop.run) for stop in made]


def test_all_stops_run_on_a_machine_at_rest(monkeypatch: pytest.MonkeyPatch, stops: list[Any]) -> None:
    tour = Tour(monkeypatch, 1.0, stops)
    assert tour.ran == [stop.title for stop in stops]
    assert "left out" not in tour.text
    assert tour.now < 180
    assert f"--seconds={tours.COMPARE_S:.0f}" in tour.text
    assert f"--steps={tours.STEPS}" in tour.text


def test_all_stops_run_where_it_takes_twice_as_long(monkeypatch: pytest.MonkeyPatch, stops: list[Any]) -> None:
    tour = Tour(monkeypatch, 2.5, stops)
    assert tour.ran == [stop.title for stop in stops]
    assert f"--seconds={tours.COMPARE_S * tours.LONGER:.0f}" in tour.text, "fewer rounds would show nothing"
    assert f"--steps={tours.FEWER_STEPS}" in tour.text, "steps cannot be cut short once they run"


@pytest.mark.parametrize("times", [4.0, 8.0, 30.0])
def test_a_busy_machine_leaves_stops_out_and_names_them(
    monkeypatch: pytest.MonkeyPatch, stops: list[Any], times: float
) -> None:
    tour = Tour(monkeypatch, times, stops)
    assert tour.now <= tours.LIMIT_S
    left_out = [stop for stop in stops if stop.title not in tour.ran]
    assert left_out
    assert tour.text.count("left out: it would take about") == len(left_out)
    for stop in left_out:
        assert f"$ strobe {stop.argv(1.0)[0]}" in tour.text


def test_a_stop_that_lacks_something_says_what(monkeypatch: pytest.MonkeyPatch) -> None:
    tour = Tour(monkeypatch, 1.0, [tours.Stop("a robot?", 1.0, lambda _: ["rehearse"], lambda _: 0, "it needs Linux")])
    assert not tour.ran
    assert "left out: it needs Linux" in tour.text


def test_the_first_stop_that_fails_ends_the_tour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)
    ran: list[str] = []
    failing = tours.Stop("one", 1.0, lambda _: ["breakdown"], lambda _: 2)
    after = tours.Stop("two", 1.0, lambda _: ["breakdown"], lambda argv: ran.append("two") or 0)
    assert tours.run_stops([failing, after], tours.Pace(), Console(file=io.StringIO())) == 2
    assert not ran


def test_each_stop_leads_to_its_command(stops: list[Any]) -> None:
    named = [stop for stop in stops if stop.argv(1.0)[0] in ("evaluate", "tune")]
    assert len(named) == 2
    for stop in named:
        with pytest.raises(UserError, match="unknown flag --no_such_flag"):
            stop.run(["--no_such_flag=1"])


def test_what_a_stop_logs_ends_with_it() -> None:
    def training(_: list[str]) -> int:
        logging.root.addHandler(logging.StreamHandler())
        logging.root.setLevel(logging.DEBUG)
        return 0

    before, level = logging.root.handlers[:], logging.root.level
    assert (
        tours.run_stops(
            [tours.Stop("a training", 1.0, lambda _: ["train"], training)], tours.Pace(), Console(file=io.StringIO())
        )
        == 0
    )
    assert (logging.root.handlers, logging.root.level) == (before, level)
