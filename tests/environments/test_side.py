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

from strobe.environments import side as sides
from strobe.environments.options import SideOptions
from strobe.environments.side import Side, SideEndedError, SideFailedError
from strobe.errors import UserError

ECHO = """
import json, os, subprocess, sys, time
for line in sys.stdin:
    order = json.loads(line)
    what = order.pop("do")
    if what == "die":
        print("RuntimeError: no such kernel", file=sys.stderr, flush=True)
        os._exit(7)
    if what == "sleep":
        time.sleep(60)
    if what == "fail":
        print(json.dumps({"error": "KeyError", "text": "observation.state", "place": "a/b.py, line 3"}), flush=True)
        continue
    if what == "child":
        order["pid"] = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid
    if what == "path":
        order["path"] = os.environ.get("PYTHONPATH", "")
    print(json.dumps(order), flush=True)
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
    with Side(options, tmp_path / "log") as started:
        yield started


def test_an_order_is_answered(side: Side):
    assert side.ask("echo", 10, index=3) == {"index": 3}


def test_a_failed_order_is_one_line_and_the_process_goes_on(side: Side):
    with pytest.raises(SideFailedError, match=r"^'next' failed: KeyError: observation.state \(a/b.py, line 3\)$"):
        side.ask("fail", 10)
    assert side.ask("echo", 10, index=1) == {"index": 1}


def test_an_ended_process_is_one_line_with_its_last_words(side: Side):
    with pytest.raises(SideEndedError, match="'next' ended with exit code 7: RuntimeError: no such kernel") as raised:
        side.ask("die", 10)
    assert "\n" not in str(raised.value)


def test_a_killed_process_says_what_kills(side: Side):
    side.ask("echo", 10)
    os.kill(side.pid, signal.SIGKILL)
    with pytest.raises(SideEndedError, match="signal SIGKILL"):
        side.ask("echo", 10)


def test_no_answer_in_time_ends_it(side: Side):
    with pytest.raises(SideEndedError, match="did not answer within 1 s"):
        side.ask("sleep", 1)


def test_what_it_started_ends_with_it(options: SideOptions, tmp_path: Path):
    with Side(options, tmp_path / "log") as started:
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
    with Side(of_checkout, tmp_path / "log") as started:
        assert started.ask("path", 10)["path"].split(os.pathsep)[0] == str(tmp_path / "checkout" / "src")


def test_another_environment_does_not_get_this_ones_paths(
    tmp_path: Path, options: SideOptions, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PYTHONPATH", "/of/this/one")
    with Side(SideOptions("next", python=sys.executable), tmp_path / "log") as started:
        assert started.ask("path", 10)["path"] == ""


def test_what_is_not_there_is_one_line(tmp_path: Path):
    with pytest.raises(UserError, match="'next': python=nowhere/python is no interpreter that can be run"):
        SideOptions("next", python="nowhere/python").check()
    file = tmp_path / "python"
    file.touch()
    file.chmod(stat.S_IRUSR)
    if os.geteuid():  # root may run anything that one may
        with pytest.raises(UserError, match="no interpreter"):
            SideOptions("next", python=str(file)).check()
    with pytest.raises(UserError, match="holds no package 'lerobot'"):
        SideOptions("pr", lerobot=str(tmp_path)).check()
