"""GR00T's messages: both forms of its arrays, what it says of its modalities, and bytes that are no message."""

from __future__ import annotations

import io
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from strobe.core.errors import UserError
from strobe.servers.protocols.observations import ObservationOptions, Source
from strobe_zoo.groot_server import ArrayForm, GrootWire, Modality, decode, encode

NUMBERS = arrays.arrays(
    st.sampled_from(["|u1", "<f4", "<f8", "<i8", "|b1", "<f2"]), arrays.array_shapes(min_dims=0, min_side=0)
)


@given(st.dictionaries(st.text(max_size=5), NUMBERS, max_size=3), st.sampled_from(["npy", "msgpack-numpy"]))
def test_a_message_comes_back_as_it_went(message: dict[str, Any], form: ArrayForm):
    back = decode(encode(message, form))
    assert list(back) == list(message)
    for name, value in message.items():
        assert (back[name].dtype, back[name].shape) == (value.dtype, value.shape)
        assert back[name].tobytes() == value.tobytes()


def test_an_array_is_the_bytes_of_a_npy_file():
    sent = msgpack.unpackb(encode({"x": np.arange(3)}))
    assert sent["x"]["__ndarray_class__"] is True
    assert np.array_equal(np.load(io.BytesIO(sent["x"]["as_npy"])), np.arange(3))


def test_an_array_of_the_later_form_is_that_of_msgpack_numpy():
    sent = msgpack.unpackb(encode(np.array([1.5], np.float32), "msgpack-numpy"))
    assert sent == {b"nd": True, b"type": "<f4", b"kind": b"", b"shape": [1], b"data": b"\0\0\xc0?"}


@pytest.mark.parametrize(
    ("marker", "said", "flat", "form"),
    [
        ("__ModalityConfig_class__", '{"modality_keys": ["video.top"]}', True, "npy"),
        ("__ModalityConfig_class__", {"modality_keys": ["top"]}, False, "npy"),
        ("__ModalityConfig__", {"modality_keys": ["top"]}, False, "msgpack-numpy"),
    ],
)
def test_what_a_server_says_shows_its_generation(marker: str, said: Any, flat: bool, form: str):
    read = decode(bytes(msgpack.packb({"video": {marker: True, "as_json": said}}) or b""))["video"]
    assert isinstance(read, Modality)
    assert read["modality_keys"][0].endswith("top")
    assert (read.flat, read.form) == (flat, form)


@pytest.mark.parametrize("value", [np.array([None]), np.zeros(2, complex), {1, 2}])
@pytest.mark.parametrize("form", ["npy", "msgpack-numpy"])
def test_what_cannot_be_sent_is_refused(value: Any, form: ArrayForm):
    with pytest.raises((ValueError, TypeError), match="GR00T's protocol has no"):
        encode({"x": value}, form)


def make_pickled_array() -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([{"a": 1}], object), allow_pickle=True)
    return file.getvalue()


def huge(dtype: str) -> bytes:
    """The head of a large array, without its numbers; of empty texts there are none."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"shape": (10**12,), "fortran_order": False, "descr": dtype})
    return file.getvalue()


@pytest.mark.parametrize(
    "message",
    [
        {"__ndarray_class__": True, "as_npy": make_pickled_array()}, {"__ndarray_class__": True},
        {b"nd": True, b"type": "|O", b"kind": b"O", b"shape": [1], b"data": b"x"},
        {b"nd": True, b"type": "<f4", b"kind": b"", b"shape": [2], b"data": b"1234"},
        *({"__ModalityConfig__": True, "as_json": config} for config in (
            3, {"modality_keys": 5}, {"modality_keys": [5]}, {"delta_indices": "0"},
            {"delta_indices": list(range(100_000))}, "[" * 100_000)),
        {"__ndarray_class__": True, "as_npy": huge("<f8")}, {"__ndarray_class__": True, "as_npy": huge("|S0")},
    ],
)  # fmt: skip
def test_maps_that_are_no_array_are_refused(message: dict[Any, Any]):
    with pytest.raises(ValueError, match=":"):
        decode(bytes(msgpack.packb(message) or b""))


def test_a_server_that_asks_for_too_much_is_refused():
    wire = object.__new__(GrootWire)
    modality = Modality(modality_keys=["top"], delta_indices=list(range(1000)))
    vars(wire).update(_modalities={"video": modality}, _flat=False, _url="tcp://host:5555")
    source = Source(ObservationOptions())
    with pytest.raises(UserError, match="asks for 1,000 steps of video: observations of over 128 MiB"):
        wire.observations(source)
