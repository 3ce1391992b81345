"""Does `strobe breakdown --policy.server` find a planted delay and a planted fault, with each of its three protocols?

The servers are on this machine: stand-ins of the tests that answer as openpi's and GR00T's do, and LeRobot's own
PolicyServer with a function in place of a policy. --wires names some of them. With --watched LeRobot's server is also a
process of `strobe rollout -- policy_server` that serves a tiny ACT: its own time must grow with --inference_latency.

Delays go into the client's encoding, into a network before the server (half of it each way), and into the server's
inference. A round trip of each is compared with one without a delay, made right before it, after as long a pause:
processes that slept wake up late and find cold caches, which takes 3 to 10 ms of the other parts on a virtual machine.

- The planted part grows by the delay, within 15 %, and the others together by less than a tenth of it, or 4 ms, as two
  runs without a delay may differ. LeRobot's calls go there and back twice. Servers of GR00T and LeRobot send no time
  along: network and server are one part, and only the ping shows which of the two it is.
- The parts add up to what a stopwatch around each call shows, within 2 %, or 1 ms where a call is short.
- A ping without data grows by the network's delay and by no other.
- Two robots on one server that computes one call at a time, as openpi's does: what a round trip grows by is found as
  waiting within 15 % or 4 ms, and by no more do the server's own time and the network grow. The finding names it, and
  names nothing where the robot is alone.
- A network of 20 MB/s and 5 ms each way, float32 and uint8 images at two sizes: under a tenth of it is called waiting,
  the bytes per second are found within 15 % from messages over 1 MB, and what a smaller message is said to save is
  within 15 % of the round trip of what it saves.
- Five faults from the third call on are named by their findings: a slow answer, none, a connection that breaks off,
  actions of another shape, an exception of the policy.
- With --openpi-python=PYTHON, an interpreter that has openpi-client: that package writes the same bytes as Strobe for
  one message, and reads Strobe's; its client gets the stand-in's metadata, actions and time, and its exception.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
from common.shared import could_not_run, finish, need
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
if __name__ == "__main__":
    need("remote")  # before it is imported
from support.servers.openpi_server import TRACEBACK, Policy, actions, delay_network, serving, serving_one_at_a_time

from strobe.core.kinds import advise
from strobe.servers.protocols import lerobot_messages
from strobe.servers.protocols.lerobot_messages import ServedPolicy
from strobe.servers.protocols.observations import ObservationOptions, read
from strobe.servers.protocols.openpi import OpenpiWire, encode
from strobe.servers.results import ServerAnswer
from strobe.servers.run import ServerOptions, server

DELAYS_MS, QUICK_MS = (20.0, 50.0, 200.0), (100.0,)
CALLS, QUICK_CALLS = 30, 12
GROWS, SPILLS, SUM = 0.15, 0.1, 0.02  # the bars
SPILL_MS = 4.0  # as two runs without a delay may differ
SUM_MS = 1.0  # by which the parts may miss the stopwatch, however short the call
FAULTS = {
    "slow": "server-slow",
    "silent": "server-silent",
    "breaks off": "server-closed",
    "another shape": "server-other-shape",
    "raises": "server-error",
}
OF_LEROBOT = {"raises": "server-empty"}  # unwatched, it answers a policy's exception with nothing
TIMEOUT_S = 0.8  # of a call, where a fault is planted

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


def check_openpi_agreement(python: str) -> dict[str, bool]:
    """Return what agrees with the package openpi-client, by name."""
    ours = encode(message())
    with serving(Policy(answer=lambda seen, number: actions() if number == 1 else TRACEBACK)) as url:
        command = [python, "-c", REFERENCE, url, ours.hex()]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        could_not_run(f"{python} has no openpi-client that runs: {ran.stderr.strip()[-200:]}")
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


@dataclass(frozen=True)
class Kind:
    """One protocol.

    Args:
        stand_in: the server of the tests.
        wire: class of its connections.
        encoder: what encodes an observation: a module, or a class if a method does it.
        network, inference: the parts in which a delay of the network or of the server is found.
        ways: ways there and back in one call.
    """

    stand_in: str
    wire: str
    encoder: str
    network: str = "network and server"
    inference: str = "network and server"
    ways: int = 1


_OPENPI, _GROOT = "strobe.servers.protocols.openpi.OpenpiWire", "strobe_zoo.groot_server.GrootWire"
_LEROBOT, _MESSAGES = "strobe.servers.protocols.lerobot.LerobotWire", "strobe.servers.protocols.lerobot_messages"
KINDS = {
    "openpi": Kind("support.servers.openpi_server", _OPENPI, _OPENPI, "network", "server"),
    "GR00T": Kind("support.servers.groot_server", _GROOT, _GROOT),
    "LeRobot": Kind("support.servers.lerobot_server", _LEROBOT, _MESSAGES, ways=2),
}


@contextmanager
def serve_protocol(wire: str, folder: Path, infer_s: float, fault: str = "") -> Iterator[str]:
    """Yield the address of a server of a protocol, with a fault from the third call on."""
    module, over = resolve_name(KINDS[wire].stand_in), threading.Event()

    def answer(seen: Any, number: int) -> Any:
        if number > 2:
            if fault == "slow":
                time.sleep(1.5 * TIMEOUT_S)
            elif fault == "silent":
                over.wait(20)
            elif fault == "breaks off":
                raise module.Break
            elif fault == "another shape":
                return module.actions(chunk=5)
            elif fault == "raises" and wire == "openpi":
                return TRACEBACK
            elif fault == "raises":
                raise KeyError("observation/state")
        return module.actions()

    where = (folder,) if wire == "LeRobot" else ()
    with module.serving(module.Policy(answer=answer, infer_s=infer_s), *where) as url:
        try:
            yield url
        finally:
            over.set()


@contextmanager
def slow_encoding(wire: str, delay_s: float) -> Iterator[None]:
    """Delay the client's encoding of an observation."""
    holder = resolve_name(KINDS[wire].encoder)
    encode = holder.encode

    def slowly(*args: Any, **kwargs: Any) -> bytes:
        time.sleep(delay_s)
        return encode(*args, **kwargs)

    holder.encode = slowly
    try:
        yield
    finally:
        holder.encode = encode


