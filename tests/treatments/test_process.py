"""The process's heap and threads as treatments, checked in a process of their own.

The heap of a process that has run other tests is full of holes, in which page faults cannot be counted.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch
from support.suite import warm
from support.suite.places import TESTS

from strobe.treatments.process_settings import Threads

# The layout of a heap is chance: beside other work, about one fresh process in six holds its memory in none of the ways
# that the checks count. What is broken is so in each of them.
TRIES = 6
CHECKS = TESTS / "support" / "programs" / "process_checks.py"


def test_memory_and_threads_are_switched_and_put_back_in_a_fresh_process():
    done = None
    for _ in range(TRIES):
        done = warm.run("-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", CHECKS)
        if done.returncode == 0:
            break
    assert done is not None
    assert done.returncode == 0, done.stdout[-4000:]
    assert "[100%]" in done.stdout


def test_what_two_policies_want_of_the_process_is_taken_off_in_any_order() -> None:
    before, own = torch.get_num_threads(), {}
    subject = SimpleNamespace(device=torch.device("cpu"))
    for first in (0, 1):
        undos = [Threads(count).apply(subject) for count in (before + 1, before + 2)]  # type: ignore[arg-type]
        assert torch.get_num_threads() == before + 2
        undos.pop(first)()
        own[first] = torch.get_num_threads()
        undos.pop()()
        assert torch.get_num_threads() == before
    assert own == {0: before + 2, 1: before + 1}
