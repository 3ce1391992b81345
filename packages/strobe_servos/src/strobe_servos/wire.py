"""The protocol of a bus: bytes to packets, packets to requests, answers to bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import IntEnum
from typing import NamedTuple

BROADCAST = 0xFE


class Instruction(IntEnum):
    """A host's instructions, which have the same numbers in both protocols."""

    PING = 0x01
    READ = 0x02
    WRITE = 0x03
    SYNC_READ = 0x82
    SYNC_WRITE = 0x83


KINDS = tuple(each.name.lower() for each in Instruction)


class Packet(NamedTuple):
    """A packet whose checksum was right. ``code`` is a host's instruction, or a servo's byte in its place."""

    id: int
    code: int
    parameters: bytes = b""


def check(packet: Packet, most: int) -> None:
    """Raise ValueError for an id above 254 or more than ``most`` bytes of parameters."""
    if packet.id > BROADCAST:
        raise ValueError(f"no servo has the id {packet.id}")
    if len(packet.parameters) > most:
        raise ValueError(f"no packet has {len(packet.parameters)} bytes of parameters")


class BusRequest(NamedTuple):
    """A host's request, the same for all protocols.

    Args:
        kind: one of KINDS.
        ids: the addressed servos; None for all.
        size: bytes to read; None if no answer can hold as many, or the packet ends too soon.
        data: bytes to write: one entry for each of ``ids``, or one for all.
    """

    kind: str
    ids: tuple[int, ...] | None
    address: int = 0
    size: int | None = None
    data: tuple[bytes, ...] = ()


class Parser(ABC):
    """Finds packets in a stream of bytes, however it is cut, and whatever lies between them.

    ``noise`` counts the bytes that belonged to no packet, ``corrupt`` the packets whose checksum was wrong.
    """

    def __init__(self) -> None:
        self.noise = 0
        self.corrupt = 0
        self._buffer = bytearray()

    @property
    def waiting(self) -> int:
        """Bytes in the buffer, which may be the start of a packet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[Packet]:
        """Return the packets that ``data`` completes, in their order."""
        self._buffer += data
        packets = []
        while packet := self._next():
            packets.append(packet)
        return packets

    def quiet(self) -> list[Packet]:
        """Return the packets in the buffer after the line was quiet: an unfinished packet ends there, as in a servo.

        Otherwise noise that looks like a header would swallow the packets that follow it.
        """
        packets = []
        while self._buffer:
            self._drop(1)
            packets += self.feed(b"")
        return packets

    @abstractmethod
    def _next(self) -> Packet | None:
        """Take the next packet from the buffer, and drop the bytes before it; None if it is not complete yet."""

    def _drop(self, count: int) -> None:
        self.noise += count
        del self._buffer[:count]


class BusProtocol(ABC):
    """A protocol.

    Attributes:
        overload: the error byte of a servo that protects itself.
        number: bytes of an address and of a size, the low one first.
        longest: bytes of a register that an answer can hold.
    """

    overload: int
    number: int
    longest: int

    @abstractmethod
    def parser(self) -> Parser:
        """Return a parser for one stream."""

    @abstractmethod
    def build(self, packet: Packet) -> bytes:
        """Return ``packet`` as bytes. Raises ValueError for an id or a length that no packet can have."""

    def request(self, packet: Packet) -> BusRequest | None:
        """Return the request of ``packet``; None for an instruction that the servos do not know."""
        try:
            kind = Instruction(packet.code)
        except ValueError:
            return None
        parameters, name, first, second = packet.parameters, kind.name.lower(), self.number, 2 * self.number
        ids = None if packet.id == BROADCAST else (packet.id,)
        address = int.from_bytes(parameters[:first], "little")
        count = int.from_bytes(parameters[first:second], "little")
        size = count if len(parameters) >= second and count <= self.longest else None
        match kind:
            case Instruction.PING:
                return BusRequest(name, ids)
            case Instruction.READ:
                return BusRequest(name, ids, address, size)
            case Instruction.WRITE:
                return BusRequest(name, ids, address, data=(parameters[first:],))
            case Instruction.SYNC_READ:
                return BusRequest(name, tuple(parameters[second:]), address, size)
            case Instruction.SYNC_WRITE:
                step = count + 1
                entries = [parameters[at : at + step] for at in range(second, len(parameters) - count, step)]
                data = tuple(entry[1:] for entry in entries)
                return BusRequest(name, tuple(entry[0] for entry in entries), address, data=data)

    @abstractmethod
    def status(self, id: int, error: int, data: bytes) -> bytes:
        """Return a servo's answer as bytes."""
