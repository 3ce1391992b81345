"""Two ranks of `strobe train` in forks of this process, with a pause in the policy's forward pass on rank 1.

A fork need not import LeRobot again, which took most of a launch by torchrun; its variables are those of torchrun.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

LEAST_S = 0.6
RANKS = 2


def run_ranks(arguments: Sequence[str], folder: Path, limit_s: float = 300) -> tuple[list[int | None], str]:
    """Run ``strobe train arguments`` on two ranks: their exit codes, and what both printed, kept in ``folder``."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    fork = multiprocessing.get_context("fork")
    outs = [folder / f"rank{rank}.out" for rank in range(RANKS)]
    ranks = [fork.Process(target=_train, args=(rank, port, arguments, out)) for rank, out in enumerate(outs)]
    for rank in ranks:
        rank.start()
    until = time.monotonic() + limit_s
    for rank in ranks:
        rank.join(max(0.0, until - time.monotonic()))
        rank.kill()
        rank.join()
    return [rank.exitcode for rank in ranks], "".join(out.read_text() for out in outs)


def _train(rank: int, port: int, arguments: Sequence[str], out: Path) -> None:
    from accelerate.state import AcceleratorState
    from lerobot.policies.act.modeling_act import ACTEncoder

    from strobe.cli.main import main

    number = str(rank)
    os.environ |= {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    AcceleratorState._reset_state(reset_partial_state=True)  # of the trainings that this process has run alone
    if rank == 1:
        ACTEncoder.forward = _slowed(ACTEncoder.forward)
    with out.open("w", buffering=1) as file:
        sys.stdout = sys.stderr = file
        code = main(["train", *arguments])
    os._exit(code)


def _slowed(encode):
    steps_s: list[float] = []  # without their pauses
    ended: list[float] = []  # when the last pause was over

    def slowly(*args, **kwargs):
        """Pause for as long as a step takes on this machine: what is slow on an idle one must be so on a busy one."""
        if ended:
            steps_s.append(time.perf_counter() - ended.pop())
        time.sleep(max(LEAST_S, min(steps_s, default=0.0)))
        ended.append(time.perf_counter())
        return encode(*args, **kwargs)

    return slowly
