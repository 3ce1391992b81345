"""LeRobot's own tests of its servo buses, the SO arms and the control scripts, on emulated servos instead of mocks.

  git -C LEROBOT archive v0.6.1 tests | tar -x -C FOLDER
  python scripts/lerobot_motor_tests.py FOLDER

The tests' serial mock becomes three servos on a pseudo-terminal, which count what they hear. The mock robot and the
mock leader become an SO-101 follower and leader on arms of their own, and the mock bus of the SO-100's tests becomes
the driver's own bus, watched. Two tests are left out: one wants whole degrees, which no count of a servo gives, the
other writes a model number and wants the servo to take it.

Strobe's extra 'robot' must be installed. Linux only.
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import os
import sys
import tempfile
import threading
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

import dynamixel_sdk
import pytest
import scservo_sdk
from lerobot.robots.so_follower import SO100Follower, SO100FollowerConfig, SO101FollowerConfig
from lerobot.teleoperators.so_leader import SO101LeaderConfig

from strobe.rehearse import faults
from strobe.rehearse.emulator import calibration
from strobe.rehearse.emulator.arm import EmulatedArm
from strobe.rehearse.emulator.bus import Bus
from strobe.rehearse.emulator.calibration import Joint
from strobe.rehearse.emulator.served import Terminal, serve
from strobe_servos.dynamixel import X_SERIES, Dynamixel
from strobe_servos.feetech import STS3215, Feetech
from strobe_servos.servo import Model, Register, Servo
from strobe_servos.wire import BROADCAST, BusProtocol, Instruction, Packet

TESTS = (
    "tests/motors/test_feetech.py",
    "tests/motors/test_dynamixel.py",
    "tests/robots/test_so100_follower.py",
    "tests/test_control_robot.py",
)
LEFT_OUT = {
    "tests/robots/test_so100_follower.py::test_get_observation",
    "tests/motors/test_dynamixel.py::test__write[0-1-1-2]",
}

heard: Counter[str] = Counter()
holding: list[list[int]] = []


class Stub:
    """A stub as the tests know it: it counts how often its packet came."""

    def __init__(self, prepare: Callable[[int], None]) -> None:
        self.calls = 0
        self._prepare = prepare
        self._changed = threading.Condition()

    @property
    def is_called(self) -> bool:
        return self.calls > 0

    def hit(self) -> None:
        with self._changed:
            self.calls += 1
            self._prepare(self.calls)
            self._changed.notify_all()

    def wait_called(self, timeout: float = 1.0) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.is_called, timeout)

    def wait_calls(self, min_calls: int = 1, timeout: float = 1.0) -> int:
        with self._changed:
            if not self._changed.wait_for(lambda: self.calls >= min_calls, timeout):
                raise TimeoutError(f"{self.calls} calls of {min_calls}")
        return self.calls


class EmulatedMotors:
    """The interface of LeRobot's `MockMotors` of both brands, kept by three servos.

    Args:
        wire: the protocol.
        models: of the three servos.
        width: bytes of an address, and of a size, in a packet.
    """

    def __init__(self, wire: BusProtocol, models: Sequence[Model], width: int) -> None:
        self.stubs: dict[str, Stub] = {}
        self._wanted: dict[Packet, Stub] = {}
        self._width = width
        self._bus = Bus(wire, [Servo(model, Joint(id)) for id, model in enumerate(models, start=1)])
        self._bus.on_packet = self._note_arrival
        self._terminal = Terminal()
        self._told, self._end = os.pipe()
        self._thread = threading.Thread(target=serve, args=(self._bus, self._terminal, self._told), daemon=True)
        self.port = self._terminal.port

    def open(self) -> None:
        self._thread.start()

    def close(self) -> None:
        os.close(self._end)
        self._thread.join()
        os.close(self._told)
        self._terminal.close()
        heard.update(self._bus.state(time.monotonic()).packets)

    def build_broadcast_ping_stub(self, ids: Any = None, num_invalid_try: int = 0) -> str:
        return self._want(Packet(BROADCAST, Instruction.PING), lambda call: self._lose(call <= num_invalid_try))

    def build_ping_stub(self, id: int, model_nb: int = 0, num_invalid_try: int = 0, error: int = 0) -> str:
        def prepare(call: int) -> None:
            self._bus.servos[id].error = error
            self._lose(call <= num_invalid_try)

        return self._want(Packet(id, Instruction.PING), prepare)

    def build_read_stub(
        self,
        address: int,
        length: int,
        id: int,
        value: int,
        reply: bool = True,
        error: int = 0,
        num_invalid_try: int = 0,
    ) -> str:
        def prepare(call: int) -> None:
            self._set(id, address, length, value)
            self._bus.servos[id].error = error
            self._lose(not reply or call <= num_invalid_try)

        return self._want(Packet(id, Instruction.READ, self._place(address, length)), prepare)

    def build_write_stub(
        self,
        address: int,
        length: int,
        id: int,
        value: int,
        reply: bool = True,
        error: int = 0,
        num_invalid_try: int = 0,
    ) -> str:
        def prepare(call: int) -> None:
            self._bus.servos[id].error = error
            self._lose(not reply or call <= num_invalid_try)

        return self._want(
            Packet(id, Instruction.WRITE, self._place(address) + value.to_bytes(length, "little")), prepare
        )

    def build_sync_read_stub(
        self, address: int, length: int, ids_values: Mapping[int, int], reply: bool = True, num_invalid_try: int = 0
    ) -> str:
        def prepare(call: int) -> None:
            for id, value in ids_values.items():
                self._set(id, address, length, value)
            self._lose(not reply or call <= num_invalid_try)

        told = self._place(address, length) + bytes(ids_values)
        return self._want(Packet(BROADCAST, Instruction.SYNC_READ, told), prepare)

    def build_sequential_sync_read_stub(self, address: int, length: int, ids_values: Mapping[int, list[int]]) -> str:
        def prepare(call: int) -> None:
            for id, values in ids_values.items():
                self._set(id, address, length, values[call - 1])

        told = self._place(address, length) + bytes(ids_values)
        return self._want(Packet(BROADCAST, Instruction.SYNC_READ, told), prepare)

    def build_sync_write_stub(
        self, address: int, length: int, ids_values: Mapping[int, int], num_invalid_try: int = 0
    ) -> str:
        told = b"".join(bytes([id]) + value.to_bytes(length, "little") for id, value in ids_values.items())
        return self._want(Packet(BROADCAST, Instruction.SYNC_WRITE, self._place(address, length) + told))

    def _place(self, *numbers: int) -> bytes:
        return b"".join(number.to_bytes(self._width, "little") for number in numbers)

    def _want(self, packet: Packet, prepare: Callable[[int], None] = lambda call: None) -> str:
        name = f"{Instruction(packet.code).name} {packet.id} {packet.parameters.hex()} {len(self.stubs)}"
        self.stubs[name] = self._wanted[packet] = Stub(prepare)
        return name

    def _note_arrival(self, now: float, packet: Packet) -> None:
        self._bus.faults.clear()
        for servo in self._bus.servos.values():
            servo.error = 0
        if stub := self._wanted.get(packet):
            stub.hit()

    def _set(self, id: int, address: int, length: int, value: int) -> None:
        servo = self._bus.servos[id]
        if address == servo.model.present.address:
            servo.place(servo.model.present.decode(value.to_bytes(length, "little")))
        else:
            servo.set(Register(address, length), value)

    def _lose(self, when: bool) -> None:
        if when:
            self._bus.plant(faults.Lost(instruction=None))


def feetech() -> EmulatedMotors:
    """Three STS3215."""
    return EmulatedMotors(Feetech(), [STS3215] * 3, width=1)


def dynamixel() -> EmulatedMotors:
    """The three models that LeRobot's tests name."""
    return EmulatedMotors(Dynamixel(), [X_SERIES[name] for name in ("xl430-w250", "xm540-w270", "xl330-m077")], width=2)


