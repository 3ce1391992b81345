"""Packets of Feetech's and of Dynamixel's protocol survive whatever a serial line does to a stream of bytes."""

from __future__ import annotations

import sys
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.core.cli.main import main
from strobe_servos import dynamixel, feetech
from strobe_servos.feetech import Packet, Parser, build
from strobe_servos.wire import BROADCAST, Instruction

codes = st.sampled_from([*Instruction, 0x55, 0xFD, 0xFF])
# Headers and halves of headers, which Dynamixel has to stuff, lie in every other packet.
parameters = st.lists(st.sampled_from([b"\xff\xff\xfd", b"\xff", b"\xfd", b"\0", b"\x37"]), max_size=12).map(b"".join)
stuffed = st.builds(dynamixel.Packet, st.integers(0, BROADCAST), codes, parameters | st.binary(max_size=60))
plain = st.builds(Packet, st.integers(0, BROADCAST), st.integers(0, 255), st.binary(max_size=253))
silent = st.binary(max_size=20).map(lambda data: data.replace(b"\xff", b""))  # noise without a header's bytes
# Each protocol, and the first byte behind the length of its packets.
WIRES = [SimpleNamespace(of=feetech, packets=plain, behind=4), SimpleNamespace(of=dynamixel, packets=stuffed, behind=7)]
each_wire = pytest.mark.parametrize("wire", WIRES, ids=["feetech", "dynamixel"])


def feed_pieces(parser: Any, data: bytes, cuts: list[int]) -> list[Any]:
    at = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [each for a, b in pairwise(at) for each in parser.feed(data[a:b])]


@pytest.mark.parametrize(
    ("wire", "packet", "told"),
    [
        (
            feetech,
            Packet(BROADCAST, 0x82, bytes([56, 2, 1, 2, 3, 4, 5, 6])),
            "ff ff fe 0a 82 38 02 01 02 03 04 05 06 26",
        ),
        # https://emanual.robotis.com/docs/en/dxl/protocol2/, the examples of ping, read and write.
        (dynamixel, (1, Instruction.PING), "ff ff fd 00 01 03 00 01 19 4e"),
        (dynamixel, (1, 0x55, bytes([0, 6, 4, 38])), "ff ff fd 00 01 07 00 55 00 06 04 26 65 5d"),
        (dynamixel, (1, Instruction.READ, bytes([132, 0, 4, 0])), "ff ff fd 00 01 07 00 02 84 00 04 00 1d 15"),
        (
            dynamixel,
            (1, Instruction.WRITE, bytes([116, 0, 0, 2, 0, 0])),
            "ff ff fd 00 01 09 00 03 74 00 00 02 00 00 ca 89",
        ),
    ],
)
def test_packets_are_the_manuals(wire: Any, packet: Any, told: str) -> None:
    packet = wire.Packet(*packet) if isinstance(packet, tuple) else packet
    assert wire.build(packet).hex(" ") == told
    assert wire.Parser().feed(bytes.fromhex(told)) == [packet]


@given(stuffed)
def test_the_sdk_builds_the_same(packet: dynamixel.Packet) -> None:
    """In its own words: its `txPacket` drops what its `addStuffing` returns, and sends such a packet unstuffed."""
    sdk = pytest.importorskip("dynamixel_sdk", reason="Strobe's extra 'robot' is not installed").PacketHandler(2.0)
    size = (len(packet.parameters) + 3).to_bytes(2, "little")
    bare = [0xFF, 0xFF, 0xFD, 0, packet.id, *size, packet.code, *packet.parameters, 0, 0]
    sent = bytes(sdk.addStuffing(bare))
    assert dynamixel.build(packet) == sent[:-2] + sdk.updateCRC(0, sent, len(sent) - 2).to_bytes(2, "little")


@each_wire
@given(st.data(), st.lists(st.integers(0, 10_000), max_size=20))
def test_packets_come_back_however_the_stream_is_cut(wire: Any, data: st.DataObject, cuts: list[int]) -> None:
    parser, sent = wire.of.Parser(), data.draw(st.lists(wire.packets, max_size=5))
    assert feed_pieces(parser, b"".join(map(wire.of.build, sent)), cuts) == sent
    assert (parser.noise, parser.corrupt, parser.waiting) == (0, 0, 0)


