"""Doctor: planted faults are named, and what is sound holds. Clocks, files and processes are a test's own."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.places import ROOT

from strobe.core.errors import UserError
from strobe.core.processes import isolate
from strobe.doctor import clock, steadiness, tools, treatments, versions
from strobe.doctor.results import SelfCheck
from strobe.doctor.run import Areas, doctor
from strobe.doctor.treatments import Attempt
from strobe.treatments.graphs.host_work import EpochCache


def outcomes(checks: Iterator[SelfCheck] | list[SelfCheck]) -> dict[str, str]:
    return {check.name: check.outcome for check in checks}


class Time:
    """A time of the test's own: work and sleeping let it go on, and each clock shows it in its own way."""

    def __init__(self, host: Callable[[float], float] = float, device: Callable[[float], float] | None = None) -> None:
        self.true_ns = 1e12
        self._host, self._device = host, device

    def advance(self, seconds: float) -> None:
        self.true_ns += seconds * 1e9

    def work(self, units: int) -> None:
        self.advance(0.02 * units)

    def read(self) -> float:
        assert self._device is not None
        return self._device(self.true_ns)

    def resolve(self, marks: list[float]) -> list[int | None]:
        return [round(mark) for mark in marks]

    def clocks(self) -> clock.Clocks:
        device: Any = None if self._device is None else self
        return clock.Clocks(
            device=device,
            host=lambda: round(self._host(self.true_ns)),
            wall=lambda: round(self.true_ns),
            sleep=self.advance,
        )


READINGS = count()
CLOCKS: dict[str, tuple[Callable[[float], float], Callable[[float], float] | None, list[str]]] = {
    "sound": (float, None, []),
    "sound, with a device": (float, float, []),
    "a host's clock that drifts": (lambda ns: 1e12 + (ns - 1e12) * 1.002, None, ["the host's clock over minutes"]),
    "a device's clock that drifts": (float, lambda ns: 1e12 + (ns - 1e12) * 0.998, ["the device's clock over minutes"]),
    "a host's clock at half its rate": (
        lambda ns: ns / 2,
        None,
        ["the host's clock and a sleep", "the host's clock over minutes"],
    ),
    "a device's clock in another unit": (
        float,
        lambda ns: ns * 1.1,
        ["the device's clock and the host's", "the device's clock over minutes"],
    ),
    "a device's clock that counts its readings": (
        float,
        lambda _: 1e12 + 5e6 * next(READINGS),
        [
            "twice the work takes twice the time",
            "the device's clock and the host's",
            "the device's clock over minutes",
        ],
    ),
}


@pytest.mark.parametrize("name", CLOCKS)
def test_a_clock_that_is_wrong_is_named(name: str) -> None:
    host, device, expected = CLOCKS[name]
    own = Time(host, device)
    clocks = own.clocks()
    first = clocks.now()
    found = list(clock.check_clocks(clocks, own.work))
    own.advance(150)
    found += list(clock.later(clocks, first))
    assert [check.name for check in found if check.outcome == "fails"] == expected
    assert all(check.means and check.do for check in found if check.outcome == "fails")


def test_work_that_is_uneven_is_not_blamed_on_the_clock() -> None:
    own, calls = Time(), iter(range(1000))
    found = outcomes(
        clock.check_clocks(own.clocks(), lambda units: own.advance(0.02 * units * (3 if next(calls) % 5 else 1)))
    )
    assert found["twice the work takes twice the time"] in ("holds", "doubtful")


def test_the_same_against_the_same_shows_no_difference_on_a_steady_machine() -> None:
    own = Time()
    jitter = iter([1 + 0.01 * ((7 * index) % 11 - 5) / 5 for index in range(100_000)])
    found = outcomes(steadiness.examine_noise(lambda: own.advance(0.005 * next(jitter)), lambda: own.true_ns / 1e9))
    assert set(found.values()) == {"holds"}


