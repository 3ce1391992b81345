"""A watched policy server of LeRobot's in a process of its own, and a client's arguments for it."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from support.suite import warm

CLIENT, SERVER = "robot_client", "policy_server"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def watched_server(folder: Path, *more: str) -> Iterator[tuple[warm.Program, int]]:
    """Yield the server's process and its port; its run goes into ``folder`` / served."""
    port = free_port()
    given = [f"--output_dir={folder / 'served'}", "--", SERVER, f"--port={port}", "--host=127.0.0.1", *more]
    with warm.start("-m", "strobe", "rollout", *given, cwd=folder) as process:
        yield process, port


def wait_for_port(port: int, process: warm.Program) -> None:
    end = time.monotonic() + 300
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"no server: {process.wait_for_end() if process.poll() is not None else 'it hangs'}")


def client_arguments(folder: Path, port: int, kind: str = "act") -> list[str]:
    """The arguments of a client with the dummy robot, for the policy in ``folder`` / ``kind``."""
    return [
        "--robot.type=dummy", f"--robot.told={folder / 'told.jsonl'}", "--robot.id=test",
        f"--robot.calibration_dir={folder}", f"--server_address=127.0.0.1:{port}", f"--policy_type={kind}",
        f"--pretrained_name_or_path={folder / kind}", "--actions_per_chunk=20", "--task=push",
    ]  # fmt: skip
