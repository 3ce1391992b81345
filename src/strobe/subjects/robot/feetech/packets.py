"""Packets of Feetech's protocol 0, which STS3215 servos speak: built, and found in whatever bytes come.

    FF FF | id | length | code | parameters | checksum

The length counts what follows it. The checksum is the inverted low byte of the sum from the id on. The code is the
instruction in a host's packet and the error byte in a servo's. Source: LeRobot's ``tests/mocks/mock_feetech.py`` and
feetech-servo-sdk 1.0.0.
"""

from __future__ import annotations

from enum import IntEnum

from strobe.subjects.robot import wire
from strobe.subjects.robot.wire import BROADCAST, Packet, Request

HEADER = b"\xff\xff"
_AROUND = 6  # bytes of a packet without parameters
LONGEST = 253  # bytes of parameters: the length, which counts two more, is one byte


class Instruction(IntEnum):
    PING = 0x01
    READ = 0x02
    WRITE = 0x03
    SYNC_READ = 0x82
    SYNC_WRITE = 0x83


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


class Parser(wire.Parser):
    """Packets of protocol 0."""

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


class Feetech(wire.Wire):
    """Protocol 0 on a bus."""

    overload = 32  # a bit of the error byte

    def parser(self) -> Parser:
        return Parser()

    def build(self, packet: Packet) -> bytes:
        return build(packet)

    def request(self, packet: Packet) -> Request | None:
        try:
            kind = Instruction(packet.code)
        except ValueError:
            return None
        told, name = packet.parameters, kind.name.lower()
        ids = None if packet.id == BROADCAST else (packet.id,)
        address = told[0] if told else 0
        size = told[1] if len(told) > 1 and told[1] <= LONGEST else None
        if kind is Instruction.PING:
            return Request(name, ids)
        if kind is Instruction.READ:
            return Request(name, ids, address, size)
        if kind is Instruction.WRITE:
            return Request(name, ids, address, data=(told[1:],))
        if kind is Instruction.SYNC_READ:
            return Request(name, tuple(told[2:]), address, size)
        step = told[1] + 1 if len(told) > 1 else 1
        each = [told[at : at + step] for at in range(2, len(told) - step + 1, step)]
        return Request(name, tuple(one[0] for one in each), address, data=tuple(one[1:] for one in each))

    def status(self, id: int, error: int, data: bytes) -> bytes:
        return build(Packet(id, error, data))