def test_a_pace_that_changes_with_the_place_of_a_call_spoils_verdicts_and_is_named() -> None:
    # Calls go A B, B A: the second and third of four are B's.
    own, calls = Time(), iter(range(100_000))
    jitter = iter([1 + 0.01 * ((7 * index) % 11 - 5) / 5 for index in range(100_000)])

    def call() -> None:
        own.advance(0.005 * next(jitter) * (1.1 if next(calls) % 4 in (1, 2) else 1))

    assert outcomes(steadiness.examine_noise(call, lambda: own.true_ns / 1e9))["verdicts on the same (A/A)"] == "fails"


def test_noise_on_a_machine_with_slow_calls_ends_in_time() -> None:
    own = Time()
    list(steadiness.examine_noise(lambda: own.advance(1), lambda: own.true_ns / 1e9))
    assert (own.true_ns - 1e12) / 1e9 <= steadiness.TRIES * 10


def test_ctrl_c_while_the_same_is_compared_ends_it() -> None:
    own, calls = Time(), count()

    def call() -> None:
        own.advance(0.005)
        if next(calls) == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(steadiness.examine_noise(call, lambda: own.true_ns / 1e9))


def machine(tmp_path: Path, **files: str) -> steadiness.System:
    for name, text in files.items():
        place = tmp_path / name.replace("__", "/").replace("_dot_", ".")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return steadiness.System(tmp_path, tmp_path)


def steady(own: Time, system: steadiness.System, slow: Callable[[], float], **power: str) -> steadiness.Steadiness:
    return steadiness.Steadiness(
        lambda: own.advance(0.01 * slow()),
        lambda: {name.replace("_", " "): value for name, value in power.items()},
        system,
        lambda: own.true_ns / 1e9,
    )


def test_a_machine_that_slows_down_is_named(tmp_path: Path) -> None:
    own = Time()
    for slower, expected in ((1.02, "holds"), (1.3, "doubtful")):
        pace = [1.0]
        watched = steady(own, machine(tmp_path), lambda pace=pace: pace[0])
        watched.begin()
        pace[0] = slower
        found = {check.name: check for check in watched.end()}
        assert found["pace"].outcome == expected
    assert "+30 %" in found["pace"].seen


def test_a_quota_heat_and_a_power_mode_are_named(tmp_path: Path) -> None:
    heat = "cpu0__thermal_throttle__core_throttle_count"
    system = machine(
        tmp_path, cpu_dot_max="150000 100000", cpu_dot_stat="nr_throttled 4\nthrottled_usec 1000", **{heat: "2"}
    )
    watched = steady(Time(), system, lambda: 1.0, governor="powersave", supply="battery, 40 %")
    watched.begin()
    calm = outcomes(watched.end())
    assert (calm["processor quota"], calm["slowed by heat"], calm["power mode"]) == ("holds", "holds", "doubtful")
    machine(tmp_path, cpu_dot_stat="nr_throttled 9\nthrottled_usec 2001000", **{heat: "5"})
    found = {check.name: check for check in watched.end()}
    assert found["processor quota"].outcome == found["slowed by heat"].outcome == "doubtful"
    assert "stopped 5 times, 2.0 s" in found["processor quota"].seen
    assert "OMP_NUM_THREADS=1" in (found["processor quota"].do or "")


def test_the_quota_of_an_older_kind_of_group_is_read_too(tmp_path: Path) -> None:
    told = tmp_path / "told"
    told.write_text("3:cpuset:/\n1:cpu,cpuacct:/robot\n0::/\n")
    machine(tmp_path / "cpu" / "robot", cpu_dot_cfs_quota_us="50000", cpu_dot_cfs_period_us="100000")
    machine(tmp_path / "cpu" / "robot", cpu_dot_stat="nr_periods 9\nnr_throttled 3\nthrottled_time 1500000000")
    system = steadiness.System(steadiness.own_group(told, tmp_path), tmp_path)
    assert (system.quota_cores(), system.held_up()) == (0.5, (3, 1.5))
    told.write_text("0::/not/to/be/seen/from/here\n")
    assert steadiness.own_group(told, tmp_path) == tmp_path


