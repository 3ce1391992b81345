"""Packets survive whatever a serial line does to a stream of bytes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.rehearse.emulator.feetech import BROADCAST, Packet, Parser, build

packets = st.builds(Packet, st.integers(0, BROADCAST), st.integers(0, 255), st.binary(max_size=253))
few = st.lists(packets, max_size=5)
silent = st.binary(max_size=20).map(lambda data: data.replace(b"\xff", b""))  # noise without a header's bytes


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in pairwise(at)]


def test_a_sync_read_of_six_joints_is_the_fourteen_bytes_of_the_manual() -> None:
    sent = build(Packet(BROADCAST, 0x82, bytes([56, 2, 1, 2, 3, 4, 5, 6])))
    assert sent.hex(" ") == "ff ff fe 0a 82 38 02 01 02 03 04 05 06 26"


@given(few, st.lists(st.integers(0, 10_000), max_size=20))
def test_packets_come_back_however_the_stream_is_cut(sent: list[Packet], cuts: list[int]) -> None:
    parser = Parser()
    found = [each for piece in pieces(b"".join(map(build, sent)), cuts) for each in parser.feed(piece)]
    assert found == sent
    assert (parser.noise, parser.corrupt, parser.waiting) == (0, 0, 0)


@given(st.lists(st.tuples(silent, packets), max_size=5))
def test_noise_between_packets_is_counted_and_costs_none(sent: list[tuple[bytes, Packet]]) -> None:
    parser = Parser()
    found = [each for noise, packet in sent for each in parser.feed(noise + build(packet))]
    assert found == [packet for _, packet in sent]
    assert parser.noise == sum(len(noise) for noise, _ in sent)


@given(st.lists(st.binary(max_size=300), max_size=6))
def test_no_byte_is_lost_or_counted_twice(data: list[bytes]) -> None:
    parser = Parser()
    found = [each for piece in data for each in parser.feed(piece)]
    taken = sum(len(build(packet)) for packet in found)
    assert taken + parser.noise + parser.waiting == sum(map(len, data))


@given(st.binary(max_size=300), st.lists(st.integers(0, 10_000), max_size=10))
def test_what_is_found_does_not_depend_on_the_cuts(data: bytes, cuts: list[int]) -> None:
    whole, cut = Parser(), Parser()
    assert whole.feed(data) == [each for piece in pieces(data, cuts) for each in cut.feed(piece)]


@given(packets, st.data())
def test_a_flipped_bit_is_never_obeyed_as_something_else(packet: Packet, data: st.DataObject) -> None:
    sent = bytearray(build(Packet(1, packet.code, packet.parameters[:20])))
    at = data.draw(st.integers(4, len(sent) - 1))  # behind the length
    sent[at] ^= 1 << data.draw(st.integers(0, 7))
    parser = Parser()
    whole = [each for each in parser.feed(bytes(sent)) if len(build(each)) == len(sent)]
    assert whole == []
    assert parser.corrupt >= 1


@given(st.binary(max_size=300), packets)
def test_after_a_quiet_line_the_next_packet_is_heard(noise: bytes, packet: Packet) -> None:
    parser = Parser()
    parser.feed(noise)
    parser.quiet()
    assert parser.waiting == 0
    assert parser.feed(build(packet)) == [packet]


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
    ("packet", "said"), [(Packet(255, 1), "the id 255"), (Packet(1, 1, bytes(254)), "254 bytes of parameters")]
)
def test_what_no_packet_can_say_is_refused(packet: Packet, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        build(packet)
