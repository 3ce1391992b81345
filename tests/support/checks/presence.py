"""A value that may be missing, where a test expects it."""

from __future__ import annotations


def require_value[V](value: V | None) -> V:
    """Return ``value``, which is not None."""
    assert value is not None
    return value