def measure_server_calls(url: str, calls: int, folder: Path, **more: Any) -> ServerAnswer:
    """Return where the time of calls to a server goes."""
    policy = ServedPolicy(str(folder)) if url.startswith("grpc") else None
    return server(ServerOptions(url, iterations=calls, policy=policy, **more), read(ObservationOptions()), Nothing())


def compare_with_stopwatch(
    wire: str, folder: Path, where: str | None, delay_ms: float, calls: int
) -> tuple[ServerAnswer, float]:
    """Return where the time of calls goes, and by which share the parts miss a stopwatch around each call.

    A delay is planted at one place; without one it is a pause before each call. The network is there without a delay
    too.
    """
    delay_s, stopwatch, checks_s = delay_ms / 1e3, [], []
    kind = resolve_name(KINDS[wire].wire)
    call, check = kind.call, lerobot_messages.check

    def time_check(data: bytes) -> None:
        began = time.perf_counter()
        check(data)
        checks_s.append(time.perf_counter() - began)

    def time_exchange(self: Any, observation: Any) -> Any:
        checks_s.clear()
        time.sleep(delay_s * (where is None))
        began = time.perf_counter()
        exchange = call(self, observation)
        # Strobe checks a pickle before it is decoded. A robot's client does not, so the check is no part of a call.
        stopwatch.append(1e3 * (time.perf_counter() - began - sum(checks_s)))
        return exchange

    kind.call, lerobot_messages.check = time_exchange, time_check
    try:
        infer_s = 0.02 + delay_s * (where == "server")
        with (
            serve_protocol(wire, folder, infer_s) as url,
            delay_network(url, delay_s / 2 * (where == "network")) as far,
            slow_encoding(wire, delay_s) if where == "encode" else nullcontext(),
        ):
            answer = measure_server_calls(far, calls, folder)
    finally:
        kind.call, lerobot_messages.check = call, check
    around = float(np.mean(stopwatch[: answer.calls][-len(answer.values) :]))  # no later calls with other inputs
    return answer, abs(sum(part.summary.mean for part in answer.parts) / around - 1)


def medians(answer: ServerAnswer) -> dict[str, float]:
    """Return the median of each part and of a ping, in milliseconds."""
    found = {part.name: part.summary.median for part in answer.parts}
    return found | ({"ping": answer.ping.summary.median} if answer.ping is not None else {})


def _is_sum_close(answer: ServerAnswer, off: float) -> bool:
    """Return whether the parts add up to the stopwatch, which they miss by the share ``off``."""
    return off <= SUM or off * answer.trip.summary.median <= SUM_MS  # type: ignore[union-attr]


