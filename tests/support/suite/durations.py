"""A plug-in of pytest: the seconds of each test are recorded, and decide which goes first and which needs a reason.

`make durations` runs all tests and writes ``tests/durations.json``; ``ARGS=tests/tune`` measures these files alone. Run
it on a machine at rest. From that record follow, in every run with several workers:

- The order: what takes longest goes first, so that no worker is left with it at the end.
- The groups: a file is one, on one worker, since its tests share fixtures. Files that wait (for a server, a camera's
  clock, a loader) are one group together: their worker leaves the cores to the others. Groups follow from the tests'
  ids, in a scheduler of ours: the marks of xdist 3.8 have no effect on the ids of pytest 9.2.
- The reasons: a test that took over `SLOW_S` has the mark ``slow``, with what no quicker test shows.
  `test_durations.py` refuses it otherwise.

``--left-s=600`` is for CI: after that many seconds the remaining tests are skipped, and their files are named. What a
change touched goes first, then one seventh of the others for each day of the week, then the rest.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import time
import zlib
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from support.suite.scripts import load_script

ROOT = Path(__file__).parents[3]
RECORD = ROOT / "tests" / "durations.json"
SLOW_S = 5.0
NOTED_S = 1.0  # quicker tests are recorded in their file's sum alone
WAITING = "waiting"
LEFT_OUT = "left out: the time was over"
SHARDS = 7  # one for each day of the week
RECENT = "12 hours ago"  # what was committed since then is the change
_DEADLINE = "STROBE_TESTS_END"  # to the workers


@dataclass
class FileTimes:
    """The seconds of one file's tests, fixtures included.

    Args:
        wall: by the clock, of all of them, and ``cpu`` those of CPU.
        each_change: by the clock, of those that `make test` runs.
        tests: by the clock, of each test that took `NOTED_S`.
    """

    wall: float = 0.0
    cpu: float = 0.0
    each_change: float = 0.0
    tests: dict[str, float] = field(default_factory=dict)

    @property
    def waits(self) -> bool:
        """Whether it waits for most of its time, and for so long that it matters."""
        return self.wall > 3 and self.cpu < 0.5 * self.wall


@cache
def recorded_times() -> dict[str, FileTimes]:
    """The record, by file; empty where there is none."""
    if not RECORD.is_file():
        return {}
    return {name: FileTimes(**times) for name, times in json.loads(RECORD.read_text()).items()}


def nodeid_file(nodeid: str) -> str:
    """Return the file of a test by its id."""
    return nodeid.partition("::")[0]


def worker_group(nodeid: str) -> str:
    """Return the group of a test: all of its tests run on one worker."""
    name = nodeid_file(nodeid)
    return WAITING if recorded_times().get(name, FileTimes()).waits else name


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the flags of this plug-in."""
    group = parser.getgroup("durations")
    group.addoption(
        "--record-durations", action="store_true", help=f"write the seconds of what runs into {RECORD.name}"
    )
    group.addoption("--with-slow", action="store_true", help="run what is marked slow as well")
    group.addoption("--left-s", type=float, metavar="SECONDS", help="after that time skip what remains, and name it")


