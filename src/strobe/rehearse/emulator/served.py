"""The process of an emulated arm: ``python -m strobe.rehearse.emulator.served``.

`strobe.rehearse.emulator.arm` starts it. It has a process of its own because a driver spins while it waits for an
answer, and would starve a thread. Its servos answer on a pseudo-terminal that passes for a serial port (`Terminal`).
The first line on stdin says what to emulate; each further line is a request. Each is answered by one line on stdout,
all in JSON. On a request to end, or when the parent has ended, it closes the port and reports the arm's last state.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import tempfile
import time
import tty
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from strobe.core.errors import UserError, os_error_reason
from strobe.core.untrusted import JsonObject
from strobe.rehearse import faults
from strobe.rehearse.emulator import calibration
from strobe.rehearse.emulator.bus import Bus, Delivery, UnpluggedError, find_brand, make_bus
from strobe_servos.servo import swing
from strobe_servos.wire import Packet


class Terminal:
    """The servos' end of a pseudo-terminal. ``port`` is the path that a driver opens.

    The driver's end is raw from the start, because a driver may set only some of the modes. It stays open here too:
    otherwise the servos' end would fail when a driver leaves. Without ``link``, one is made in a temporary folder.

    Raises UserError if the link cannot be made, or if something else has its name.
    """

    def __init__(self, link: Path | None = None) -> None:
        self.fd, self._driver = os.openpty()
        self._folder: Path | None = None
        self.link: Path | None = None
        try:
            tty.setraw(self._driver)
            os.set_blocking(self.fd, False)
            self._target = os.ttyname(self._driver)
            if link is None:
                self._folder = Path(tempfile.mkdtemp(prefix="strobe-arm-"))
                link = self._folder / "port"
            self._make(link)
        except BaseException:
            self.close()
            raise

    @property
    def port(self) -> str:
        """The path that a driver opens."""
        return str(self.link)

    def read(self) -> bytes:
        """Return the bytes that the driver has sent; b"" if there are none."""
        try:
            return os.read(self.fd, 4096)
        except BlockingIOError:
            return b""

    def write(self, data: bytes) -> None:
        """Send ``data`` to the driver. Bytes beyond its buffer are lost, as on a real port."""
        with contextlib.suppress(BlockingIOError):
            os.write(self.fd, data)

    def hang_up(self) -> None:
        """End the connection as a pulled plug does: reading and writing fail from now on."""
        for fd in (self.fd, self._driver):
            with contextlib.suppress(OSError):
                os.close(fd)

    def close(self) -> None:
        """Hang up and remove the link. Another arm's link of that name stays."""
        self.hang_up()
        if self.link:
            with contextlib.suppress(OSError):
                if os.readlink(self.link) == self._target:
                    self.link.unlink()
            self.link = None
        if self._folder:
            with contextlib.suppress(OSError):
                self._folder.rmdir()

    def _make(self, link: Path) -> None:
        link = link.absolute()
        try:
            if link.is_symlink():
                link.unlink()  # of an arm that was killed
            link.symlink_to(self._target)
        except FileExistsError:
            raise UserError(f"{link} exists already, and it is not a link to an emulated arm") from None
        except OSError as error:
            raise UserError(f"cannot make the port {link}: {os_error_reason(error)}") from None
        self.link = link


_QUIET_S = 0.005  # pause after which a packet is unfinished
_LOOK_S = 1.0


