"""Does `strobe breakdown --policy.server` find a planted delay in the part that it was planted in?

The server is the stand-in of the tests, which answers as openpi's does, on this machine. Delays go into the client's
encoding, into a network before the server (half of it each way), and into the server's inference. A round trip of each
is compared with one without a delay.

- The planted part grows by the delay, within 15 %, and the others together by less than a tenth of it.
- The parts add up to what a stopwatch around each call shows, within 2 %.
- A ping without data grows by the network's delay and by no other.
- With --openpi-python=PYTHON, an interpreter that has openpi-client: that package writes the same bytes as Strobe for
  one message, and reads Strobe's; its client gets the stand-in's metadata, actions and time, and its exception.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from _shared import finish
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.openpi_server import TRACEBACK, Policy, actions, delayed, serving

from strobe.policies import openpi_client
from strobe.policies.openpi_observations import ObservationOptions, load
from strobe.policies.openpi_protocol import encode
from strobe.results.server import ServerAnswer
from strobe.studies.server import ServerOptions, server

DELAYS_MS, QUICK_MS = (20.0, 50.0, 200.0), (100.0,)
CALLS, QUICK_CALLS = 40, 12
GROWS, SPILLS, SUM = 0.15, 0.1, 0.02  # the bars


# Runs in the other interpreter, with the server's address and a message in hexadecimal → a line of JSON.
REFERENCE = """
import json, sys
import numpy as np
from openpi_client import msgpack_numpy, websocket_client_policy
image = np.arange(64 * 48 * 3, dtype=np.uint32).astype(np.uint8).reshape(64, 48, 3)
message = {"image": image, "state": np.linspace(-1, 1, 8, dtype=np.float32), "n": np.int64(-5), "on": np.array([True]),
           "nested": {"view": np.arange(6).reshape(2, 3)[:, ::2]}, "prompt": "fold", "list": [1, 2.5, None]}
read = msgpack_numpy.unpackb(bytes.fromhex(sys.argv[2]))
same = all(np.array_equal(read[name], message[name]) for name in ("image", "state", "n", "on"))
same = same and np.array_equal(read["nested"]["view"], message["nested"]["view"])
client = websocket_client_policy.WebsocketClientPolicy(sys.argv[1])
answer = client.infer(message)
try:
    client.infer(message)
    error = ""
except RuntimeError as raised:
    error = str(raised)
print(json.dumps({"bytes": msgpack_numpy.packb(message).hex(), "read": bool(same), "error": error,
                  "metadata": client.get_server_metadata(), "actions": list(answer["actions"].shape),
                  "infer_ms": answer["server_timing"]["infer_ms"]}))
