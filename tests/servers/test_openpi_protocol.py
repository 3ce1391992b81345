"""openpi's messages: the bytes that its own package writes, round trips, and bytes that are no message."""

from __future__ import annotations

import sys
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from strobe.core.errors import UserError
from strobe.servers.protocols import connect
from strobe.servers.protocols.connect import check_url, require_packages
from strobe.servers.protocols.openpi import decode, encode

MESSAGE: dict[str, Any] = {
    "image": np.arange(6, dtype=np.uint8).reshape(1, 2, 3),
    "state": np.array([0.5, -1.0], np.float32),
    "n": np.int64(-5),
    "on": np.bool_(True),
    "nested": {"x": np.zeros((0, 2))},
    "prompt": "hej",
    "list": [1, 2.5, None],
}
# What openpi-client 0.1.2 (msgpack 1.2.4, NumPy 1.26.4) makes of this message.
OPENPI_CLIENT = bytes.fromhex(
    "87a5696d61676584c40b5f5f6e6461727261795f5fc3c40464617461c406000102030405c4056474797065a37c7531c405736861706593010203a5"
    "737461746584c40b5f5f6e6461727261795f5fc3c40464617461c4080000003f000080bfc4056474797065a33c6634c40573686170659102a16e83"
    "c40d5f5f6e7067656e657269635f5fc3c40464617461fbc4056474797065a33c6938a26f6e83c40d5f5f6e7067656e657269635f5fc3c404646174"
    "61c3c4056474797065a37c6231a66e657374656481a17884c40b5f5f6e6461727261795f5fc3c40464617461c400c4056474797065a33c6638c405"
    "7368617065920002a670726f6d7074a368656aa46c6973749301cb4004000000000000c0"
)


def same(one: Any, other: Any) -> bool:
    """Whether two messages are equal, in their dtypes and shapes too."""
    match one:
        case np.ndarray() | np.generic():
            alike = isinstance(other, type(one)) and (one.dtype, one.shape) == (other.dtype, other.shape)
            return alike and one.tobytes() == other.tobytes()
        case dict():
            return isinstance(other, dict) and list(one) == list(other) and all(same(one[k], other[k]) for k in one)
        case list():
            return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def test_a_message_is_written_byte_for_byte_as_openpi_client_writes_it():
    assert encode(MESSAGE) == OPENPI_CLIENT


def test_what_openpi_client_writes_is_read():
    assert same(decode(OPENPI_CLIENT), MESSAGE)


NUMBERS = arrays.arrays(
    st.sampled_from(["|u1", "<f4", "<f8", "<i8", "|b1", ">f4", "<f2"]), arrays.array_shapes(min_dims=0, min_side=0)
)


@given(st.dictionaries(st.text(max_size=5), NUMBERS | st.text(max_size=5) | st.none() | st.booleans(), max_size=4))
def test_a_message_comes_back_as_it_went(message: dict[str, Any]):
    assert same(decode(encode(message)), message)


def test_a_view_of_an_array_is_sent_as_it_looks():
    image = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)[:, ::-2].transpose(1, 0, 2)
    assert np.array_equal(decode(encode(image)), image)


@pytest.mark.parametrize("value", [np.array([None]), np.zeros(2, complex), np.zeros(1, [("a", "f4")]), {1, 2}])
def test_what_cannot_be_sent_is_refused(value: Any):
    with pytest.raises((ValueError, TypeError), match="openpi's protocol has no"):
        encode({"x": value})


@pytest.mark.parametrize("key", [str, str.encode], ids=["keys of text", "keys of bytes"])
@pytest.mark.parametrize("kind", [b"", "f"], ids=["msgpack-numpy", "vllm-omni"])
def test_arrays_of_the_other_dialect_are_read(kind: Any, key: Any):
    fields: dict[str, Any] = {"nd": True, "type": "<f4", "kind": kind, "shape": [1, 2], "data": b"\0\0\xc0?" * 2}
    number = fields | {"nd": False, "data": b"\0\0\xc0?"}
    made = [{key(name): value for name, value in each.items()} for each in (fields, number)]
    array, scalar = decode(bytes(msgpack.packb(made) or b""))
    assert same(array, np.full((1, 2), 1.5, np.float32))
    assert same(scalar, np.float32(1.5))


def pack_array(**fields: Any) -> bytes:
    whole = {"__ndarray__": True, "data": b"\0" * 8, "dtype": "<f4", "shape": [2]} | fields
    return bytes(msgpack.packb({name.encode(): value for name, value in whole.items()}) or b"")


def test_the_array_that_the_next_test_breaks_is_sound():
    assert np.array_equal(decode(pack_array()), np.zeros(2, np.float32))


@pytest.mark.parametrize(
    "data",
    [
        pack_array(dtype="|O"), pack_array(dtype="|V8"), pack_array(dtype="nonsense"), pack_array(dtype=3),
        pack_array(dtype=None),
        pack_array(shape=[3]), pack_array(shape=[-2]), pack_array(shape=[2**62, 2**62]), pack_array(shape=2),
        pack_array(shape=["a"]), pack_array(shape=None),
        pack_array(dtype="|S0"), bytes(msgpack.packb({"__ndarray__": True, "data": b"", "dtype": "<f4"}) or b""),
        bytes(msgpack.packb({"nd": True, "type": "|V8", "kind": "V", "shape": [1], "data": b"\0" * 8}) or b""),
        pack_array(data="text"), pack_array(data=None), pack_array(data=b""), pack_array(data=b"\0" * 12),
        b"", b"\xc1", b"\x81", encode(MESSAGE)[:-1], encode(MESSAGE) + b"\0", b"\x91" * 5000, b"\x81\x01\x02",
        b"\xa2\xff\xff",
    ],
)  # fmt: skip
def test_bytes_that_are_no_message_are_refused(data: bytes):
    with pytest.raises(ValueError, match=r":|an array of"):
        decode(data)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://robot:8000", "no such protocol"),
        ("robot:8000", "no such protocol"),
        ("tcp://robot", "names no port"),
        ("grpc://:8080", "names no host"),
        ("ws://", "names no host"),
        ("ws://robot:0", "names no port"),
        ("ws://robot:99999", "Port out of range"),
        ("ws://me:secret@robot:8000", "no user or password"),
    ],
)
def test_an_address_that_cannot_be_is_refused(url: str, why: str):
    with pytest.raises(UserError, match=why) as caught:
        check_url(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["ws://robot:8000", "wss://robot.example/policy", "ws://[::1]:8000", "tcp://robot:5555", "grpc://robot:8080"]
)
def test_an_address_is_taken(url: str):
    check_url(url)


@pytest.mark.parametrize(
    ("url", "module", "name"),
    [("ws://a:1", "websockets", "websockets"), ("tcp://a:1", "zmq", "pyzmq"), ("grpc://a:1", "grpc", "grpcio")],
)
def test_a_missing_package_is_named_with_its_extra(url: str, module: str, name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=rf"{name}: pip install '.*\[remote\]'"):
        require_packages(url)


def test_without_strobe_zoo_an_address_of_gr00t_names_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connect, "entry_points", lambda **_: ())
    with pytest.raises(UserError, match="strobe-zoo, which speaks GR00T's protocol, is not installed: pip install"):
        require_packages("tcp://a:1")
