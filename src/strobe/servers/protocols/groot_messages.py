"""The messages of GR00T's policy server: msgpack, in which an array of NumPy is a map. Two forms of it are in use.

The older form holds the bytes of a .npy file. The later one is that of the package msgpack-numpy: bytes, dtype and
shape. What a server says of its modalities shows which form it speaks. Arrays of objects are refused in both.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from strobe.core.errors import UserError, error_line, install
from strobe.core.json_text import parse_json

ArrayForm = Literal["npy", "msgpack-numpy"]
_NPY, _AS_NPY = "__ndarray_class__", "as_npy"
_ND, _TYPE, _KIND, _SHAPE, _DATA = b"nd", b"type", b"kind", b"shape", b"data"
_MODALITY, _LATER_MODALITY, _AS_JSON = "__ModalityConfig_class__", "__ModalityConfig__", "as_json"
MOST_LISTED = 1000  # names, or time steps, of a modality
_REFUSED = "OVc"  # kinds of dtypes: objects, records, complex numbers


class Modality(dict[str, Any]):
    """The server's description of a modality, such as its video: ``modality_keys`` and ``delta_indices`` among others.

    Attributes:
        flat: whether it was sent as text, as the servers up to N1.5 do, which take an observation without a map.
        form: of arrays that the server speaks.
    """

    flat = False
    form: ArrayForm = "npy"


def require_packages() -> None:
    """Raise UserError where `pyzmq` or `msgpack` is not installed."""
    try:
        import msgpack  # noqa: F401
        import zmq  # noqa: F401
    except ImportError as error:
        name = "pyzmq" if error.name == "zmq" else error.name
        raise UserError(f"GR00T's server needs the package {name}: {install('remote')}") from None


def encode(message: object, form: ArrayForm = "npy") -> bytes:
    """Return ``message`` as GR00T sends it. Raises ValueError or TypeError for what cannot be sent."""
    import msgpack

    return bytes(msgpack.packb(message, default=_npy if form == "npy" else _buffer) or b"")


def decode(data: bytes) -> Any:
    """Return the message in ``data``. Raises ValueError for what is no msgpack, or holds an array that is none."""
    import msgpack

    try:
        return msgpack.unpackb(data, object_hook=_unpack_value)
    except Exception as error:  # the fields of an array that is none raise whatever they are
        raise ValueError(f"{type(error).__name__}: {error_line(error, 200)}") from None


def _check_array(value: Any) -> np.ndarray:
    if not isinstance(value, np.ndarray | np.generic):
        raise TypeError(f"GR00T's protocol has no place for a {type(value).__name__}")
    if value.dtype.kind in _REFUSED:
        raise ValueError(f"GR00T's protocol has no arrays of dtype {value.dtype}")
    return np.asarray(value)


def _npy(value: object) -> object:
    array, file = _check_array(value), io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return {_NPY: True, _AS_NPY: file.getvalue()}


def _buffer(value: object) -> object:
    array = _check_array(value)
    return {_ND: True, _TYPE: array.dtype.str, _KIND: b"", _SHAPE: array.shape, _DATA: array.tobytes()}


def _unpack_value(value: dict[Any, Any]) -> object:
    if _NPY in value:
        return _from_npy(value[_AS_NPY])
    if _ND in value:
        return _from_buffer(value)
    if _MODALITY in value or _LATER_MODALITY in value:
        return _modality(value)
    return value


def _from_npy(data: bytes) -> np.ndarray:
    """Return the array in the bytes of a .npy file. Raises ValueError where they are fewer than its header says."""
    file = io.BytesIO(data)
    header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, _, dtype = header[np.lib.format.read_magic(file)](file)
    if not dtype.itemsize or dtype.itemsize * math.prod(shape) != len(data) - file.tell():
        raise ValueError(f"an array of shape {shape} in {len(data):,} bytes")
    return np.load(io.BytesIO(data), allow_pickle=False)


def _from_buffer(value: Mapping[Any, Any]) -> object:
    dtype = np.dtype(value[_TYPE])
    if dtype.kind in _REFUSED or value.get(_KIND):
        raise ValueError(f"an array of dtype {dtype}")
    read = np.frombuffer(value[_DATA], dtype)
    return read.reshape([int(size) for size in value[_SHAPE]]) if value[_ND] else read[0]


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