class Emulated:
    """A plug-in of pytest: emulated servos take the place of each mock, before a module's tests are found."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        if not isinstance(collector, pytest.Module):
            return
        module = collector.obj
        if module.__name__.endswith("test_control_robot"):
            module.MockRobotConfig = lambda **told: SO101FollowerConfig(**self._arm("follower"))
            module.MockTeleopConfig = lambda **told: SO101LeaderConfig(**self._arm("leader"))
        elif module.__name__.endswith("test_so100_follower"):
            module.follower = _follower

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid not in LEFT_OUT]

    @pytest.fixture(autouse=True)
    def answers(self) -> Iterator[None]:
        with self._stack, patch.object(builtins, "input", lambda prompt="": ""):  # ENTER: use the calibration file
            yield

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.write_line(f"packets that emulated servos heard: {dict(heard)}")
        terminalreporter.write_line(f"joints that arms were left holding with: {holding}")

    def _arm(self, id: str) -> dict[str, Any]:
        return self._stack.enter_context(_arm(id))


@contextlib.contextmanager
def _arm(id: str) -> Iterator[dict[str, Any]]:
    """An emulated arm, as arguments for the config of its driver."""
    with tempfile.TemporaryDirectory() as folder, EmulatedArm() as arm:
        calibration.write(arm.calibration, Path(folder) / f"{id}.json")
        yield {"port": arm.port, "id": id, "calibration_dir": Path(folder)}
    assert arm.ended is not None
    heard.update(arm.ended.packets)
    holding.append(arm.ended.holding)


@pytest.fixture
def _follower() -> Iterator[SO100Follower]:
    """The SO-100's own driver on an emulated arm; calls of its bus can be looked at."""
    with _arm("follower") as told:
        robot = SO100Follower(SO100FollowerConfig(**told))
        for name in ("sync_read", "sync_write", "write"):
            setattr(robot.bus, name, MagicMock(wraps=getattr(robot.bus, name)))
        yield robot
        if robot.is_connected:
            robot.disconnect()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="that LeRobot's tests/ is in")
    arguments, more = parser.parse_known_args()
    if not (arguments.folder / TESTS[0]).is_file():
        parser.error(f"no {TESTS[0]} in {arguments.folder}")
    os.chdir(arguments.folder)
    sys.path.insert(0, ".")  # they import each other as tests.utils
    for brand, motors, sdk in (("feetech", feetech, scservo_sdk), ("dynamixel", dynamixel, dynamixel_sdk)):
        mocks: Any = types.ModuleType(f"tests.mocks.mock_{brand}")
        mocks.MockMotors, mocks.MockPortHandler = motors, sdk.PortHandler
        sys.modules[mocks.__name__] = mocks
    told = ["-q", "-p", "no:cacheprovider", "-n", "0", *TESTS, *more]
    return pytest.main(told, plugins=[Emulated()])


if __name__ == "__main__":
    sys.exit(main())
