"""A register of a servo's memory: where it lies, and how it stores a number."""

from __future__ import annotations

from dataclasses import dataclass

TURN = 4096  # counts of one turn


@dataclass(frozen=True)
class Register:
    """``size`` bytes from ``address``, low byte first.

    Negative numbers have the bit ``sign`` set above their size, or, with ``twos``, are stored as two's complement.
    Without either the register holds no negative numbers.
    """

    address: int
    size: int = 1
    sign: int | None = None
    twos: bool = False

    def decode(self, data: bytes | bytearray) -> int:
        raw = int.from_bytes(data, "little", signed=self.twos)
        if self.sign is None:
            return raw
        size = raw & ((1 << self.sign) - 1)
        return -size if raw >> self.sign & 1 else size

    def encode(self, value: int) -> bytes:
        """Return the bytes of ``value``, clipped to the register's range."""
        if self.twos:
            top = 1 << 8 * self.size - 1
            return min(max(value, -top), top - 1).to_bytes(self.size, "little", signed=True)
        if self.sign is None:
            raw = min(max(value, 0), (1 << 8 * self.size) - 1)
        else:
            raw = min(abs(value), (1 << self.sign) - 1) | (1 << self.sign if value < 0 else 0)
        return raw.to_bytes(self.size, "little")