def pytest_configure(config: pytest.Config) -> None:
    """Tell the workers when to end."""
    if (seconds := config.getoption("--left-s")) is not None:
        os.environ.setdefault(_DEADLINE, str(time.time() + seconds))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return the scheduler of xdist that hands out groups; None where another form of distribution is asked for."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return worker_group(nodeid)

    return Groups(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(tryfirst=True)  # the marks are there when pytest selects by them
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what `make test` leaves out; with several workers, group the files and put the longest first."""
    for item in items:
        slow = item.get_closest_marker("slow")
        if slow is not None and not slow.kwargs.get("each_change") and not config.getoption("--with-slow"):
            item.add_marker(pytest.mark.matrix)
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    times = recorded_times()
    groups = {item: worker_group(item.nodeid) for item in items}
    seconds: dict[str, float] = dict.fromkeys(groups.values(), 0.0)
    for name, group in {nodeid_file(item.nodeid): group for item, group in groups.items()}.items():
        seconds[group] += times.get(name, FileTimes()).wall
    turn = turns({nodeid_file(item.nodeid) for item in items}) if config.getoption("--left-s") is not None else {}
    first = dict.fromkeys(seconds, SHARDS)
    for item, group in groups.items():
        first[group] = min(first[group], turn.get(nodeid_file(item.nodeid), 0))
    items.sort(key=lambda item: (first[groups[item]], -seconds[groups[item]], groups[item]))


def turns(
    files: Iterable[str], today: datetime.date | None = None, changed: Iterable[str] | None = None
) -> dict[str, int]:
    """Return when each file's turn comes where not all have time: 0 for what a change touched, 1 for today's seventh.

    So each file goes first once in seven days.
    """
    day = (today or datetime.date.today()).toordinal()
    touched = set(changed_files() if changed is None else changed)
    return {name: 0 if name in touched else 1 + (zlib.crc32(name.encode()) - day) % SHARDS for name in files}


def changed_files() -> list[str]:
    """Return the files of tests that were committed lately, and those of the questions whose modules were."""
    log = ["git", "log", f"--since={RECENT}", "--name-only", "--format="]
    changed = subprocess.run(log, cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    slices = load_script("slices")
    modules = [name.removeprefix("src/strobe/").removesuffix(".py").replace("/", ".") for name in changed]
    questions = {question for module in modules for question in slices.module_slices(module)}
    table = slices.table()
    return [*changed, *(name for question in questions for name in table[question])]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out what begins too late; not in a pytest that a test starts, which has the variable and not the flag."""
    if item.config.getoption("--left-s") is not None and time.time() > float(os.environ.get(_DEADLINE, "inf")):
        pytest.skip(LEFT_OUT)


_cpu_before = 0.0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note the CPU time since the report before, of this process and of those that it waited for."""
    global _cpu_before
    report = yield
    now = sum(os.times()[:4])
    report.cpu_s, _cpu_before = now - _cpu_before, now  # type: ignore[attr-defined]
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Write how long each file and each slow test took, and name the files that were left out."""
    reports = [one for found in terminalreporter.stats.values() for one in found if isinstance(one, pytest.TestReport)]
    took = collect_times(
        (one.nodeid, one.duration, getattr(one, "cpu_s", 0.0), "matrix" not in one.keywords) for one in reports
    )
    if (store := getattr(config, "cache", None)) is not None:  # pytest was not started with -p no:cacheprovider
        store.mkdir("durations").joinpath("last.json").write_text(format_times(took))
    if config.getoption("--record-durations"):
        kept = {name: times for name, times in recorded_times().items() if (ROOT / name).is_file()}
        RECORD.write_text(format_times(kept | took))
    late = sorted({nodeid_file(report.nodeid) for report in reports if LEFT_OUT in str(report.longrepr)})
    if late:
        terminalreporter.write_line(f"{LEFT_OUT}: {' '.join(late)}")


def collect_times(reports: Iterable[tuple[str, float, float, bool]]) -> dict[str, FileTimes]:
    """Return each file's times, from reports: id, seconds by the clock, of CPU, whether `make test` runs it."""
    took: dict[str, FileTimes] = {}
    for nodeid, seconds, cpu_s, each_change in reports:
        name, _, test = nodeid.partition("::")
        times = took.setdefault(name, FileTimes())
        times.wall += seconds
        times.cpu += cpu_s
        times.each_change += seconds * each_change
        times.tests[test] = times.tests.get(test, 0.0) + seconds
    return took


def format_times(took: dict[str, FileTimes]) -> str:
    """Return ``took`` as JSON, by name; of quick tests nothing but their part of the sums."""
    rows = {
        name: {
            "wall": round(times.wall, 1),
            "cpu": round(times.cpu, 1),
            "each_change": round(times.each_change, 1),
            "tests": {test: round(s, 1) for test, s in sorted(times.tests.items()) if s >= NOTED_S},
        }
        for name, times in sorted(took.items())
    }
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"
