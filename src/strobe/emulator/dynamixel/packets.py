"""Packets of Dynamixel's protocol 2: building them, and finding them in a stream of bytes.

    FF FF FD 00 | id | length (2) | instruction | parameters | CRC (2)

Numbers have their low byte first. The length counts what follows it. A servo's instruction is 55, and its first
parameter is the error. FF FF FD between length and CRC is followed by one more FD, which is no part of the packet
("byte stuffing"). Source: https://emanual.robotis.com/docs/en/dxl/protocol2/, LeRobot's
``tests/mocks/mock_dynamixel.py`` and dynamixel-sdk 3.8.4.
"""

from __future__ import annotations

from strobe.emulator import wire
from strobe.emulator.wire import BROADCAST, Packet

HEADER = b"\xff\xff\xfd\x00"
STATUS = 0x55
LONGEST = 1000  # bytes of a packet's parameters; the SDK takes packets of 1024 bytes
_HEAD = 7  # bytes up to the length
_LEAST = 3  # what the length counts in a packet without parameters
_BARE, _STUFFED = b"\xff\xff\xfd", b"\xff\xff\xfd\xfd"
_MOST = _LEAST + LONGEST * 4 // 3 + 1  # with every third byte stuffed


def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x8005 if crc & 0x8000 else crc << 1) & 0xFFFF
        table.append(crc)
    return tuple(table)


_CRC = _table()


def checksum(data: bytes | bytearray) -> int:
    """Return the CRC-16 of a packet without its last two bytes (polynomial 0x8005, from 0: "CRC-16/BUYPASS")."""
    crc = 0
    for byte in data:
        crc = (crc << 8 & 0xFF00) ^ _CRC[crc >> 8 ^ byte]
    return crc


def build(packet: Packet) -> bytes:
    """Return ``packet`` as bytes. Raises ValueError for an id above 254 and for more than 1000 bytes."""
    wire.check(packet, LONGEST)
    body = (bytes([packet.code]) + packet.parameters).replace(_BARE, _STUFFED)
    data = HEADER + bytes([packet.id]) + (len(body) + 2).to_bytes(2, "little") + body
    return data + checksum(data).to_bytes(2, "little")


class Parser(wire.Parser):
    """Finds packets of protocol 2."""

    def _next(self) -> Packet | None:
        buffer = self._buffer
        while True:
            start = buffer.find(HEADER)
            if start < 0:
                begun = next(size for size in (3, 2, 1, 0) if buffer.endswith(HEADER[:size]))
                self._drop(len(buffer) - begun)
                return None
            self._drop(start)
            if len(buffer) < _HEAD:
                return None
            length = int.from_bytes(buffer[5:_HEAD], "little")
            if buffer[4] > BROADCAST or not _LEAST <= length <= _MOST:
                self._drop(1)
                continue
            size = _HEAD + length
            if len(buffer) < size:
                return None
            if checksum(buffer[: size - 2]) != int.from_bytes(buffer[size - 2 : size], "little"):
                self.corrupt += 1
                self._drop(1)  # a good packet may begin inside
                continue
            body = bytes(buffer[_HEAD : size - 2]).replace(_STUFFED, _BARE)
            packet = Packet(buffer[4], body[0], body[1:])
            del buffer[:size]
            return packet


class Dynamixel(wire.Wire):
    """Protocol 2 on a bus."""

    overload = 0x80  # "alert": Hardware_Error_Status has the details
    number = 2
    longest = LONGEST - 1  # the error takes one

    def parser(self) -> Parser:
        return Parser()

    def build(self, packet: Packet) -> bytes:
        return build(packet)

    def status(self, id: int, error: int, data: bytes) -> bytes:
        return build(Packet(id, STATUS, bytes([error]) + data))
