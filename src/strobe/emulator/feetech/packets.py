"""Packets of Feetech's protocol 0, which STS3215 servos speak: building them, and finding them in a stream of bytes.

    FF FF | id | length | code | parameters | checksum

The length counts what follows it. The checksum is the inverted low byte of the sum from the id on. The code is the
instruction in a host's packet and the error byte in a servo's. Source: LeRobot's ``tests/mocks/mock_feetech.py`` and
feetech-servo-sdk 1.0.0.
"""

from __future__ import annotations

from strobe.emulator import wire
from strobe.emulator.wire import BROADCAST, Packet

HEADER = b"\xff\xff"
_AROUND = 6  # bytes of a packet without parameters
LONGEST = 253  # bytes of parameters: the length, which counts two more, is one byte


def checksum(body: bytes | bytearray) -> int:
    """Return the checksum of the bytes between header and checksum."""
    return ~sum(body) & 0xFF


def build(packet: Packet) -> bytes:
    """Return ``packet`` as bytes. Raises ValueError for an id above 254 or more than 253 bytes of parameters."""
    wire.check(packet, LONGEST)
    body = bytes([packet.id, len(packet.parameters) + 2, packet.code]) + packet.parameters
    return HEADER + body + bytes([checksum(body)])


class Parser(wire.Parser):
    """Finds packets of protocol 0."""

    def _next(self) -> Packet | None:
        buffer = self._buffer
        while True:
            start = buffer.find(HEADER)
            if start < 0:
                self._drop(len(buffer) - (buffer[-1:] == HEADER[:1]))
                return None
            self._drop(start)
            if len(buffer) > 2 and buffer[2] > BROADCAST:  # FF FF FF: the header begins one byte later
                self._drop(1)
                continue
            if len(buffer) < 4:
                return None
            size = buffer[3] + 4
            if size < _AROUND:
                self._drop(1)
                continue
            if len(buffer) < size:
                return None
            if checksum(buffer[2 : size - 1]) != buffer[size - 1]:
                self.corrupt += 1
                self._drop(1)  # a good packet may begin inside
                continue
            packet = Packet(buffer[2], buffer[4], bytes(buffer[5 : size - 1]))
            del buffer[:size]
            return packet


class Feetech(wire.Wire):
    """Protocol 0 on a bus."""

    overload = 32  # a bit of the error byte
    number = 1
    longest = LONGEST

    def parser(self) -> Parser:
        return Parser()

    def build(self, packet: Packet) -> bytes:
        return build(packet)

    def status(self, id: int, error: int, data: bytes) -> bytes:
        return build(Packet(id, error, data))