@given(st.lists(st.tuples(silent, plain), max_size=5))
def test_noise_between_packets_is_counted_and_costs_none(sent: list[tuple[bytes, Packet]]) -> None:
    parser = Parser()
    found = [each for noise, packet in sent for each in parser.feed(noise + build(packet))]
    assert found == [packet for _, packet in sent]
    assert parser.noise == sum(len(noise) for noise, _ in sent)


@each_wire
@given(st.data())
def test_no_byte_is_lost_or_counted_twice(wire: Any, data: st.DataObject) -> None:
    parser = wire.of.Parser()
    pieces = data.draw(st.lists(st.binary(max_size=300) | wire.packets.map(wire.of.build), max_size=6))
    taken = sum(len(wire.of.build(packet)) for piece in pieces for packet in parser.feed(piece))
    assert taken + parser.noise + parser.waiting == sum(map(len, pieces))


@given(st.binary(max_size=300), st.lists(st.integers(0, 10_000), max_size=10))
def test_what_is_found_does_not_depend_on_the_cuts(data: bytes, cuts: list[int]) -> None:
    assert Parser().feed(data) == feed_pieces(Parser(), data, cuts)


@each_wire
@given(st.data())
def test_a_flipped_bit_behind_the_length_is_never_obeyed(wire: Any, data: st.DataObject) -> None:
    packet = data.draw(wire.packets)
    sent = bytearray(wire.of.build(wire.of.Packet(1, packet.code, packet.parameters[:20])))
    sent[data.draw(st.integers(wire.behind, len(sent) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    parser = wire.of.Parser()
    assert [each for each in parser.feed(bytes(sent)) if len(wire.of.build(each)) == len(sent)] == []
    assert parser.corrupt >= 1


@each_wire
@given(st.data(), st.binary(max_size=300))
def test_after_a_quiet_line_the_next_packet_is_heard(wire: Any, data: st.DataObject, noise: bytes) -> None:
    parser, packet = wire.of.Parser(), data.draw(wire.packets)
    parser.feed(noise)
    parser.quiet()
    assert parser.waiting == 0
    assert parser.feed(wire.of.build(packet)) == [packet]


def test_a_packet_behind_a_false_header_is_found_once_the_line_is_quiet() -> None:
    parser, ping = Parser(), Packet(1, 1)
    assert parser.feed(b"\xff\xff\x05\xfa" + build(ping)) == []  # it claims 250 bytes more
    assert parser.quiet() == [ping]


def test_a_byte_ff_before_the_header_does_not_hide_the_packet() -> None:
    parser, ping = Parser(), Packet(30, 1)  # the id must not be taken for a length
    assert parser.feed(b"\xff" + build(ping)) == [ping]


def test_a_packet_inside_a_spoilt_one_is_found() -> None:
    parser, ping = Parser(), Packet(1, 1)
    assert parser.feed(b"\xff\xff\x05\x08" + build(ping) + b"\0\0") == [ping]
    assert parser.corrupt == 1


@pytest.mark.parametrize(
    ("wire", "packet", "said"),
    [
        (feetech, Packet(255, 1), "the id 255"),
        (feetech, Packet(1, 1, bytes(254)), "254 bytes of parameters"),
        (dynamixel, dynamixel.Packet(255, 1), "no servo"),
        (dynamixel, dynamixel.Packet(1, 1, bytes(dynamixel.LONGEST + 1)), "no packet"),
    ],
)
def test_what_no_packet_can_say_is_refused(wire: Any, packet: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        wire.build(packet)


def test_without_the_package_a_rehearsal_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith(("strobe_servos", "strobe.rehearse"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "strobe_servos", None)
    assert main(["rehearse", "--", "--policy.path=demo", "--robot.type=so101_follower"]) == 2
    assert "this needs strobe-servos: pip install packages/strobe_servos" in capsys.readouterr().err
