"""A treatment on a subject for a block of code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def treat(subject: Any, treatment: Any) -> Iterator[None]:
    """Apply a treatment, or a variant, and revert it at the end of the block."""
    undo = treatment.apply(subject)
    try:
        yield
    finally:
        undo()
