"""Doctor: planted faults are named, and what is sound holds. Times, files and processes are a test's own."""

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
from support.suite.places import ROOT

from strobe.core.errors import UserError
from strobe.core.processes import isolate
from strobe.doctor import steadiness, tools, versions
from strobe.doctor.results import SelfCheck
from strobe.doctor.run import doctor


def outcomes(checks: Iterator[SelfCheck] | list[SelfCheck]) -> dict[str, str]:
    return {check.name: check.outcome for check in checks}


class Time:
    """A time of the test's own, which work lets go on."""

    def __init__(self) -> None:
        self.true_ns = 1e12

    def advance(self, seconds: float) -> None:
        self.true_ns += seconds * 1e9


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
    return steadiness.System(tmp_path)


def examine(system: steadiness.System, held_up: tuple[int, float] | None, **power: str) -> dict[str, SelfCheck]:
    facts = {name.replace("_", " "): value for name, value in power.items()}
    return {check.name: check for check in steadiness.examine_steadiness(system, held_up, facts)}


def test_a_quota_and_a_power_mode_are_named(tmp_path: Path) -> None:
    system = machine(tmp_path, cpu_dot_max="150000 100000", cpu_dot_stat="nr_throttled 4\nthrottled_usec 1000")
    before = system.held_up()
    calm = examine(system, before, governor="powersave", supply="battery, 40 %")
    assert (calm["processor quota"].outcome, calm["power mode"].outcome) == ("holds", "doubtful")
    machine(tmp_path, cpu_dot_stat="nr_throttled 9\nthrottled_usec 2001000")
    quota = examine(system, before)["processor quota"]
    assert quota.outcome == "doubtful"
    assert "stopped 5 times, 2.0 s" in quota.seen
    assert "OMP_NUM_THREADS=1" in (quota.do or "")


def test_the_quota_of_an_older_kind_of_group_is_read_too(tmp_path: Path) -> None:
    told = tmp_path / "told"
    told.write_text("3:cpuset:/\n1:cpu,cpuacct:/robot\n0::/\n")
    machine(tmp_path / "cpu" / "robot", cpu_dot_cfs_quota_us="50000", cpu_dot_cfs_period_us="100000")
    machine(tmp_path / "cpu" / "robot", cpu_dot_stat="nr_periods 9\nnr_throttled 3\nthrottled_time 1500000000")
    system = steadiness.System(steadiness.own_group(told, tmp_path))
    assert (system.quota_cores(), system.held_up()) == (0.5, (3, 1.5))
    told.write_text("0::/not/to/be/seen/from/here\n")
    assert steadiness.own_group(told, tmp_path) == tmp_path


def test_a_gpu_that_heat_holds_down_is_named(tmp_path: Path) -> None:
    told = {"sm_clock": "900 MHz", "largest_sm_clock": "1980 MHz", "temperature": "87"}
    for bits, outcome, words in (("0x0000000000000040", "doubtful", "heat"), ("0x0000000000000001", "holds", "900")):
        found = examine(machine(tmp_path), None, throttled_because=bits, **told)["the GPU's clock"]
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
    result = doctor(torch.device("cpu"), Path("runs"), only=["machine"], areas={"machine": lambda: iter(())})
    assert result.notes[-1].endswith("with imports of its own: imports started threads: hum")


def check_result(name: str, outcome: str = "holds") -> SelfCheck:
    return SelfCheck.model_validate({"area": "steadiness", "name": name, "outcome": outcome, "seen": "1 ms"})


def run_doctor(tmp_path: Path, **areas: Callable[[], Iterator[SelfCheck]]) -> Any:
    return doctor(torch.device("cpu"), tmp_path, areas=areas, only=["steadiness", "noise", "machine"])  # type: ignore[arg-type]


def test_an_area_that_fails_ends_no_other(tmp_path: Path) -> None:
    def broken_area() -> Iterator[SelfCheck]:
        raise OSError("no such file")
        yield

    found = run_doctor(tmp_path, steadiness=lambda: iter([check_result("at once")]), noise=broken_area)
    assert [(check.name, check.outcome) for check in found.checks] == [
        ("the same work compared with itself", "fails"), ("at once", "holds"),
    ]  # fmt: skip
    assert "no such file" in found.checks[0].seen
    assert not found.is_trusted


def test_ctrl_c_keeps_the_self_checks_that_were_made(tmp_path: Path) -> None:
    def interrupted_area() -> Iterator[SelfCheck]:
        yield check_result("first")
        raise KeyboardInterrupt

    found = run_doctor(tmp_path, steadiness=interrupted_area)
    assert (found.status, outcomes(found.checks), found.is_trusted) == ("interrupted", {"first": "holds"}, False)
