"""Other work on this machine is seen, and said before a command begins; on a machine at rest there is no line."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from support.examples.runs import act

from strobe.core.cli.live import importing
from strobe.core.cli.runner import Command, Studied
from strobe.core.measure import machine, other_work
from strobe.core.measure.other_work import OtherWork
from strobe.core.runs import saved_runs

LOOK = other_work.look  # as it is: tests of commands get one that sees nothing


def test_a_busy_loop_is_seen() -> None:
    cores = LOOK(0.01).cores
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cores)]
    try:
        seen = max((LOOK(0.4) for _ in range(5)), key=lambda seen: seen.busy)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    assert seen.busy > 0.6 * cores
    assert seen.times_as_long > 1.6
    assert f"of {cores} core" in str(seen.words())


def look_at_cores(monkeypatch: pytest.MonkeyPatch, per_core: list[dict[str, float]]) -> OtherWork:
    """Look at cores that took so many seconds of each kind, out of one."""
    fields = ("user", "nice", "system", "idle", "iowait", "steal", "guest")

    def reading(scale: float) -> list[Any]:
        rows = [{name: scale * core.get(name, 0.0) for name in fields} for core in per_core]
        return [SimpleNamespace(_fields=fields, **row) for row in rows]

    readings = iter([reading(0.0), reading(1.0)])
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: next(readings))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(len(per_core))), raising=False)
    monkeypatch.setattr(psutil.Process, "nice", lambda _: 0)
    monkeypatch.setattr(other_work, "_sleep", lambda _: None)
    return LOOK(0.0)


def test_a_machine_at_rest_has_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    at_rest = look_at_cores(monkeypatch, [{"user": 0.05, "idle": 0.95}, {"system": 0.1, "idle": 0.8, "iowait": 0.1}])
    assert at_rest.busy == pytest.approx(0.15)
    assert at_rest.words() is None
    giving_way = look_at_cores(monkeypatch, [{"nice": 1.0}, {"nice": 0.9, "idle": 0.1}])
    assert giving_way.words() is None


def test_a_busy_one_has(monkeypatch: pytest.MonkeyPatch) -> None:
    one = look_at_cores(monkeypatch, [{"user": 0.9, "steal": 0.1}, {"idle": 1.0}])
    assert one.busy == pytest.approx(1.0)
    assert one.words() == (
        "1 of 2 cores is busy with other work: expect wide confidence intervals; "
        "work on the CPU takes about 1.5 times as long"
    )
    assert one.words(timed=False) == (
        "1 of 2 cores is busy with other work: work on the CPU takes about 1.5 times as long"
    )
    assert "2 of 2 cores are busy" in str(OtherWork(2, 1.9, 4.0).words())
    assert OtherWork(2, 2.0, 4.0).times_as_long == 3, "programs that wait take their turns as well"


@dataclass
class Nothing:
    """No flags."""


@pytest.mark.parametrize(("heavy", "said"), [("timed", True), ("untimed", True), (None, False)])
def test_a_command_says_it_before_it_begins_and_in_its_notes(monkeypatch, capsys, heavy, said) -> None:
    looks: list[None] = []

    def look() -> OtherWork:
        looks.append(None)
        return OtherWork(2, 2.0, 2.0)

    monkeypatch.setattr(other_work, "look", look)
    result = SimpleNamespace(notes=[], status="complete")
    began: list[str] = []

    def study(_: Nothing, live: Any) -> Studied:
        assert not looks, "what is wrong with the flags is said at once"
        live.stage("the work")
        live.stage("more of it")
        began.append(capsys.readouterr().err)
        return Studied(result, {}, None, shown=False)

    assert Command("made-up", "", Nothing, None, study, heavy=heavy)([]) == 0
    (before,) = began
    assert ("2 of 2 cores are busy with other work" in before) == said
    assert ("wide confidence intervals" in before) == (heavy == "timed")
    assert len(looks) == said, "a command that measures nothing does not wait for a look"
    assert [note for note in result.notes if "2 of 2 cores" in note] == result.notes
    assert len(result.notes) == said


@pytest.fixture
def torchless_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has not imported torch, whose user has said nothing of how its threads wait."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    for name in other_work.WAITING:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def test_threads_give_way_where_torch_is_not_there_yet_and_the_user_has_said_nothing(
    monkeypatch: pytest.MonkeyPatch, torchless_process: None
) -> None:
    assert other_work.waiting() == ""
    assert "OMP_WAIT_POLICY=passive" in str(other_work.give_way())
    assert os.environ["OMP_WAIT_POLICY"] == "passive"
    monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.setenv("GOMP_SPINCOUNT", "1000")
    assert other_work.give_way() is None, "the user's own setting stays"
    assert "OMP_WAIT_POLICY" not in os.environ
    monkeypatch.delenv("GOMP_SPINCOUNT")
    monkeypatch.setitem(sys.modules, "torch", sys)
    assert other_work.give_way() is None, "torch's threads have read their settings"
    assert "OMP_WAIT_POLICY" not in os.environ


@pytest.mark.parametrize("gives_way", [True, False])
@pytest.mark.parametrize("busy", [True, False])
def test_only_a_busy_machine_and_a_command_that_says_so_changes_how_threads_wait(
    monkeypatch: pytest.MonkeyPatch, torchless_process: None, capsys: Any, gives_way: bool, busy: bool
) -> None:
    monkeypatch.delitem(sys.modules, "lerobot.policies", raising=False)
    monkeypatch.setattr(other_work, "look", lambda: OtherWork(2, 2.0 * busy, 2.0 * busy))
    result = SimpleNamespace(notes=[], status="complete")
    seen: list[str] = []

    def read(_: Any) -> Nothing:
        with importing():  # as a recipe is checked
            seen.append(other_work.waiting())
        return Nothing()

    def study(_: Nothing, live: Any) -> Studied:
        live.stage("the work")
        return Studied(result, {}, None, shown=False)

    assert Command("made-up", "", Nothing, read, study, heavy="timed", gives_way=gives_way)([]) == 0
    assert seen == ["OMP_WAIT_POLICY=passive" if busy and gives_way else ""]
    assert capsys.readouterr().err.count("2 of 2 cores") == busy
    assert [note for note in result.notes if "OMP_WAIT_POLICY=passive" in note] == result.notes[1:]
    assert len(result.notes) == busy + (busy and gives_way)


def test_runs_whose_threads_wait_otherwise_are_not_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in other_work.WAITING:
        monkeypatch.delenv(name, raising=False)
    before = machine.describe(torch.device("cpu"))
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    after = machine.describe(torch.device("cpu"))
    assert "waiting threads" not in before.power
    assert after.power["waiting threads"] == "OMP_WAIT_POLICY=passive"
    run = act()
    runs = (run.model_copy(update={"machine": each}) for each in (before, after))
    old, new = (saved_runs.settings(each, each.measurements[0]) for each in runs)
    assert saved_runs.unlike(old, new) == ["waiting threads: none → OMP_WAIT_POLICY=passive"]
