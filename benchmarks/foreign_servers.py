"""Do SGLang's and vllm-omni's own servers answer `strobe breakdown --policy.server`, and is what it says right?

Their own code runs for the route, the websocket, the messages and the handshake. A function of 20 ms answers in place
of scheduler, engine and model, which need a GPU (`foreign/sglang_server.py`, `foreign/vllm_omni_server.py`).

Bars, for each server: with a policy that works, no call fails, nothing is advised that accuses an input or the network,
and the 20 ms lie in the part that its clocks can know (SGLang sends its own time: `server`; vllm-omni sends none:
`network and server`). With one that fails from the third call on, the failures are counted, named as the server's, and
the calls before them are kept.

    pip install --target=FOLDER --no-deps sglang==0.5.23 vllm-omni==0.30.0
    pip install --target=FOLDER fastapi uvicorn msgspec omegaconf
    python benchmarks/foreign_servers.py --packages=FOLDER
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.shared import could_not_run, finish, need

HERE = Path(__file__).parent
CALLS, CALL_MS, MORE_MS = 20, 20.0, 15.0  # what a call takes on a busy machine besides
ACCUSING = {"server-ignored-inputs", "server-constant", "server-network", "server-clock"}


@dataclass(frozen=True)
class Server:
    """A server's script, its path, and the part that has its time."""

    script: str
    path: str
    part: str


SERVERS = {
    "SGLang": Server("sglang_server.py", "openpi/policy", "server"),
    "vllm-omni": Server("vllm_omni_server.py", "v1/realtime/robot/openpi", "network and server"),
}


def is_open(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def running_server(server: Server, packages: Path, *fails: str) -> Iterator[str]:
    """Start a server; yield its address."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    with subprocess.Popen([sys.executable, HERE / "foreign" / server.script, packages, str(port), *fails]) as process:
        try:
            while process.poll() is None and not is_open(port):
                time.sleep(0.1)
            yield f"ws://127.0.0.1:{port}/{server.path}"
        finally:
            process.kill()


def call(url: str) -> Any:
    """Return the answer of `strobe breakdown` of a server, with its findings."""
    from strobe.core.runs import store

    with tempfile.TemporaryDirectory() as folder:
        flags = [f"--policy.server={url}", f"--iterations={CALLS}", f"--output_dir={folder}"]
        subprocess.run([sys.executable, "-m", "strobe", "breakdown", *flags], check=True, stdout=subprocess.DEVNULL)
        return store.load_answer(next(Path(folder).iterdir()))


def look(server: Server, packages: Path) -> dict[str, Any]:
    """Return what was said of a server whose policy works, and of one that fails."""
    with running_server(server, packages) as url:
        sound = call(url)
    with running_server(server, packages, "fails") as url:
        failing = call(url)
    parts = {part.name: part.summary.median for part in sound.parts}
    rules, named = ({each.rule for each in answer.findings} for answer in (sound, failing))
    figures = {
        "parts_ms": {name: round(ms, 2) for name, ms in parts.items()},
        "accused": sorted(rules & ACCUSING),
        "failed": [sum(each.count for each in answer.faults) for answer in (sound, failing)],
        "server-error": "server-error" in named,
        "kept": failing.trip is not None,
    }
    figures["right"] = (
        CALL_MS <= parts.get(server.part, 0) <= CALL_MS + MORE_MS and not figures["accused"]
        and figures["failed"][0] == 0 < figures["failed"][1] and figures["server-error"] and figures["kept"]
    )  # fmt: skip
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=Path, help="the folder that both were installed into")
    parser.add_argument("--quick", action="store_true", help="the same: it takes a minute")
    given = parser.parse_args()
    need("remote")
    if given.packages is None or not (given.packages / "sglang").is_dir():
        could_not_run("no SGLang: give --packages=FOLDER (see --help)")
    found = {name: look(server, given.packages.resolve()) for name, server in SERVERS.items()}
    for name, figures in found.items():
        print(name, figures, flush=True)
    finish(found, all(figures["right"] for figures in found.values()))


if __name__ == "__main__":
    main()
