"""A bus's protocol, as the bus sees it: packets out of bytes, requests out of packets, answers into bytes."""

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
    """A packet whose checksum was right. ``code`` is a host's instruction, or what a servo has in its place."""

    id: int
    code: int
    parameters: bytes = b""


def check(packet: Packet, most: int) -> None:
    """Raise ValueError for an id above 254 and for more than ``most`` bytes of parameters."""
    if packet.id > BROADCAST:
        raise ValueError(f"no servo has the id {packet.id}")
    if len(packet.parameters) > most:
        raise ValueError(f"no packet has {len(packet.parameters)} bytes of parameters")


class Request(NamedTuple):
    """A host's question or order, the same for all protocols.

    ``kind`` is one of KINDS. ``ids`` are the servos that are meant, None for all that hear it. ``size`` is None where
    no answer can hold as many bytes, or the packet ends too soon. ``data`` is what is written: to each of ``ids`` its
    own, or the one to all.
    """

    kind: str
    ids: tuple[int, ...] | None
    address: int = 0
    size: int | None = None
    data: tuple[bytes, ...] = ()


class Parser(ABC):
    """Packets out of a stream of bytes, however it is cut, and whatever lies between them.

    ``noise`` counts the bytes that belonged to no packet, ``corrupt`` the packets whose checksum was wrong.
    """

    def __init__(self) -> None:
        self.noise = 0
        self.corrupt = 0
        self._kept = bytearray()

    @property
    def waiting(self) -> int:
        """Bytes kept, because they may be the start of a packet."""
        return len(self._kept)

    def feed(self, data: bytes) -> list[Packet]:
        """Packets that ``data`` completes, in the order in which they came."""
        self._kept += data
        found = []
        while packet := self._next():
            found.append(packet)
        return found

    def quiet(self) -> list[Packet]:
        """Packets in what is kept, once the line has been quiet: an unfinished packet ends there, like a servo's.

        Noise that looks like a header would else swallow the packets that follow it.
        """
        found = []
        while self._kept:
            self._drop(1)
            found += self.feed(b"")
        return found

    @abstractmethod
    def _next(self) -> Packet | None:
        """Take the next packet from what is kept, and drop what lies before it; None if it is not whole yet."""

    def _drop(self, count: int) -> None:
        self.noise += count
        del self._kept[:count]


class Wire(ABC):
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
        """A parser of a stream of its own."""

    @abstractmethod
    def build(self, packet: Packet) -> bytes:
        """Bytes of ``packet`` on the wire. Raise ValueError for what no packet can say."""

    def request(self, packet: Packet) -> Request | None:
        """The request that ``packet`` is; None for an instruction that the servos do not know."""
        try:
            kind = Instruction(packet.code)
        except ValueError:
            return None
        told, name, first, second = packet.parameters, kind.name.lower(), self.number, 2 * self.number
        ids = None if packet.id == BROADCAST else (packet.id,)
        address = int.from_bytes(told[:first], "little")
        asked = int.from_bytes(told[first:second], "little")
        size = asked if len(told) >= second and asked <= self.longest else None
        match kind:
            case Instruction.PING:
                return Request(name, ids)
            case Instruction.READ:
                return Request(name, ids, address, size)
            case Instruction.WRITE:
                return Request(name, ids, address, data=(told[first:],))
            case Instruction.SYNC_READ:
                return Request(name, tuple(told[second:]), address, size)
            case Instruction.SYNC_WRITE:
                step = asked + 1
                each = [told[at : at + step] for at in range(second, len(told) - asked, step)]
                return Request(name, tuple(one[0] for one in each), address, data=tuple(one[1:] for one in each))

    @abstractmethod
    def status(self, id: int, error: int, data: bytes) -> bytes:
        """Bytes of a servo's answer."""