def attribute_delays(wire: str, folder: Path, delays: tuple[float, ...], calls: int, table: Table) -> tuple[Any, bool]:
    """Return what was found of each planted delay, and whether the bars hold."""
    kind, holds, figures = KINDS[wire], True, {}
    for where, part in (("encode", "encode"), ("network", kind.network), ("server", kind.inference)):
        for delay in delays:
            expected = delay * (kind.ways if where == "network" else 1)
            plain, plain_off = compare_with_stopwatch(wire, folder, None, expected, calls)
            answer, off = compare_with_stopwatch(wire, folder, where, delay, calls)
            before = medians(plain)
            grown = {name: value - before.get(name, 0.0) for name, value in medians(answer).items()}
            ping = grown.pop("ping")
            spilt = sum(grown.values()) - grown[part]
            held = abs(grown[part] / expected - 1) <= GROWS and abs(spilt) <= max(SPILLS * expected, SPILL_MS)
            held &= abs(ping - delay * (where == "network")) <= GROWS * delay and _is_sum_close(answer, off)
            holds &= held and _is_sum_close(plain, plain_off)
            figures[f"{where} {delay:g} ms"] = {
                "found": round(grown[part] / expected, 4),
                "elsewhere": round(spilt / expected, 4),
                "ping": round(ping / delay, 4),
                "parts_off": round(off, 6),
            }
            cells = [f"{grown[part]:+.2f}", f"{spilt:+.2f}", f"{ping:+.2f}", f"{100 * off:.3f} %"]
            table.add_row(wire, where, f"{expected:g}", part, *cells, "" if held else "differs")
    return figures, holds


def name_planted_faults(wire: str, folder: Path) -> dict[str, str]:
    """Return the rule and the exception's name that name each planted fault; '' for one that is not named."""
    named = {}
    for fault, rule in FAULTS.items():
        wanted = OF_LEROBOT.get(fault, rule) if wire == "LeRobot" else rule
        with serve_protocol(wire, folder, 0.0, fault) as url:
            # gRPC may take a second to tell its client that a server has ended.
            limit_s = 5.0 if fault == "breaks off" else TIMEOUT_S
            answer = measure_server_calls(url, 6, folder, timeout_s=limit_s)
        rules = [each for each in advise(answer) if each.rule == wanted]
        exact = len(answer.faults) == 1 and answer.faults[0].call == 3
        named[fault] = f"{wanted}: {answer.faults[0].name}" if rules and exact else ""
    return named


@contextmanager
def second_robot(url: str, pause_s: float) -> Iterator[None]:
    """Call the same server from another connection meanwhile, so long after each answer."""
    over = threading.Event()

    def call() -> None:
        with OpenpiWire(url, 10.0) as wire:
            observation = wire.observations(read(ObservationOptions())).each[0]
            while not over.wait(pause_s):
                wire.call(observation)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)


def two_robots(folder: Path, calls: int) -> tuple[dict[str, Any], bool]:
    """Return what is found of the wait for another robot's calls of 80 ms, and whether the bars hold."""
    infer_s, way_s, figures, holds = 0.08, 0.004, {}, True
    for pause_s in (0.2, 0.05, 0.0):
        with serving_one_at_a_time(Policy(infer_s=infer_s)) as url, delay_network(url, way_s) as far:
            alone = measure_server_calls(far, calls, folder)
            with second_robot(url, pause_s):
                shared = measure_server_calls(far, calls, folder)
        grew = {part.name: part.summary.mean - alone.part(part.name).summary.mean for part in shared.parts}  # type: ignore[union-attr]
        waited = shared.trip.summary.mean - alone.trip.summary.mean  # type: ignore[union-attr]
        named = [any(found.rule == "server-busy" for found in advise(answer)) for answer in (alone, shared)]
        big = waited >= 0.15 / 0.85 * 1.2 * alone.trip.summary.mean  # type: ignore[union-attr]  # enough for the finding
        held = abs(grew["wait"] - waited) <= max(GROWS * waited, 4.0) and not named[0] and (named[1] or not big)
        held &= max(abs(grew["server"]), abs(grew["network"])) <= max(GROWS * waited, 4.0)
        holds &= held
        figures[f"pause {1e3 * pause_s:g} ms"] = {
            "waited_ms": round(waited, 2), **{name: round(value, 2) for name, value in grew.items()},
            "found": named, "holds": held,
        }  # fmt: skip
    return figures, holds


