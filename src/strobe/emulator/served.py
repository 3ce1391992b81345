"""The process of an emulated arm: ``python -m strobe.emulator.served``, started by `strobe.emulator.arm`.

It has a process of its own because a driver spins while it waits for an answer, and would starve a thread. The first
line on stdin says what to emulate, each further line asks for something, and each is answered by one line on stdout,
all in JSON. When it is asked to end, or the parent has ended, it closes the port and tells how the arm was left.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from strobe.emulator import calibration, faults
from strobe.emulator.brands import brand_of
from strobe.emulator.bus import Bus, Delivery, PortGone, bus_of
from strobe.emulator.servo import swinging
from strobe.emulator.terminal import Terminal
from strobe.emulator.wire import Packet
from strobe.errors import UserError, in_words

_QUIET_S = 0.005  # a packet that has not ended by then never will
_LOOK_S = 1.0


def serve(
    bus: Bus,
    terminal: Terminal,
    control: int,
    told: Callable[[bytes], None] = lambda data: None,
    alive: Callable[[], bool] = lambda: True,
) -> None:
    """Serve until the pipe ``control`` ends or ``alive`` denies, which is asked every second.

    What comes through ``control`` goes to ``told``, between two answers. A fault that unplugs the adapter hangs the
    terminal up; the rest goes on.
    """
    due: deque[Delivery] = deque()
    heard = time.monotonic()
    plugged = True
    while alive():
        now = time.monotonic()
        while plugged and due and due[0].due_s <= now:
            terminal.write(due.popleft().data)
        wait = min(_LOOK_S, due[0].due_s - now) if due else _LOOK_S
        if bus.unfinished:
            wait = min(wait, _QUIET_S)
        ready, _, _ = select.select([control, terminal.fd] if plugged else [control], [], [], max(0.0, wait))
        now = time.monotonic()
        try:
            if plugged and terminal.fd in ready:
                due += bus.receive(terminal.read(), now)
                heard = now
            elif bus.unfinished and now - heard >= _QUIET_S:
                due += bus.quiet(now)
        except PortGone:
            plugged = False
            due.clear()
            terminal.hang_up()
        if control in ready:  # after the driver's requests, which came first if the parent waited for them
            data = os.read(control, 65536)
            if not data:
                return
            told(data)


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _End(BaseException):
    """The parent or a signal asked for the end."""


def main() -> int:
    for name in _SIGNALS:
        signal.signal(name, _end)
    with contextlib.suppress(_End):
        try:
            with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as lines:  # no byte more than the line
                told = lines.readline()
            return _run(json.loads(told))
        except UserError as error:
            _say({"error": str(error)})
    return 1


def _run(told: Mapping[str, Any]) -> int:
    now = time.monotonic()
    models = told["models"]
    joints = calibration.of(told["calibration"], brand_of(next(iter(models.values()))).offset)
    bus = bus_of(joints, models, latency_s=told["latency_s"], now=now)
    if told["led"]:
        for joint in joints.values():
            bus.servos[joint.id].hand = swinging(joint.range_min, joint.range_max, now)
    parent = told["parent"]
    with contextlib.closing(Terminal(Path(told["link"]) if told["link"] else None)) as terminal:
        with contextlib.suppress(_End), _recording(bus, told["record"]):
            for each in told["faults"]:
                _plant(bus, each)
            _say({"port": terminal.port})
            rest = bytearray()

            def obey(data: bytes) -> None:
                rest.extend(data)
                while (end := rest.find(b"\n")) >= 0:
                    line = bytes(rest[:end])
                    del rest[: end + 1]
                    asked = json.loads(line)
                    if "end" in asked:
                        raise _End
                    _say(_obeyed(bus, asked))

            serve(bus, terminal, sys.stdin.fileno(), obey, lambda: os.getppid() == parent)
        for name in _SIGNALS:
            signal.signal(name, signal.SIG_IGN)  # the end is not to be cut short
        _say({"ended": bus.state(time.monotonic()).content()})
    return 0


def _obeyed(bus: Bus, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Do one thing that the parent asked for, and tell the state after it."""
    try:
        if "plant" in asked:
            _plant(bus, asked["plant"])
        if "clear" in asked:
            bus.faults.clear()
        if "place" in asked:
            now = time.monotonic()
            for id, position in asked["place"]:
                if id not in bus.servos:
                    raise UserError(f"no servo has the id {id}")
                bus.servos[id].advance(now)
                bus.servos[id].place(position)
    except UserError as error:
        return {"error": str(error)}
    return {"state": bus.state(time.monotonic()).content()}


def _plant(bus: Bus, content: Mapping[str, Any]) -> None:
    try:
        bus.plant(faults.of(content))
    except ValueError as error:
        raise UserError(str(error)) from None


@contextlib.contextmanager
def _recording(bus: Bus, path: str | None) -> Iterator[None]:
    if path is None:
        yield
        return
    try:
        out = open(path, "w")  # noqa: SIM115  closed below, and an error in it is the user's
    except OSError as error:
        raise UserError(f"cannot write the packets to {path}: {in_words(error)}") from None
    with out:
        bus.on_packet = lambda now, packet: _record(out, bus, now, packet)
        yield


def _record(out: TextIO, bus: Bus, now: float, packet: Packet) -> None:
    request = bus.wire.request(packet)
    name = request.kind if request else "unknown"
    line = {"time_s": now, "instruction": name, "id": packet.id, "parameters": packet.parameters.hex()}
    out.write(json.dumps(line) + "\n")


def _say(what: Mapping[str, Any]) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more
        os.write(sys.stdout.fileno(), json.dumps(what).encode() + b"\n")


def _end(*_: object) -> None:
    raise _End


if __name__ == "__main__":
    sys.exit(main())
