"""Dynamixel's packets: the manual's own, those of its SDK, and whatever a serial line makes of them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.rehearse.emulator.dynamixel import LONGEST, Packet, Parser, build
from strobe.rehearse.emulator.wire import BROADCAST, Instruction

codes = st.sampled_from([*Instruction, 0x55, 0xFD, 0xFF])
# Headers and halves of headers, which have to be stuffed, lie in every other packet.
parameters = st.lists(st.sampled_from([b"\xff\xff\xfd", b"\xff", b"\xfd", b"\0", b"\x37"]), max_size=12).map(b"".join)
packets = st.builds(Packet, st.integers(0, BROADCAST), codes, parameters | st.binary(max_size=60))


@pytest.mark.parametrize(
    ("packet", "bytes_told"),
    [
        (Packet(1, Instruction.PING), "ff ff fd 00 01 03 00 01 19 4e"),
        (Packet(1, 0x55, bytes([0, 6, 4, 38])), "ff ff fd 00 01 07 00 55 00 06 04 26 65 5d"),
        (Packet(1, Instruction.READ, bytes([132, 0, 4, 0])), "ff ff fd 00 01 07 00 02 84 00 04 00 1d 15"),
        (
            Packet(1, Instruction.WRITE, bytes([116, 0]) + (512).to_bytes(4, "little")),
            "ff ff fd 00 01 09 00 03 74 00 00 02 00 00 ca 89",
        ),
    ],
)
def test_packets_are_the_manuals(packet: Packet, bytes_told: str) -> None:
    """https://emanual.robotis.com/docs/en/dxl/protocol2/, the examples of ping, read and write."""
    assert build(packet).hex(" ") == bytes_told
    assert Parser().feed(bytes.fromhex(bytes_told)) == [packet]


@given(packets)
def test_the_sdk_builds_the_same(packet: Packet) -> None:
    """In its own words: its `txPacket` drops what its `addStuffing` returns, and sends such a packet unstuffed."""
    sdk = pytest.importorskip("dynamixel_sdk", reason="Strobe's extra 'robot' is not installed").PacketHandler(2.0)
    size = (len(packet.parameters) + 3).to_bytes(2, "little")
    plain = [0xFF, 0xFF, 0xFD, 0, packet.id, *size, packet.code, *packet.parameters, 0, 0]
    stuffed = bytes(sdk.addStuffing(plain))
    assert build(packet) == stuffed[:-2] + sdk.updateCRC(0, stuffed, len(stuffed) - 2).to_bytes(2, "little")


@given(st.lists(packets, max_size=4), st.lists(st.integers(0, 10_000), max_size=20))
def test_packets_come_back_however_the_stream_is_cut(sent: list[Packet], cuts: list[int]) -> None:
    data = b"".join(map(build, sent))
    at = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    parser = Parser()
    assert [each for a, b in pairwise(at) for each in parser.feed(data[a:b])] == sent
    assert (parser.noise, parser.corrupt, parser.waiting) == (0, 0, 0)


@given(st.lists(st.binary(max_size=100) | packets.map(build), max_size=6))
def test_no_byte_is_lost_or_counted_twice(data: list[bytes]) -> None:
    parser = Parser()
    found = [each for piece in data for each in parser.feed(piece)]
    assert sum(len(build(packet)) for packet in found) + parser.noise + parser.waiting == sum(map(len, data))


@given(packets, st.data())
def test_a_flipped_bit_behind_the_length_is_never_obeyed(packet: Packet, data: st.DataObject) -> None:
    sent = bytearray(build(packet))
    at = data.draw(st.integers(7, len(sent) - 1))
    sent[at] ^= 1 << data.draw(st.integers(0, 7))
    parser = Parser()
    assert [each for each in parser.feed(bytes(sent)) if len(build(each)) == len(sent)] == []
    assert parser.corrupt >= 1


@given(st.binary(max_size=200), packets)
def test_after_a_quiet_line_the_next_packet_is_heard(noise: bytes, packet: Packet) -> None:
    parser = Parser()
    parser.feed(noise)
    parser.quiet()
    assert parser.feed(build(packet)) == [packet]


@pytest.mark.parametrize("packet", [Packet(255, 1), Packet(1, 1, bytes(LONGEST + 1))])
def test_what_no_packet_can_say_is_refused(packet: Packet) -> None:
    with pytest.raises(ValueError, match=r"no servo|no packet"):
        build(packet)
