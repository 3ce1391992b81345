"""Servos on one serial bus: requests in, answers out, each with the time at which the host gets it.

Knows no terminal and reads no clock. Assumed: servos that are missing do not delay the others in a sync read, and the
host does not talk while a servo answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from strobe.subjects.robot import faults as f
from strobe.subjects.robot import registers as r
from strobe.subjects.robot.calibration import Calibration
from strobe.subjects.robot.packets import BROADCAST, LONGEST, Instruction, Packet, Parser, build
from strobe.subjects.robot.servo import Servo
from strobe.subjects.robot.state import ArmState, ServoState

USB_FRAME_S = 1e-3  # a full-speed adapter hands on together what came within one frame
_BITS = 10  # of a byte on the wire: eight, start and stop
_RETURN_DELAY_S = 2e-6  # one step of the register


class Delivery(NamedTuple):
    due_s: float
    data: bytes


class PortGone(Exception):
    """The adapter left the host."""


def servos_of(calibration: Calibration, now: float = 0.0) -> list[Servo]:
    """Servos whose registers agree with ``calibration``, each in the middle of its range."""
    return [
        Servo(joint.id, low=joint.range_min, high=joint.range_max, offset=joint.homing_offset, now=now)
        for joint in calibration.values()
    ]


class Bus:
    """Servos behind an adapter that adds ``latency_s`` to every answer.

    ``on_packet`` is called with the time and the packet of every good request, before it is obeyed.
    """

    def __init__(self, servos: Iterable[Servo], *, latency_s: float = 0.0) -> None:
        self.servos = {servo.id: servo for servo in servos}
        self.latency_s = latency_s
        self.faults = f.Planted()
        self.on_packet: Callable[[float, Packet], None] = lambda now, packet: None
        self._parser = Parser()
        self._packets: Counter[str] = Counter()
        self._last_due = 0.0

    def receive(self, data: bytes, now: float) -> list[Delivery]:
        """Answers to the requests that ``data`` completes. Raise PortGone where a fault unplugs the adapter."""
        return [each for packet in self._parser.feed(data) for each in self._obey(packet, now)]

    def plant(self, fault: f.Fault) -> None:
        """Let ``fault`` strike from now on. Raise ValueError if no servo here has its id."""
        if fault.servo is not None and fault.servo not in self.servos:
            raise ValueError(f"no servo has the id {fault.servo}; there are {', '.join(map(str, self.servos))}")
        self.faults.plant(fault)

    @property
    def unfinished(self) -> bool:
        """Whether the bytes so far end inside a packet."""
        return self._parser.waiting > 0

    def quiet(self, now: float) -> list[Delivery]:
        """Answers once the line has been quiet for a while: an unfinished packet is given up."""
        return [each for packet in self._parser.quiet() for each in self._obey(packet, now)]

    def state(self, now: float) -> ArmState:
        """How servos and counts stand at ``now``."""
        for servo in self.servos.values():
            servo.advance(now)
        return ArmState(
            now,
            {
                id: ServoState(
                    torque=bool(servo.get(r.TORQUE_ENABLE)),
                    lock=bool(servo.get(r.LOCK)),
                    goal=servo.get(r.GOAL_POSITION),
                    present=servo.get(r.PRESENT_POSITION),
                    temperature=servo.get(r.PRESENT_TEMPERATURE),
                )
                for id, servo in self.servos.items()
            },
            dict(self._packets),
            self._parser.corrupt,
            self._parser.noise,
            dict(self.faults.struck),
        )

    def _obey(self, packet: Packet, now: float) -> list[Delivery]:
        try:
            instruction = Instruction(packet.code)
        except ValueError:
            self._packets["unknown"] += 1
            return []
        self._packets[name := instruction.name.lower()] += 1
        self.on_packet(now, packet)
        called = self._called(instruction, packet)
        met = self.faults.strike(name, called)
        if any(isinstance(fault, f.Unplugged) for fault in met):
            raise PortGone
        dead = {id for id in called for fault in met if isinstance(fault, f.Dead) and fault.touches(id)}
        alive = [id for id in called if id not in dead]
        for id in alive:
            if any(isinstance(fault, f.Restart) and fault.touches(id) for fault in met):
                self.servos[id].restart()
            self.servos[id].advance(now)
        answers = self._answers(instruction, packet, alive)
        return self._send(answers, met, now + self._wire_s(len(build(packet))))

    def _called(self, instruction: Instruction, packet: Packet) -> list[int]:
        told = packet.parameters
        if instruction is Instruction.SYNC_READ:
            return [id for id in told[2:] if id in self.servos]
        if instruction is Instruction.SYNC_WRITE:
            return [id for id in told[2 :: told[1] + 1] if id in self.servos] if len(told) > 1 else []
        if packet.id == BROADCAST:
            return list(self.servos)
        return [packet.id] if packet.id in self.servos else []

    def _answers(self, instruction: Instruction, packet: Packet, called: list[int]) -> list[tuple[Servo, bytes]]:
        told = packet.parameters
        servos = [self.servos[id] for id in called]
        if instruction is Instruction.PING:
            return [(servo, b"") for servo in servos]
        if instruction in (Instruction.READ, Instruction.SYNC_READ):
            if len(told) < 2 or told[1] > LONGEST:  # such an answer fits no packet: silence
                return []
            return [(servo, servo.read(told[0], told[1])) for servo in servos]
        if instruction is Instruction.SYNC_WRITE:
            step = told[1] + 1 if len(told) > 1 else 1
            for at in range(2, len(told) - step + 1, step):
                if told[at] in called:
                    self._write(self.servos[told[at]], told[0], told[at + 1 : at + step])
            return []
        answering = [servo for servo in servos if packet.id != BROADCAST and servo.get(r.STATUS_LEVEL)]
        for servo in servos:
            self._write(servo, told[0], told[1:]) if told else None
        return [(servo, b"") for servo in answering]

    def _write(self, servo: Servo, address: int, data: bytes) -> None:
        before = servo.id
        servo.write(address, data)
        if servo.id != before:
            del self.servos[before]
            self.servos[servo.id] = servo

    def _send(self, answers: list[tuple[Servo, bytes]], met: list[f.Fault], sent: float) -> list[Delivery]:
        """Answers in turn on the wire from ``sent`` on, then through the adapter, which keeps their order."""
        late = sum(fault.seconds for fault in met if isinstance(fault, f.Late))
        free, out, frame = sent, list[Delivery](), 0.0
        for servo, data in answers:
            mine = [fault for fault in met if fault.touches(servo.id)]
            error = servo.error
            for fault in mine:
                error |= fault.bits if isinstance(fault, f.ErrorBits) else 0
            answer = build(Packet(servo.id, error, data))
            if any(isinstance(fault, f.Corrupt) for fault in mine):
                answer = answer[:-1] + bytes([answer[-1] ^ 0x55])
            if any(isinstance(fault, f.Short) for fault in mine):
                answer = answer[:-1]
            free += servo.get(r.RETURN_DELAY) * _RETURN_DELAY_S + self._wire_s(len(answer))
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
        rate = r.BAUD_RATES[min(first.get(r.BAUD_RATE), len(r.BAUD_RATES) - 1)] if first else r.BAUD_RATES[0]
        return size * _BITS / rate