def test_a_gpu_that_heat_holds_down_is_named(tmp_path: Path) -> None:
    told = {"sm_clock": "900 MHz", "largest_sm_clock": "1980 MHz", "temperature": "87"}
    for bits, outcome, words in (("0x0000000000000040", "doubtful", "heat"), ("0x0000000000000001", "holds", "900")):
        watched = steady(Time(), machine(tmp_path), lambda: 1.0, throttled_because=bits, **told)
        watched.begin()
        found = {check.name: check for check in watched.end()}["the GPU's clock"]
        assert (found.outcome, words in found.seen) == (outcome, True)


class Program:
    """A program that takes ``cores`` of processor time."""

    def __init__(self, pid: int, name: str, cores: float) -> None:
        self.pid, self._name, self._cores = pid, name, cores
        self._began = time.perf_counter()

    def name(self) -> str:
        return self._name

    def cpu_times(self) -> Any:
        return SimpleNamespace(user=self._cores * (time.perf_counter() - self._began), system=0.0)


def test_other_programs_are_named() -> None:
    busy = steadiness.others(0.05, lambda: [Program(1, "browser", 1.4), Program(2, "idle", 0.0)])  # type: ignore[list-item]
    assert busy.outcome == "doubtful"
    assert "browser 1." in busy.seen
    assert "idle" not in busy.seen
    assert steadiness.others(0.05, lambda: [Program(1, "idle", 0.01)]).outcome == "holds"  # type: ignore[list-item]


LOCK = ROOT / "requirements" / "lock.txt"


def test_the_versions_called_tested_are_those_that_the_suite_runs_with() -> None:
    locked = dict(line.split()[0].split("==") for line in LOCK.read_text().splitlines() if "==" in line.split(" ")[0])
    assert {name: locked[name] for name in versions.TESTED} == dict(versions.TESTED)


@pytest.mark.parametrize(
    ("version", "outcome"),
    [("2.11.0", "holds"), ("2.11.1+cu128", "holds"), ("2.8.0", "doubtful"), ("2.3.1", "fails"), ("2.12.0", "doubtful")],
)
def test_a_version_is_known_older_or_too_old(version: str, outcome: str) -> None:
    (found,) = [check for check in versions.examine({"torch": version}) if check.name == "torch"]
    assert found.outcome == outcome
    assert bool(found.do) == (outcome != "holds")


def test_a_newer_version_that_nothing_forbids_needs_care() -> None:
    (found,) = [check for check in versions.examine({"ray": "99.0"}) if check.name == "ray"]
    assert (found.outcome, "Newer" in (found.means or "")) == ("doubtful", True)


def test_an_extra_that_is_not_installed_comes_with_its_command() -> None:
    found = {check.name: check for check in versions.extras(["ray"])}
    assert found["extra 'ray'"].outcome == "holds"
    missing = found["extra 'smolvla'"]
    assert (missing.outcome, missing.do) == ("missing", "pip install 'strobe-lab[smolvla]'")
    assert "transformers" in missing.seen


def dies(*_: Any) -> Any:
    raise isolate.IsolatedCallError("RuntimeError: DataLoader worker is killed by signal: Bus error")


def test_shared_memory_that_runs_out_is_named_with_the_way_out(tmp_path: Path) -> None:
    found = {check.name: check for check in tools.examine_loaders(dies, tmp_path)}
    shared = found["shared memory of loader workers"]
    assert shared.outcome == "fails"
    assert "Bus error" in shared.seen
    assert "--shm-size" in (shared.do or "")
    assert found["video decoder torchcodec"].outcome == "missing"


def test_shared_memory_that_is_small_needs_care(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=64 << 20))
    found = {check.name: check for check in tools.examine_loaders(lambda *_: 100.0, tmp_path)}
    assert found["shared memory of loader workers"].outcome == "doubtful"
    assert "64 MiB" in found["shared memory of loader workers"].seen


