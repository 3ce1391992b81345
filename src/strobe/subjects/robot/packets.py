"""Packets of Feetech's protocol 0, which STS3215 servos speak: built, and found in whatever bytes come.

    FF FF | id | length | code | parameters | checksum

The length counts what follows it. The checksum is the inverted low byte of the sum from the id on. The code is the
instruction in a host's packet and the error byte in a servo's. Source: LeRobot's ``tests/mocks/mock_feetech.py`` and
feetech-servo-sdk 1.0.0.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

HEADER = b"\xff\xff"
BROADCAST = 0xFE
_AROUND = 6  # bytes of a packet without parameters
LONGEST = 253  # bytes of parameters: the length, which counts two more, is one byte


class Instruction(IntEnum):
    PING = 0x01
    READ = 0x02
    WRITE = 0x03
    SYNC_READ = 0x82
    SYNC_WRITE = 0x83


class Packet(NamedTuple):
    id: int
    code: int
    parameters: bytes = b""


def checksum(body: bytes | bytearray) -> int:
    """Checksum of what lies between header and checksum."""
    return ~sum(body) & 0xFF


def build(packet: Packet) -> bytes:
    """Bytes of ``packet`` on the wire. Raise ValueError for an id above 254 or more than 253 bytes of parameters."""
    if packet.id > BROADCAST:
        raise ValueError(f"no servo has the id {packet.id}")
    if len(packet.parameters) > LONGEST:
        raise ValueError(f"no packet has {len(packet.parameters)} bytes of parameters")
    body = bytes([packet.id, len(packet.parameters) + 2, packet.code]) + packet.parameters
    return HEADER + body + bytes([checksum(body)])


class Parser:
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

    def _next(self) -> Packet | None:
        kept = self._kept
        while True:
            start = kept.find(HEADER)
            if start < 0:
                self._drop(len(kept) - (kept[-1:] == HEADER[:1]))
                return None
            self._drop(start)
            if len(kept) > 2 and kept[2] > BROADCAST:  # FF FF FF: the header begins one byte later
                self._drop(1)
                continue
            if len(kept) < 4:
                return None
            size = kept[3] + 4
            if size < _AROUND:
                self._drop(1)
                continue
            if len(kept) < size:
                return None
            if checksum(kept[2 : size - 1]) != kept[size - 1]:
                self.corrupt += 1
                self._drop(1)  # a good packet may begin inside
                continue
            packet = Packet(kept[2], kept[4], bytes(kept[5 : size - 1]))
            del kept[:size]
            return packet

    def _drop(self, count: int) -> None:
        self.noise += count
        del self._kept[:count]
