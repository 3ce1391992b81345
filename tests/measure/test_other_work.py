"""Other work on this machine is seen, and said before a command begins; on a machine at rest there is no line."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from strobe.cli.runner import Command, Studied
from strobe.measure import other_work
from strobe.measure.other_work import OtherWork

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
    assert f"of {cores} core" in seen.words()


def taken(monkeypatch: pytest.MonkeyPatch, per_core: list[dict[str, float]]) -> OtherWork:
    """Look at cores that took so many seconds of each kind, out of one."""
    fields = ("user", "nice", "system", "idle", "iowait", "steal", "guest")

    def reading(scale: float) -> list[Any]:
        rows = [{name: scale * core.get(name, 0.0) for name in fields} for core in per_core]
        return [SimpleNamespace(_fields=fields, **row) for row in rows]

    readings = iter([reading(0.0), reading(1.0)])
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: next(readings))
    monkeypatch.setattr(other_work.os, "sched_getaffinity", lambda _: set(range(len(per_core))), raising=False)
    monkeypatch.setattr(psutil.Process, "nice", lambda _: 0)
    monkeypatch.setattr(other_work, "_sleep", lambda _: None)
    return LOOK(0.0)


def test_a_machine_at_rest_has_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    at_rest = taken(monkeypatch, [{"user": 0.05, "idle": 0.95}, {"system": 0.1, "idle": 0.8, "iowait": 0.1}])
    assert at_rest.busy == pytest.approx(0.15)
    assert at_rest.words() == ""


def test_a_busy_one_has(monkeypatch: pytest.MonkeyPatch) -> None:
    one = taken(monkeypatch, [{"user": 0.9, "steal": 0.1}, {"idle": 1.0}])
    assert one.busy == pytest.approx(1.0)
    assert one.words() == (
        "1 of 2 cores is busy with other work: figures will be wide, and work on the CPU takes about 1.5 times as long"
    )
    assert one.words(timed=False) == (
        "1 of 2 cores is busy with other work: work on the CPU takes about 1.5 times as long"
    )
    assert "2 of 2 cores are busy" in OtherWork(2, 1.9, 4.0).words()
    assert OtherWork(2, 2.0, 4.0).times_as_long == 3, "programs that wait take their turns as well"


def test_work_that_gives_way_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert taken(monkeypatch, [{"nice": 1.0}, {"nice": 0.9, "idle": 0.1}]).words() == ""


@dataclass
class Nothing:
    """No flags."""


@pytest.mark.parametrize(("heavy", "said"), [("timed", True), ("untimed", True), ("", False)])
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
    assert ("figures will be wide" in before) == (heavy == "timed")
    assert len(looks) == said, "a command that measures nothing does not wait for a look"
    assert [note for note in result.notes if "2 of 2 cores" in note] == result.notes
    assert len(result.notes) == said
