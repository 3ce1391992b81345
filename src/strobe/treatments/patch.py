"""A method of one object in another form, for as long as a treatment is on.

Only that object changes: another policy in the process, the untouched one above all, runs as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import ExitStack
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from torch import nn

from strobe.treatments.treatment import Undo

_MISSING: Any = object()


def put(owner: Any, name: str, call: Any) -> Undo:
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

    def put(self, owner: Any, name: str, call: Any) -> None:
        """Put ``call`` in the place of ``owner``'s method ``name``."""
        self._stack.callback(put(owner, name, call))

    def wrap(self, owner: Any, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Put ``around(what is there now)`` in the place of ``owner``'s method ``name``."""
        self.put(owner, name, around(getattr(owner, name)))

    def call(self, module: Any, call: Any) -> None:
        """Put ``call`` in the place of calling ``module``. Its ``forward`` stays free, for probes and torch.compile."""
        self.put(module, "_compiled_call_impl", call)  # torch looks here first

    def undo(self) -> None:
        """Take all off again."""
        self._stack.close()


def identity(call: Any, _above: tuple[int, ...] = ()) -> Hashable:
    """Return a key for what ``call`` does: equal for closures of the same code over the same objects.

    Treatments are put on anew for every call, and may make new closures each time. What was built of one closure
    (compiled, captured) serves for another with the same key. The key is made of addresses: it is valid only while
    the callable is kept alive.
    """
    if id(call) in _above:  # a function that calls itself
        return id(call)
    above = (*_above, id(call))
    match call:
        case MethodType():
            return ("method", identity(call.__func__, above), id(call.__self__))
        case FunctionType():
            cells = [identity(_content(cell), above) for cell in call.__closure__ or ()]
            return ("function", id(call.__code__), *cells, *map(id, call.__defaults__ or ()))
        case partial():
            return ("partial", identity(call.func, above), *map(id, call.args), *map(id, call.keywords.values()))
        case _ if callable(call) and not isinstance(call, type | nn.Module) and hasattr(call, "__dict__"):
            return ("object", id(type(call)), *((name, id(value)) for name, value in vars(call).items()))
        case _:
            return id(call)


def patched(module: nn.Module) -> tuple[list[Any], Hashable]:
    """Return what replaces methods anywhere in ``module``, and one key for it (`identity`); configs count by type."""
    configs = tuple(type(vars(child).get("config")) for child in module.modules())
    calls = [
        (where, name, value)
        for where, child in enumerate(module.modules())
        for name, value in vars(child).items()
        if isinstance(value, FunctionType | MethodType)
    ]
    return [call for _, _, call in calls], (configs, *((where, name, identity(call)) for where, name, call in calls))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None
