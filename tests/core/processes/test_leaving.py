"""A process in which a thread of LeRobot's is still inside torch ends with its own exit code, and not by a crash."""

from __future__ import annotations

import subprocess
import threading
import time
import types

import pytest
from support.suite import warm

from strobe.core.processes.lifetime import WAIT_S, threads_inside

# Daemon threads that never end, as an inference thread that compiles does not end in time, in a plug-in of LeRobot's.
BUSY = """
import sys, threading, types
import torch
import lerobot

def start(count):
    module = types.ModuleType("lerobot_policy_busy")
    exec("def call(ones):\\n    while True:\\n        ones @ ones", module.__dict__)
    for _ in range(count):
        threading.Thread(target=module.call, args=(torch.ones(300, 300),), daemon=True).start()

from strobe.core.cli.main import main
start({threads})
sys.argv = ["strobe", *{arguments}]
sys.exit(main())
"""


def run_busy_script(threads: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = BUSY.format(threads=threads, arguments=list(arguments))
    return warm.run("-c", script)


@pytest.mark.parametrize(("arguments", "code"), [(("--version",), 0), (("no-such",), 2)])
def test_threads_that_are_still_busy_cost_the_process_neither_its_code_nor_its_words(
    arguments: tuple[str, ...], code: int
):
    process = run_busy_script(2, *arguments)
    assert process.returncode == code, process.stderr
    assert ("unknown command" in process.stderr) if code else process.stdout.startswith("strobe ")
    assert "terminate called" not in process.stderr


def test_a_process_without_such_a_thread_ends_as_python_ends_it():
    script = "import atexit; atexit.register(print, 'at exit')" + BUSY.format(threads=0, arguments=["--version"])
    process = warm.run("-c", script)
    assert process.returncode == 0
    assert process.stdout.endswith("at exit\n")


def test_threads_are_told_by_what_they_are_inside_of():
    module = types.ModuleType("lerobot_camera_made_up")
    exec("def wait(event, sleep):\n    while not event.is_set():\n        sleep(0.01)", module.__dict__)
    over = threading.Event()
    inside = threading.Thread(target=module.wait, args=(over, time.sleep), daemon=True)
    other = threading.Thread(target=over.wait, daemon=True)
    joined_at_exit = threading.Thread(target=module.wait, args=(over, time.sleep))
    before = threads_inside("lerobot")  # of earlier tests' cameras
    for thread in (inside, other, joined_at_exit):
        thread.start()
    try:
        assert [thread for thread in threads_inside("lerobot") if thread not in before] == [inside]
    finally:
        over.set()
        for thread in (inside, other, joined_at_exit):
            thread.join(WAIT_S)
    assert inside not in threads_inside("lerobot")