def slow_network(folder: Path, calls: int) -> tuple[dict[str, Any], bool]:
    """Return what float32 and uint8 images of two sizes cost over a slow network, and whether the bars hold."""
    rate, way_s, figures, holds = 20e6, 0.005, {}, True
    trips: dict[tuple[str, str], ServerAnswer] = {}
    for size in ((480, 640), (224, 224)):
        for dtype in ("float32", "uint8"):
            image = {"shape": [*size, 3], "dtype": dtype}
            template = {"observation/image": image, "observation/wrist_image": image}
            file = folder / "template.json"
            file.write_text(json.dumps(template | {"observation/state": {"shape": [8]}, "prompt": "fold"}))
            with serving(Policy(infer_s=0.026)) as url, delay_network(url, way_s, bytes_per_s=rate) as far:
                options = ServerOptions(far, iterations=calls)
                answer = server(options, read(ObservationOptions(file=file)), Nothing())
            trips[dtype, f"{size[0]}×{size[1]}"] = answer
            found = medians(answer)
            seen, sent = answer.bytes_per_s or 0.0, answer.sent_bytes.median  # type: ignore[union-attr]
            figures[f"{dtype} {size[0]}×{size[1]}"] = {
                "sent_kb": round(sent / 1e3),
                "transfer_ms": round(found["network"] - found["ping"], 2),
                "serialise_ms": round(found["encode"] + found["decode"], 2),
                "wait_ms": round(found["wait"], 2),
                "computing_ms": round(found["server"], 2),
                "round_trip_ms": round(answer.trip.summary.median, 2),  # type: ignore[union-attr]
                "found_mb_s": round(seen / 1e6, 2),
            }
            holds &= found["wait"] <= max(2.0, 0.1 * found["network"])
            holds &= sent < 1e6 or abs(seen / rate - 1) <= GROWS
    present = trips["float32", "480×640"]
    forms = {each.kind: each for each in present.encodings}
    smaller = {"as uint8": ("uint8", "480×640"), "resized": ("uint8", "224×224")}
    for kind, other in smaller.items():
        form = forms[kind]  # type: ignore[index]
        said = (form.saves_ms(forms["as sent"]) or 0.0) + form.ms  # the other run's images were made before
        saved = present.trip.summary.median - trips[other].trip.summary.median  # type: ignore[union-attr]
        figures[f"{kind} saves"] = {
            "said_ms": round(said, 2),
            "saved_ms": round(saved, 2),
            "to_make": round(form.ms, 2),
        }
        holds &= abs(said - saved) <= GROWS * present.trip.summary.median  # type: ignore[union-attr]
    return figures, holds


def measure_watched_server(folder: Path, calls: int) -> dict[str, float]:
    """Return the median of the server's own time, of a watched process with a tiny ACT, at two latencies."""
    from support.builders.checkpoints import tiny_for_robot
    from support.servers.policy_server import wait_for_port, watched_server

    tiny_for_robot("act", folder / "act", 6, ("top",), 32)
    found = {}
    for latency_ms in (200, 400):
        place = folder / str(latency_ms)
        place.mkdir()
        with watched_server(place, f"--inference_latency={latency_ms / 1e3}") as (process, port):
            wait_for_port(port, process)
            answer = measure_server_calls(f"grpc://127.0.0.1:{port}", calls, folder / "act")
        found[f"{latency_ms} ms"] = medians(answer).get("server", 0.0)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one delay, few calls")
    parser.add_argument("--wires", default=",".join(KINDS), help="openpi,GR00T,LeRobot")
    parser.add_argument("--openpi-python", default="", help="an interpreter that has openpi-client")
    parser.add_argument("--watched", action="store_true", help="also a process of LeRobot's server, watched")
    given = parser.parse_args()
    agrees = check_openpi_agreement(given.openpi_python) if given.openpi_python else {}
    delays, calls = (QUICK_MS, QUICK_CALLS) if given.quick else (DELAYS_MS, CALLS)
    holds, figures, named = all(agrees.values()), {}, {}
    table = Table(box=None, pad_edge=False)
    for title in ("protocol", "planted", "ms", "part", "grew", "elsewhere", "ping", "parts off", ""):
        table.add_column(title, justify="left" if title in ("protocol", "planted", "part", "") else "right")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        features = {"observation.state": {"shape": [6]}, "observation.images.top": {"shape": [3, 224, 224]}}
        (folder / "config.json").write_text(json.dumps({"type": "act", "input_features": features}))
        for wire in given.wires.split(","):
            figures[wire], held = attribute_delays(wire, folder, delays, calls, table)
            named[wire] = name_planted_faults(wire, folder)
            holds &= held and all(named[wire].values())
        shared = slow = {}
        if "openpi" in given.wires.split(","):
            (shared, apart), (slow, foretold) = two_robots(folder, calls), slow_network(folder, calls)
            holds &= apart and foretold
        own = measure_watched_server(folder, calls) if given.watched else {}
    if own:
        holds &= abs(own["400 ms"] - own["200 ms"] - 200) <= GROWS * 200
    Console(width=120).print(table)
    more = {"two robots": shared, "slow network": slow, "watched": own, "openpi-client": agrees}
    finish({"calls": calls, "planted": figures, "faults": named, **more}, holds)


if __name__ == "__main__":
    main()
