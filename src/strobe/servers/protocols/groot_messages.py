"""The messages of GR00T's policy server: msgpack, in which an array of NumPy is a map. Two forms of it are in use.

The older form holds the bytes of a .npy file. The later one is that of the package msgpack-numpy: bytes, dtype and
shape. What a server says of its modalities shows which form it speaks. Arrays of objects are refused in both.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from typing import Any, Literal

import msgpack
import numpy as np

from strobe.core.json_text import parse_json
from strobe.servers.protocols import wire

ArrayForm = Literal["npy", "msgpack-numpy"]
_NPY, _AS_NPY = "__ndarray_class__", "as_npy"
_MODALITY, _LATER_MODALITY, _AS_JSON = "__ModalityConfig_class__", "__ModalityConfig__", "as_json"
MOST_LISTED = 1000  # names, or time steps, of a modality


class Modality(dict[str, Any]):
    """The server's description of a modality, such as its video: ``modality_keys`` and ``delta_indices`` among others.

    Attributes:
        flat: whether it was sent as text, as the servers up to N1.5 do, which take an observation without a map.
        form: of arrays that the server speaks.
    """

    flat = False
    form: ArrayForm = "npy"


def encode(message: object, form: ArrayForm = "npy") -> bytes:
    """Return ``message`` as GR00T sends it. Raises ValueError or TypeError for what cannot be sent."""
    return bytes(msgpack.packb(message, default=_npy if form == "npy" else _buffer) or b"")


def decode(data: bytes) -> Any:
    """Return the message in ``data``. Raises ValueError for what is no msgpack, or holds an array that is none."""
    return wire.decode(data, _unpack_value)


def _npy(value: object) -> object:
    array, file = wire.check_array(value, "GR00T's"), io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return {_NPY: True, _AS_NPY: file.getvalue()}


def _buffer(value: object) -> object:
    array = wire.check_array(value, "GR00T's")
    head = {b"nd": True, b"type": array.dtype.str, b"kind": b"", b"shape": array.shape}
    return {**head, b"data": array.tobytes()}


def _unpack_value(value: dict[Any, Any]) -> object:
    if _NPY in value:
        return _from_npy(value[_AS_NPY])
    if _MODALITY in value or _LATER_MODALITY in value:
        return _modality(value)
    return wire.unpack_array(value)


def _from_npy(data: bytes) -> np.ndarray:
    """Return the array in the bytes of a .npy file. Raises ValueError where they are fewer than its header says."""
    file = io.BytesIO(data)
    header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, _, dtype = header[np.lib.format.read_magic(file)](file)
    if not dtype.itemsize or dtype.itemsize * math.prod(shape) != len(data) - file.tell():
        raise ValueError(f"an array of shape {shape} in {len(data):,} bytes")
    return np.load(io.BytesIO(data), allow_pickle=False)


def _modality(value: Mapping[Any, Any]) -> Modality:
    config = value[_AS_JSON]
    read = Modality(parse_json(config) if isinstance(config, str) else config)
    for name, kind in (("modality_keys", str), ("delta_indices", int)):
        listed = read.pop(name, None) or []
        if not isinstance(listed, list) or len(listed) > MOST_LISTED or not all(type(each) is kind for each in listed):
            raise ValueError(f"{name} is no list of up to {MOST_LISTED:,} such")
        read[name] = listed
    read.flat, read.form = isinstance(config, str), "npy" if _MODALITY in value else "msgpack-numpy"
    return read
