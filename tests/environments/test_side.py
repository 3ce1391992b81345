"""The process of a side: what it answers, and how it ends. A script stands in for what is carried."""

from __future__ import annotations

import os
import signal
import stat
import sys
import time
from pathlib import Path

import psutil
import pytest

from strobe.core.errors import UserError
from strobe.environments import side as sides
from strobe.environments.side import EnvironmentWorker, SideEndedError, SideFailedError, SideOptions

ECHO = """
import json, os, subprocess, sys, time
answers = os.fdopen(int(sys.argv[1]), "wb", buffering=0)
os.set_inheritable(answers.fileno(), False)
for line in sys.stdin:
    order = json.loads(line)
    what, number = order.pop("do"), order.pop("number")
    if what == "die":
        print("RuntimeError: no such kernel", file=sys.stderr, flush=True)
        os._exit(7)
    if what == "sleep":
        time.sleep(60)
    if what == "late":
        time.sleep(0.2)
    if what == "fail":
        order = {"error": "KeyError", "text": "observation.state", "place": "a/b.py, line 3"}
    if what == "child":
        order["pid"] = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid
    if what == "path":
        order["path"] = os.environ.get("PYTHONPATH", "")
    if what == "print":
        print("{}", flush=True)
        sys.stdout.buffer.write(bytes([255, 10]))
        sys.stdout.flush()
        subprocess.run(["echo", "{}"])
    answers.write(order["bytes"].encode("latin-1") if what == "odd" else
                  json.dumps({"number": number, "answer": order}).encode() + b"\\n")
"""


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SideOptions:
    carried = tmp_path / "carried"
    carried.mkdir()
    (carried / "__main__.py").write_text(ECHO)
    monkeypatch.setattr(sides, "CARRIED", carried)
    return SideOptions("next")


@pytest.fixture
def side(options: SideOptions, tmp_path: Path):
    with EnvironmentWorker(options, tmp_path / "log") as started:
        yield started


def test_an_order_is_answered(side: EnvironmentWorker):
    assert side.ask("echo", 10, index=3) == {"index": 3}


def test_a_failed_order_is_one_line_and_the_process_goes_on(side: EnvironmentWorker):
    with pytest.raises(SideFailedError, match=r"^'next' failed: KeyError: observation.state \(a/b.py, line 3\)$"):
        side.ask("fail", 10)
    assert side.ask("echo", 10, index=1) == {"index": 1}


def test_an_ended_process_is_one_line_with_its_last_words(side: EnvironmentWorker):
    with pytest.raises(SideEndedError, match="'next' ended with exit code 7: RuntimeError: no such kernel") as raised:
        side.ask("die", 10)
    assert "\n" not in str(raised.value)


def test_a_killed_process_says_what_kills(side: EnvironmentWorker):
    side.ask("echo", 10)
    os.kill(side.pid, signal.SIGKILL)
    with pytest.raises(SideEndedError, match="signal SIGKILL"):
        side.ask("echo", 10)


def test_no_answer_in_time_ends_it(side: EnvironmentWorker):
    with pytest.raises(SideEndedError, match="did not answer within 1 s"):
        side.ask("sleep", 1)


def test_what_is_printed_is_no_answer_and_is_among_its_last_words(side: EnvironmentWorker):
    """A wrapper's greeting, a byte that is no UTF-8, an empty object, a child's output."""
    assert side.ask("print", 10, index=1) == {"index": 1}
    assert side.ask("echo", 10, index=2) == {"index": 2}
    assert "{}" in side.log.read_text(errors="replace")


def test_a_wrapper_that_prints_before_it_runs_the_interpreter_is_an_interpreter(options: SideOptions, tmp_path: Path):
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\necho "Loading python/3.12"; echo "{{}}"\nexec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    with EnvironmentWorker(SideOptions("next", python=str(wrapper)), tmp_path / "log") as started:
        assert [started.ask("echo", 10, index=index) for index in range(3)] == [{"index": index} for index in range(3)]


def test_an_answer_whose_asker_was_interrupted_is_not_taken_for_the_next(side: EnvironmentWorker):
    side.order("late", index=1)
    assert side.ask("echo", 10, index=2) == {"index": 2}


@pytest.mark.parametrize(
    "given",
    [
        b"{}\n",
        b"\xff\n",
        b"[]\n",
        b"no json\n",
        b'{"number": 99, "answer": {}}\n',
        b"x" * 2_000_000,
        b"[" * 9000 + b"\n",
    ],
    ids=["empty", "no UTF-8", "a list", "no JSON", "another order's", "endless", "deep"],
)
def test_what_is_no_answer_ends_it_in_a_line(side: EnvironmentWorker, given: bytes):
    with pytest.raises(SideEndedError, match="'next' gave an invalid answer and was ended") as raised:
        side.ask("odd", 10, bytes=given.decode("latin-1"))
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 200


def test_what_it_started_ends_with_it(options: SideOptions, tmp_path: Path):
    with EnvironmentWorker(options, tmp_path / "log") as started:
        child = started.ask("child", 10)["pid"]
        assert psutil.pid_exists(child)
    ends = time.monotonic() + 5
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < ends, "a process of the side's outlived it"
        time.sleep(0.05)


def test_a_checkout_comes_before_the_installed_lerobot(tmp_path: Path, options: SideOptions):
    package = tmp_path / "checkout" / "src" / "lerobot"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    of_checkout = SideOptions("pr", lerobot=str(tmp_path / "checkout"))
    of_checkout.check()
    with EnvironmentWorker(of_checkout, tmp_path / "log") as started:
        assert started.ask("path", 10)["path"].split(os.pathsep)[0] == str(tmp_path / "checkout" / "src")


def test_another_environment_does_not_get_this_ones_paths(
    tmp_path: Path, options: SideOptions, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PYTHONPATH", "/of/this/one")
    with EnvironmentWorker(SideOptions("next", python=sys.executable), tmp_path / "log") as started:
        assert started.ask("path", 10)["path"] == ""


@pytest.mark.parametrize("text", ["no program\n", "#!/nowhere/python\n"], ids=["a text", "of a missing program"])
def test_an_interpreter_that_cannot_be_run_is_one_line(options: SideOptions, tmp_path: Path, text: str):
    file = tmp_path / "python"
    file.write_text(text)
    file.chmod(0o755)
    SideOptions("next", python=str(file)).check()
    with pytest.raises(UserError, match=r"'next': .*/python cannot be run: [^\n]+$"):
        EnvironmentWorker(SideOptions("next", python=str(file)), tmp_path / "log")


def test_what_is_not_there_is_one_line(tmp_path: Path):
    with pytest.raises(UserError, match="'next': python=nowhere/python is no interpreter that can be run"):
        SideOptions("next", python="nowhere/python").check()
    with pytest.raises(UserError, match="no interpreter that can be run"):
        SideOptions("next", python=str(tmp_path)).check()
    file = tmp_path / "python"
    file.touch()
    file.chmod(stat.S_IRUSR)
    if os.geteuid():  # root may run anything that one may
        with pytest.raises(UserError, match="no interpreter"):
            SideOptions("next", python=str(file)).check()
    with pytest.raises(UserError, match="has no package 'lerobot'"):
        SideOptions("pr", lerobot=str(tmp_path)).check()
