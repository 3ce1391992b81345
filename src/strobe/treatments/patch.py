"""A method of one object in another form, for as long as a treatment is on.

Only that object changes: another policy in the process, the untouched one above all, runs as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from strobe.treatments.treatment import Undo

_MISSING: Any = object()


def put(owner: Any, name: str, call: Callable[..., Any]) -> Undo:
    """Put ``call`` in the place of ``owner``'s method ``name``; the result takes it off again."""
    before = vars(owner).get(name, _MISSING)
    owner.__dict__[name] = call  # not setattr: modules refuse some names, and check all

    def undo() -> None:
        if before is _MISSING:
            owner.__dict__.pop(name, None)
        else:
            owner.__dict__[name] = before

    return undo


class Patches:
    """Several methods replaced together. ``undo`` restores them, last first, and is what ``apply`` returns."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def put(self, owner: Any, name: str, call: Callable[..., Any]) -> None:
        """Put ``call`` in the place of ``owner``'s method ``name``."""
        self._stack.callback(put(owner, name, call))

    def wrap(self, owner: Any, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Put ``around(what is there now)`` in the place of ``owner``'s method ``name``."""
        self.put(owner, name, around(getattr(owner, name)))

    def undo(self) -> None:
        """Take all off again."""
        self._stack.close()
