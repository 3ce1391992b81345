"""The record of how long tests take: it names what is there, and what is slow has a reason."""

from __future__ import annotations

import datetime
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.suite import durations
from support.suite.places import ROOT, TESTS

# Each test writes down its worker.
LOGGED = """
import os, pytest
@pytest.mark.parametrize("number", range(12))
def test_one(number):
    with open(__file__.replace(".py", ".log"), "a") as log:
        print(os.environ["PYTEST_XDIST_WORKER"], file=log)
"""


def test_what_is_slow_has_a_reason(request: pytest.FixtureRequest) -> None:
    times = durations.recorded_times()
    unmarked = []
    for item in request.session.items:
        name, _, test = item.nodeid.partition("::")
        slow = item.get_closest_marker("slow")
        assert slow is None or (slow.args and str(slow.args[0]).strip()), f"{item.nodeid}: slow, without a reason"
        seconds = times.get(name, durations.FileTimes()).tests.get(test, 0.0)
        if seconds > durations.SLOW_S and slow is None and item.get_closest_marker("matrix") is None:
            unmarked.append(f"{name}::{test}: {seconds:g} s")
    assert unmarked == [], f"over {durations.SLOW_S:g} s: make them cheaper, or mark them @pytest.mark.slow('why')"


def test_the_record_names_the_files_that_are_there() -> None:
    """A new file is measured by `make durations ARGS=FILE`."""
    files = [path for folder in ("tests", "packages") for path in (ROOT / folder).rglob("test_*.py")]
    there = {str(path.relative_to(ROOT)) for path in files}
    assert set(durations.recorded_times()) == there


def test_a_run_is_recorded_by_file_and_by_slow_test() -> None:
    reports = [("tests/a.py::test_x[1]", 0.5, 0.25, True), ("tests/a.py::test_x[1]", 1.0, 0.25, True)]  # set up, called
    more = [("tests/b.py::test_y", 4.0, 3.5, False), ("tests/b.py::test_z", 0.25, 0.25, True)]
    took = durations.collect_times([*reports, *more])
    assert took["tests/a.py"] == durations.FileTimes(1.5, 0.5, 1.5, {"test_x[1]": 1.5})
    assert took["tests/b.py"].each_change == 0.25
    assert '"test_y": 4.0' in durations.format_times(took)
    assert "test_z" not in durations.format_times(took), "a quick test is in its file's sum alone"


def test_a_file_has_one_worker_and_a_worker_that_dies_holds_nobody_up(tmp_path: Path) -> None:
    """With the flags of the Makefile: the dead worker's other tests run elsewhere, and pytest ends."""
    for name in "abc":
        (tmp_path / f"test_{name}.py").write_text(LOGGED)
    (tmp_path / "test_d.py").write_text(f"{LOGGED}\ndef test_dies(): os._exit(3)\n")
    (flags,) = re.findall(r"^PYTEST = \S+ -m pytest (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    command = [sys.executable, "-m", "pytest", *flags.split(), "-psupport.suite.durations", "-pno:cacheprovider"]
    environment = dict(os.environ, PYTHONPATH=str(TESTS))
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS"):
        environment.pop(name, None)
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert "1 failed, 48 passed" in run.stdout, run.stdout
    workers = [(tmp_path / f"test_{name}.log").read_text().split() for name in "abc"]
    assert [len(set(each)) for each in workers] == [1, 1, 1]


def test_what_waits_is_known_by_its_time_of_a_core() -> None:
    assert durations.FileTimes(wall=20, cpu=6).waits
    assert not durations.FileTimes(wall=20, cpu=15).waits
    assert not durations.FileTimes(wall=2, cpu=0).waits


def test_each_file_goes_first_within_a_week_and_what_changed_before_it() -> None:
    files = [f"tests/test_{index}.py" for index in range(50)]
    days = [datetime.date(2026, 11, 27) + datetime.timedelta(days=day) for day in range(7)]
    first = [[name for name, turn in durations.turns(files, day, files[:1]).items() if turn == 1] for day in days]
    assert sorted(name for names in first for name in names) == sorted(files[1:])
    assert durations.turns(files, days[0], files[:1])[files[0]] == 0