"""


def message() -> dict[str, Any]:
    """Return the message that `REFERENCE` makes too."""
    return {
        "image": np.arange(64 * 48 * 3, dtype=np.uint32).astype(np.uint8).reshape(64, 48, 3),
        "state": np.linspace(-1, 1, 8, dtype=np.float32),
        "n": np.int64(-5),
        "on": np.array([True]),
        "nested": {"view": np.arange(6).reshape(2, 3)[:, ::2]},
        "prompt": "fold",
        "list": [1, 2.5, None],
    }


def as_openpi(python: str) -> dict[str, bool]:
    """Return what agrees with the package openpi-client, by name."""
    ours = encode(message())
    with serving(Policy(answer=lambda seen, number: actions() if number == 1 else TRACEBACK)) as url:
        command = [python, "-c", REFERENCE, url, ours.hex()]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        sys.exit(f"{python} has no openpi-client that runs: {ran.stderr.strip()[-200:]}")
    theirs = json.loads(ran.stdout.strip().splitlines()[-1])
    return {
        "writes the same bytes": bytes.fromhex(theirs["bytes"]) == ours,
        "reads ours": theirs["read"],
        "gets the metadata": theirs["metadata"] == {"robot": "stand-in"},
        "gets the actions": theirs["actions"] == [10, 7] and theirs["infer_ms"] >= 0,
        "gets the exception": "KeyError: 'observation/state'" in theirs["error"],
    }


class Nothing:
    """Shows nothing."""

    def stage(self, what: str) -> None:
        """Show nothing."""

    def progress(self, progress: Any) -> None:
        """Show nothing."""


@contextmanager
def planted(where: str, delay_s: float) -> Iterator[str]:
    """Yield the address of a server with a delay planted at one place; '' for none."""
    encode = openpi_client.encode

    def slowly(message: Any) -> bytes:
        time.sleep(delay_s)
        return encode(message)

    openpi_client.encode = slowly if where == "encode" else encode
    try:
        policy, each_way_s = Policy(infer_s=0.02 + delay_s * (where == "server")), delay_s / 2 * (where == "network")
        with serving(policy) as url, delayed(url, each_way_s) as far:  # the proxy is there without a delay too
            yield far
    finally:
        openpi_client.encode = encode


def called(where: str, delay_ms: float, calls: int) -> tuple[ServerAnswer, float]:
    """Return where the time of calls goes, and by which share the parts miss a stopwatch around each call."""
    call, stopwatch = openpi_client.OpenpiClient.call, []

    def timed(self: openpi_client.OpenpiClient, observation: Any) -> openpi_client.Exchange:
        began = time.perf_counter()
        exchange = call(self, observation)
        stopwatch.append(1e3 * (time.perf_counter() - began))
        return exchange

    observations = load(ObservationOptions())
    openpi_client.OpenpiClient.call = timed
    try:
        with planted(where, delay_ms / 1e3) as url:
            answer = server(ServerOptions(url, iterations=calls), observations, Nothing())
    finally:
        openpi_client.OpenpiClient.call = call
    around = float(np.mean(stopwatch[-len(answer.values) :]))
    return answer, abs(sum(part.summary.mean for part in answer.parts) / around - 1)


def medians(answer: ServerAnswer) -> dict[str, float]:
    """Return the median of each part and of a ping, in milliseconds."""
    found = {part.name: part.summary.median for part in answer.parts}
    return found | ({"ping": answer.ping.summary.median} if answer.ping is not None else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one delay, few calls")
    parser.add_argument("--openpi-python", default="", help="an interpreter that has openpi-client")
    asked = parser.parse_args()
    agrees = as_openpi(asked.openpi_python) if asked.openpi_python else {}
    delays, calls = (QUICK_MS, QUICK_CALLS) if asked.quick else (DELAYS_MS, CALLS)
    plain, off = called("", 0.0, calls)
    before, holds = medians(plain), off <= SUM and all(agrees.values())
    table = Table(box=None, pad_edge=False)
    for title in ("planted", "ms", "encode", "network", "server", "decode", "ping", "parts off", ""):
        table.add_column(title, justify="left" if title in ("planted", "") else "right")
    figures: dict[str, dict[str, float]] = {}
    for where in ("encode", "network", "server"):
        for delay in delays:
            answer, off = called(where, delay, calls)
            grown = {name: value - before.get(name, 0.0) for name, value in medians(answer).items()}
            parts = {name: grown[name] for name in ("encode", "network", "server", "decode")}
            spilt = sum(parts.values()) - parts[where]
            pinged = abs(grown["ping"] - delay * (where == "network"))
            held = abs(parts[where] / delay - 1) <= GROWS and abs(spilt) <= SPILLS * delay
            held &= pinged <= GROWS * delay and off <= SUM
            holds &= held
            figures[f"{where} {delay:g} ms"] = {
                "found": round(parts[where] / delay, 4),
                "elsewhere": round(spilt / delay, 4),
                "parts_off": round(off, 6),
            }
            cells = [f"{grown[name]:+.2f}" for name in (*parts, "ping")]
            table.add_row(where, f"{delay:g}", *cells, f"{100 * off:.3f} %", "" if held else "differs")
    Console(width=120).print(table)
    finish({"calls": calls, "planted": figures, "openpi-client": agrees}, holds)


if __name__ == "__main__":
    main()
