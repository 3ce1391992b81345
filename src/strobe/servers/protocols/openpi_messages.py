"""openpi's messages: msgpack, in which an array of NumPy is a map of its bytes, its dtype and its shape.

The keys of that map are bytes. A scalar of NumPy is such a map too, with its value in place of the bytes. Arrays of
objects are refused in both directions: their bytes are addresses in the memory of another process.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from strobe.core.errors import UserError, install

_ARRAY, _SCALAR, _DATA, _DTYPE, _SHAPE = b"__ndarray__", b"__npgeneric__", b"data", b"dtype", b"shape"
_REFUSED = "OVc"  # kinds of dtypes: objects, records, complex numbers


def require_packages() -> None:
    """Raise UserError where `websockets` or `msgpack` is not installed."""
    try:
        import msgpack  # noqa: F401
        import websockets  # noqa: F401
    except ImportError as error:
        raise UserError(f"openpi's server needs the package {error.name}: {install('remote')}") from None


def encode(message: object) -> bytes:
    """Return ``message`` as openpi sends it. Raises ValueError or TypeError for what cannot be sent."""
    import msgpack

    return bytes(msgpack.packb(message, default=_pack_value) or b"")


def decode(data: bytes) -> Any:
    """Return the message in ``data``; its arrays are read-only.

    Raises:
        ValueError: ``data`` is no msgpack, or holds an array whose bytes, dtype and shape do not fit.
    """
    import msgpack

    try:
        return msgpack.unpackb(data, object_hook=_unpack_value)
    except (ValueError, msgpack.UnpackException) as error:  # the latter where the bytes end too early
        raise ValueError(f"{type(error).__name__}: {error}") from None
    except (TypeError, KeyError, OverflowError, MemoryError) as error:  # fields of an array that are none
        raise ValueError(f"{type(error).__name__}: {error}") from None


def _pack_value(value: Any) -> object:
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind in _REFUSED:
            raise ValueError(f"openpi's protocol has no arrays of dtype {value.dtype}")
        if isinstance(value, np.generic):
            return {_SCALAR: True, _DATA: value.item(), _DTYPE: value.dtype.str}
        return {_ARRAY: True, _DATA: value.tobytes(), _DTYPE: value.dtype.str, _SHAPE: value.shape}
    raise TypeError(f"openpi's protocol has no place for a {type(value).__name__}")


def _unpack_value(value: dict[Any, Any]) -> object:
    if _ARRAY not in value and _SCALAR not in value:
        return value
    dtype = np.dtype(value[_DTYPE])
    if dtype.kind in _REFUSED:
        raise ValueError(f"an array of dtype {dtype}")
    if _SCALAR in value:
        return dtype.type(value[_DATA])
    data, shape = value[_DATA], tuple(int(size) for size in value[_SHAPE])
    if min(shape, default=0) < 0:
        raise ValueError(f"an array of shape {shape}")
    if len(data) != dtype.itemsize * int(np.prod(shape, dtype=object)):
        raise ValueError(f"an array of shape {shape} and dtype {dtype} in {len(data):,} bytes")
    return np.ndarray(shape, dtype, buffer=data)
