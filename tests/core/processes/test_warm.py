"""A program that is forked from the tests' warm parent finds what a fresh Python finds, and ends as one does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.suite import warm

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")

PROGRAM = """
import json, os, random, signal, sys, threading
import numpy
print(json.dumps({
    "argv": sys.argv,
    "path": sys.path,
    "name": __name__,
    "main": sys.modules["__main__"].__dict__ is globals(),
    "cwd": os.getcwd(),
    "variables": [os.environ.get(name) for name in ("STROBE_GIVEN", "PATH", "PYTHONPATH")],
    "parent": os.getppid(),
    "own session": os.getsid(0) == os.getpid(),
    "answers": [str(signal.getsignal(each)) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)],
    "stdin": sys.stdin.read(),
    "terminal": [stream.isatty() for stream in (sys.stdout, sys.stderr)],
    "threads": threading.active_count(),
    "strobe": "strobe" in sys.modules,
    "drawn": [random.random(), float(numpy.random.random())],
}))
print("words", file=sys.stderr)
sys.exit(3)
"""


def cold(
    *arguments: str, cwd: Path, env: dict[str, str] | None = None, session: bool = False
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=env, start_new_session=session, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("program", [("-c", PROGRAM), ("-m", "probe")], ids=["code", "module"])
@pytest.mark.parametrize("session", [False, True], ids=["same session", "own session"])
def test_a_program_finds_what_it_finds_in_fresh_python(program: tuple[str, str], session: bool, tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text(PROGRAM)
    env = {**os.environ, "STROBE_GIVEN": "2", "PYTHONPATH": os.pathsep.join([str(tmp_path / "more"), str(tmp_path)])}
    del env["PATH"]

    def run_program(run: Callable[..., subprocess.CompletedProcess[str]]) -> dict[str, Any]:
        ran = run(*program, "an argument", cwd=tmp_path, env=env, session=session)
        assert (ran.returncode, ran.stderr) == (3, "words\n")
        return json.loads(ran.stdout)

    fresh, forked, again = run_program(cold), run_program(warm.run), run_program(warm.run)
    assert fresh["parent"] == os.getpid()
    assert len({number for each in (fresh, forked, again) for number in each.pop("drawn")}) == 6
    assert fresh == forked == again


@pytest.mark.parametrize(
    "program", ["raise ValueError('no torque')", "import sys; sys.exit('no torque')", "import os; os.abort()"]
)
def test_it_ends_as_in_a_fresh_python(program: str, tmp_path: Path) -> None:
    fresh, forked = (run("-c", program, cwd=tmp_path) for run in (cold, warm.run))
    assert forked.returncode == fresh.returncode != 0
    assert fresh.stderr.splitlines()[-1:] == forked.stderr.splitlines()[-1:]


def test_a_signal_ends_it_alone() -> None:
    waits = "import time; time.sleep(600)"
    for number in (signal.SIGTERM, signal.SIGKILL):
        with warm.start("-c", waits) as program, warm.start("-c", waits) as other:
            program.send_signal(number)
            assert program.wait_for_end().returncode == -number
            assert other.poll() is None
        assert other.returncode == -signal.SIGKILL, "it is ended with its block"


def test_a_variable_that_imports_have_read_is_refused() -> None:
    with pytest.raises(AssertionError, match="imports have read HF_HOME"):
        warm.run("-c", "", env={**os.environ, "HF_HOME": "elsewhere"})