def serve(
    bus: Bus,
    terminal: Terminal,
    control: int,
    on_control: Callable[[bytes], None] = lambda data: None,
    alive: Callable[[], bool] = lambda: True,
) -> None:
    """Serve until the pipe ``control`` ends or ``alive``, called every second, returns False.

    Data from ``control`` goes to ``on_control``, between two answers. A fault that unplugs the adapter hangs the
    terminal up; serving continues.
    """
    due: deque[Delivery] = deque()
    heard = time.monotonic()
    plugged = True
    while alive():
        now = time.monotonic()
        while plugged and due and due[0].due_s <= now:
            terminal.write(due.popleft().data)
        wait = min(_LOOK_S, due[0].due_s - now) if due else _LOOK_S
        if bus.has_partial_packet:
            wait = min(wait, _QUIET_S)
        ready, _, _ = select.select([control, terminal.fd] if plugged else [control], [], [], max(0.0, wait))
        now = time.monotonic()
        try:
            if plugged and terminal.fd in ready:
                due += bus.receive(terminal.read(), now)
                heard = now
            elif bus.has_partial_packet and now - heard >= _QUIET_S:
                due += bus.quiet(now)
        except UnpluggedError:
            plugged = False
            due.clear()
            terminal.hang_up()
        if control in ready:  # after the driver's requests, which came first if the parent waited for them
            data = os.read(control, 65536)
            if not data:
                return
            on_control(data)


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _End(BaseException):
    """The parent or a signal requested the end."""


def main() -> int:
    """Emulate the arm that stdin describes, until the end is requested. Return the exit code."""
    for name in _SIGNALS:
        signal.signal(name, _end)
    with contextlib.suppress(_End):
        try:
            with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as lines:  # no byte more than the line
                line = lines.readline()
            return _run(json.loads(line))
        except UserError as error:
            _say({"error": str(error)})
    return 1


def _run(options: Mapping[str, Any]) -> int:
    now = time.monotonic()
    models = options["models"]
    joints = calibration.from_content(options["calibration"], find_brand(next(iter(models.values()))).offset)
    bus = make_bus(joints, models, latency_s=options["latency_s"], now=now)
    if options["led"]:
        for joint in joints.values():
            bus.servos[joint.id].hand = swing(joint.range_min, joint.range_max, now)
    parent = options["parent"]
    with contextlib.closing(Terminal(Path(options["link"]) if options["link"] else None)) as terminal:
        with contextlib.suppress(_End), _recording(bus, options["record"]):
            for each in options["faults"]:
                _plant(bus, each)
            _say({"port": terminal.port})
            rest = bytearray()

            def read_requests(data: bytes) -> None:
                rest.extend(data)
                while (end := rest.find(b"\n")) >= 0:
                    line = bytes(rest[:end])
                    del rest[: end + 1]
                    request = json.loads(line)
                    if "end" in request:
                        raise _End
                    _say(_obey(bus, request))

            serve(bus, terminal, sys.stdin.fileno(), read_requests, lambda: os.getppid() == parent)
        for name in _SIGNALS:
            signal.signal(name, signal.SIG_IGN)  # nothing may interrupt the end
        _say({"ended": bus.state(time.monotonic()).content()})
    return 0


def _obey(bus: Bus, request: Mapping[str, Any]) -> JsonObject:
    try:
        if "plant" in request:
            _plant(bus, request["plant"])
        if "clear" in request:
            bus.faults.clear()
        if "place" in request:
            now = time.monotonic()
            for id, position in request["place"]:
                if id not in bus.servos:
                    raise UserError(f"no servo has the id {id}")
                bus.servos[id].advance(now)
                bus.servos[id].place(position)
    except UserError as error:
        return {"error": str(error)}
    return {"state": bus.state(time.monotonic()).content()}


def _plant(bus: Bus, content: Mapping[str, object]) -> None:
    try:
        bus.plant(faults.from_content(content))
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
        raise UserError(f"cannot write the packets to {path}: {os_error_reason(error)}") from None
    with out:
        bus.on_packet = lambda now, packet: _record(out, bus, now, packet)
        yield


def _record(out: TextIO, bus: Bus, now: float, packet: Packet) -> None:
    request = bus.wire.request(packet)
    name = request.kind if request else "unknown"
    line = {"time_s": now, "instruction": name, "id": packet.id, "parameters": packet.parameters.hex()}
    out.write(json.dumps(line) + "\n")


def _say(message: Mapping[str, object]) -> None:
    with contextlib.suppress(OSError):  # the parent has ended
        os.write(sys.stdout.fileno(), json.dumps(message).encode() + b"\n")


def _end(*_: object) -> None:
    raise _End


if __name__ == "__main__":
    sys.exit(main())
