"""Two ranks of `strobe train`, with a pause in the policy's forward pass on rank 1; their variables are torchrun's."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from support.suite import warm

LEAST_S = 0.6
RANKS = 2
TESTS = Path(__file__).parents[2]


def run_ranks(arguments: Sequence[str], folder: Path, limit_s: float = 300) -> tuple[list[int], str]:
    """Run ``strobe train arguments`` on two ranks in ``folder``: their exit codes, and what both printed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": RANKS, "LOCAL_WORLD_SIZE": RANKS, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    code = (
        f"import sys; sys.path.insert(0, {str(TESTS)!r}); from support.programs import slow_rank; "
        f"slow_rank.train({[*arguments]!r})"
    )
    with ExitStack() as stack:
        ranks = []
        for rank in range(RANKS):
            own = {"RANK": rank, "LOCAL_RANK": rank} | shared
            env = dict(os.environ) | {name: str(value) for name, value in own.items()}
            ranks.append(stack.enter_context(warm.start("-c", code, cwd=folder, env=env)))
        until = time.monotonic() + limit_s
        done = [rank.wait_for_end(max(0.0, until - time.monotonic())) for rank in ranks]
    return [rank.returncode for rank in done], "".join(rank.stdout + rank.stderr for rank in done)


def train(arguments: Sequence[str]) -> None:
    """Be the rank that the variables say."""
    from lerobot.policies.act.modeling_act import ACTEncoder

    from strobe.core.cli.main import main

    if os.environ["RANK"] == "1":
        ACTEncoder.forward = _slow_down(ACTEncoder.forward)
    sys.exit(main(["train", *arguments]))


def _slow_down(encode):
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