def test_tools_that_are_missing_come_with_their_command() -> None:
    def run(_: Any, kind: str) -> float:
        if kind == "pusht":
            return 3.0
        if kind == "libero":
            raise UserError("the environment 'libero' is not installed: pip install 'lerobot[libero]'")
        raise isolate.IsolatedCallError("its process died (signal SIGSEGV)")

    found = {check.name: check for check in tools.examine_tools(run, lambda _: None)}
    assert found["simulator pusht"].outcome == "holds"
    assert (found["simulator libero"].outcome, found["simulator libero"].do) == (
        "missing",
        "pip install 'lerobot[libero]'",
    )
    assert found["simulator metaworld"].outcome == "fails"
    assert (found["C++ compiler"].outcome, "g++" in (found["C++ compiler"].do or "")) == ("missing", True)


def test_that_processes_start_from_nothing_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolate, "unfit", lambda: "imports started threads: hum")
    areas = Areas(first={"machine": lambda: iter(())}, last={})
    result = doctor(torch.device("cpu"), Path("runs"), only=["machine"], areas=areas)
    assert result.notes[-1].endswith("with imports of its own: imports started threads: hum")


CACHED_IN_A_GRAPH = Attempt("pi05", ({"prefix_cache": "static"}, {"graph": "loop"}), played=True)


@pytest.mark.filterwarnings("ignore:graph=loop steps aside in calls with RTC")
def test_a_treatment_that_is_wrong_in_graphs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault that was there: what a warm-up left is found in the capture, so its work is missing in the graph."""
    assert not treatments.try_attempt(CACHED_IN_A_GRAPH, "cpu").broken
    monkeypatch.setattr(EpochCache, "now", lambda self: self)
    found = treatments.judge_attempt(CACHED_IN_A_GRAPH, "cpu", lambda call, *given: call(*given))
    assert found.outcome == "fails"
    assert found.name == "prefix_cache=static + graph=loop, pi05 (played on the CPU)"


def test_treatments_that_do_not_apply_or_crash_are_told_apart() -> None:
    here = treatments.judge_attempt(Attempt("act", ({"tf32": True},)), "cpu", lambda call, *given: call(*given))
    assert here.outcome == "not here"
    assert treatments.judge_attempt(Attempt("act", ({"tf32": True},)), "cpu", dies).outcome == "fails"


@pytest.mark.parametrize("lever", ["amp", "accumulate"])
def test_a_lever_of_training_is_tried_on_gradients(lever: str) -> None:
    found = treatments.try_attempt(Attempt("act", lever=lever), "cpu")
    assert not found.broken
    assert "gradient's cosine" in found.seen


def check_result(name: str, outcome: str = "holds") -> SelfCheck:
    return SelfCheck.model_validate({"area": "clock", "name": name, "outcome": outcome, "seen": "1 ms"})


def run_doctor(tmp_path: Path, **first: Callable[[], Iterator[SelfCheck]]) -> Any:
    areas: Any = Areas(first=dict(first), last={"clock": lambda: iter([check_result("later")])})  # type: ignore[arg-type]
    return doctor(torch.device("cpu"), tmp_path, areas=areas, only=["clock", "noise", "machine"])


def test_an_area_that_fails_ends_no_other(tmp_path: Path) -> None:
    def broken_area() -> Iterator[SelfCheck]:
        raise OSError("no such file")
        yield

    found = run_doctor(tmp_path, clock=lambda: iter([check_result("at once")]), noise=broken_area)
    assert [(check.name, check.outcome) for check in found.checks] == [
        ("at once", "holds"), ("later", "holds"), ("the same work compared with itself", "fails"),
    ]  # fmt: skip
    assert "no such file" in found.checks[-1].seen
    assert not found.is_trusted


def test_ctrl_c_keeps_the_self_checks_that_were_made(tmp_path: Path) -> None:
    def interrupted_area() -> Iterator[SelfCheck]:
        yield check_result("first")
        raise KeyboardInterrupt

    found = run_doctor(tmp_path, clock=interrupted_area)
    assert (found.status, outcomes(found.checks), found.is_trusted) == ("interrupted", {"first": "holds"}, False)
