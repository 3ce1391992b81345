"""Servos on one serial bus: requests in, answers out, each with the time at which the host gets it.

`Brand` says which protocol and models a maker has; `ArmState` is what a bus reports. Knows no terminal and reads no
clock. Assumed: servos that are missing do not delay the others in a sync read, and the host does not talk while a servo
answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from strobe.core.untrusted import JsonObject
from strobe.rehearse import faults as f
from strobe.rehearse.emulator.calibration import Calibration
from strobe_servos.dynamixel import X_SERIES, Dynamixel
from strobe_servos.feetech import STS3215, Feetech
from strobe_servos.servo import Model, Servo
from strobe_servos.wire import BusProtocol, BusRequest, Packet


@dataclass(frozen=True)
class Brand:
    """A maker: ``models`` by LeRobot's names, the largest homing ``offset``, the ``sdk`` of LeRobot's driver."""

    wire: BusProtocol
    models: Mapping[str, Model]
    offset: int
    sdk: str


BRANDS = {
    "feetech": Brand(Feetech(), {"sts3215": STS3215}, offset=2047, sdk="scservo_sdk"),  # the register's sign is bit 11
    "dynamixel": Brand(Dynamixel(), X_SERIES, offset=1_044_479, sdk="dynamixel_sdk"),
}


def find_brand(model: str) -> Brand:
    """Return the brand that makes ``model``. Raises ValueError for a servo that none makes."""
    for brand in BRANDS.values():
        if model in brand.models:
            return brand
    raise ValueError(f"no servo '{model}' can be emulated")


@dataclass(frozen=True)
class ServoState:
    """Registers of one servo. Positions are counts, less the homing offset."""

    torque: bool
    lock: bool
    goal: int
    present: int
    temperature: int  # °C


@dataclass(frozen=True)
class ArmState:
    """Servos by id at ``time_s`` of the monotonic clock, and counts since the start.

    ``packets`` counts requests by instruction, ``corrupt`` those with a wrong checksum, ``noise`` bytes in no packet,
    ``struck`` the requests that planted faults struck, by the fault's name.
    """

    time_s: float
    servos: dict[int, ServoState]
    packets: dict[str, int]
    corrupt: int = 0
    noise: int = 0
    struck: Mapping[str, int] | None = None

    @property
    def holding(self) -> list[int]:
        """Ids of the servos whose torque is on."""
        return [id for id, servo in sorted(self.servos.items()) if servo.torque]

    def content(self) -> JsonObject:
        """Return the state as plain data, for `from_content`."""
        return asdict(self)

    @staticmethod
    def from_content(content: Mapping[str, Any]) -> ArmState:
        """Return the state that `content` gave, also after JSON."""
        servos = {int(id): ServoState(**registers) for id, registers in content["servos"].items()}
        return ArmState(**{**content, "servos": servos})


USB_FRAME_S = 1e-3  # a full-speed adapter hands on together what came within one frame
_BITS = 10  # bits per byte on the wire: eight, start and stop
_RETURN_DELAY_S = 2e-6  # one step of the register


_Answer = tuple[int, Servo, int, bytes]  # id, servo, error, data: a new id counts from the next request on


class Delivery(NamedTuple):
    """Bytes for the host, and the second of the monotonic clock at which it gets them."""

    due_s: float
    data: bytes


class UnpluggedError(Exception):
    """The adapter left the host."""


def make_bus(calibration: Calibration, models: Mapping[str, str], *, latency_s: float = 0.0, now: float = 0.0) -> Bus:
    """Return a bus of servos whose registers agree with ``calibration``, each in the middle of its range.

    ``models`` are the servos' models by joint, all of one brand. Raises ValueError for one that cannot be emulated.
    """
    brand = find_brand(next(iter(models.values())))
    servos = [Servo(brand.models[models[name]], joint, now=now) for name, joint in calibration.items()]
    return Bus(brand.wire, servos, latency_s=latency_s)


class Bus:
    """Servos behind an adapter that adds ``latency_s`` to every answer.

    ``on_packet`` is called with the time and the packet of every good request, before it is obeyed.
    """

    def __init__(self, wire: BusProtocol, servos: Iterable[Servo], *, latency_s: float = 0.0) -> None:
        self.wire = wire
        self.servos = {servo.id: servo for servo in servos}
        self.latency_s = latency_s
        self.faults = f.Planted()
        self.on_packet: Callable[[float, Packet], None] = lambda now, packet: None
        self._parser = wire.parser()
        self._packets: Counter[str] = Counter()
        self._last_due = 0.0

    def receive(self, data: bytes, now: float) -> list[Delivery]:
        """Return answers to the requests that ``data`` completes. Raises UnpluggedError if a fault says so."""
        return [each for packet in self._parser.feed(data) for each in self._obey(packet, now)]

    def plant(self, fault: f.Fault) -> None:
        """Let ``fault`` strike from now on. Raises ValueError if no servo here has its id."""
        if fault.servo is not None and fault.servo not in self.servos:
            raise ValueError(f"no servo has the id {fault.servo}; there are {', '.join(map(str, self.servos))}")
        self.faults.plant(fault)

    @property
    def has_partial_packet(self) -> bool:
        """Whether the bytes so far end inside a packet."""
        return self._parser.waiting > 0

    def quiet(self, now: float) -> list[Delivery]:
        """Return answers after the line was quiet for a while: an unfinished packet is dropped."""
        return [each for packet in self._parser.quiet() for each in self._obey(packet, now)]

    def state(self, now: float) -> ArmState:
        """Return servos and counts at ``now``."""
        for servo in self.servos.values():
            servo.advance(now)
        return ArmState(
            now,
            {
                id: ServoState(
                    torque=bool(servo.get(servo.model.torque)),
                    lock=servo.model.is_eeprom_protected(servo),
                    goal=servo.get(servo.model.goal),
                    present=servo.get(servo.model.present),
                    temperature=servo.get(servo.model.temperature),
                )
                for id, servo in self.servos.items()
            },
            dict(self._packets),
            self._parser.corrupt,
            self._parser.noise,
            dict(self.faults.struck),
        )

    def _obey(self, packet: Packet, now: float) -> list[Delivery]:
        request = self.wire.request(packet)
        if request is None:
            self._packets["unknown"] += 1
            return []
        self._packets[request.kind] += 1
        self.on_packet(now, packet)
        ids = self.servos if request.ids is None else request.ids
        addressed = [id for id in ids if id in self.servos]
        met = self.faults.strike(request.kind, addressed)
        if any(isinstance(fault, f.Unplugged) for fault in met):
            raise UnpluggedError
        dead = {id for id in addressed for fault in met if isinstance(fault, f.Dead) and fault.touches(id)}
        alive = [id for id in addressed if id not in dead]
        for id in alive:
            if any(isinstance(fault, f.Restart) and fault.touches(id) for fault in met):
                self.servos[id].restart()
            self.servos[id].advance(now)
        answers = self._answers(request, alive)
        return self._send(answers, met, now + self._wire_s(len(self.wire.build(packet))))

    def _answers(self, request: BusRequest, called: list[int]) -> list[_Answer]:
        servos = [(id, self.servos[id]) for id in called]
        if request.kind == "ping":
            return [(id, servo, 0, servo.model.identity(servo)) for id, servo in servos]
        if request.kind in ("read", "sync_read"):
            if request.size is None:  # such an answer fits no packet: silence
                return []
            return [(id, servo, 0, servo.read(request.address, request.size)) for id, servo in servos]
        if request.kind == "sync_write":
            for id, data in zip(request.ids or (), request.data, strict=True):
                if id in called:
                    self._write(self.servos[id], request.address, data)
            return []
        answering = [id for id, servo in servos if request.ids is not None and servo.model.answers_writes(servo)]
        errors = {id: self._write(servo, request.address, request.data[0]) for id, servo in servos}
        return [(id, servo, errors[id], b"") for id, servo in servos if id in answering]

    def _write(self, servo: Servo, address: int, data: bytes) -> int:
        before = servo.id
        error = servo.write(address, data)
        if servo.id != before:
            del self.servos[before]
            self.servos[servo.id] = servo
        return error

    def _send(self, answers: list[_Answer], met: list[f.Fault], sent: float) -> list[Delivery]:
        late = sum(fault.seconds for fault in met if isinstance(fault, f.Late))
        free, out, frame = sent, list[Delivery](), 0.0
        for id, servo, error, data in answers:
            mine = [fault for fault in met if fault.touches(id)]
            error |= servo.error
            for fault in mine:
                error |= (fault.bits or self.wire.overload) if isinstance(fault, f.ErrorBits) else 0
            answer = self.wire.status(id, error, data)
            if any(isinstance(fault, f.Corrupt) for fault in mine):
                answer = answer[:-1] + bytes([answer[-1] ^ 0x55])
            if any(isinstance(fault, f.Short) for fault in mine):
                answer = answer[:-1]
            free += servo.get(servo.model.return_delay) * _RETURN_DELAY_S + self._wire_s(len(answer))
            free += sum(fault.seconds for fault in mine if isinstance(fault, f.Slow))
            if any(isinstance(fault, f.Lost) for fault in mine):
                continue
            due = max(free + self.latency_s + late, self._last_due)
            if out and due - frame < USB_FRAME_S:
                out[-1] = Delivery(due, out[-1].data + answer)
            else:
                out.append(Delivery(due, answer))
                frame = due
            self._last_due = due
        return out

    def _wire_s(self, size: int) -> float:
        first = next(iter(self.servos.values()), None)
        return size * _BITS / first.baud if first else 0.0
