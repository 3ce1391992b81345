"""A method of one object in another form, for as long as a treatment is on.

Only that object changes: another policy in the process, the baseline above all, runs as it was. Where a policy
calls a function of its module, which others call too, all who change it share one change (`share`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from contextlib import ExitStack
from functools import partial
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from strobe.core.timeline.layers import Call
from strobe.core.torch_there import is_module
from strobe.core.treatments.treatment import Undo

if TYPE_CHECKING:
    from torch import nn

_MISSING: Any = object()


def replaced_method(owner: Any, name: str, call: object) -> Undo:
    """Put ``call`` in the place of ``owner``'s method ``name``; the result takes it off again."""
    before = vars(owner).get(name, _MISSING)
    owner.__dict__[name] = call  # not setattr: modules refuse some names, and check all

    def undo() -> None:
        if before is _MISSING:
            owner.__dict__.pop(name, None)
        else:
            owner.__dict__[name] = before

    return undo


class _Shared:
    """A function of a module that several treatments have wrappers around."""

    def __init__(self, owner: object, name: str) -> None:
        self.owner, self.name = owner, name
        self.around: list[Callable[[Any], Any]] = []
        self._own: Any = None
        self._chain: Any = None
        self._there = False  # ``passing``, maybe below what somebody else has put on top

        def passing(*args: object, **kwargs: object) -> object:
            return self._chain(*args, **kwargs)

        self._passing = passing

    def update_wrappers(self) -> None:
        """Put the wrappers that there are now around the function; without any, restore the function."""
        now = vars(self.owner)[self.name]
        if self.around and (not self._there or now is self._own):
            self._own, self._there = now, True
            setattr(self.owner, self.name, self._passing)
        elif not self.around and now is self._passing:
            self._there = False
            setattr(self.owner, self.name, self._own)
        self._chain = self._own
        for around in self.around:
            self._chain = around(self._chain)


_shared: dict[tuple[int, str], _Shared] = {}
_changing = threading.RLock()


def share(module: object, name: str, around: Callable[[Any], Any]) -> Undo:
    """Put ``around(the function)`` in the place of ``module``'s function ``name``, which other policies call as well.

    What ``around`` returns is for its own policy: it hands calls of others on as they are. Wrappers are reverted in
    any order; with the last one the function itself is there again.
    """
    with _changing:
        shared = _shared.setdefault((id(module), name), _Shared(module, name))
        shared.around.append(around)
        shared.update_wrappers()
    remaining = [around]

    def undo() -> None:
        with _changing:
            while remaining:
                shared.around.remove(remaining.pop())
                shared.update_wrappers()

    return undo


class Patches:
    """Several methods replaced together. ``undo`` restores them, last first, and is what ``apply`` returns."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def put(self, owner: object, name: str, call: object) -> None:
        """Put ``call`` in the place of ``owner``'s method ``name``."""
        self._stack.callback(replaced_method(owner, name, call))

    def wrap(self, owner: object, name: str, around: Callable[[Call], Call]) -> None:
        """Put ``around(what is there now)`` in the place of ``owner``'s method ``name``."""
        self.put(owner, name, around(getattr(owner, name)))

    def share(self, module: object, name: str, around: Callable[[Call], Call]) -> None:
        """As `share`."""
        self._stack.callback(share(module, name, around))

    def call(self, module: Any, call: Any) -> None:
        """Put ``call`` in the place of calling ``module``. Its ``forward`` stays free, for probes and torch.compile."""
        self.put(module, "_compiled_call_impl", call)  # torch looks here first

    def bracket(
        self,
        owner: object,
        name: str,
        before: Callable[[], None] | None = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        """Call ``before`` ahead of each call of ``owner``'s method ``name``, and ``after`` behind it, also if it fails.

        Both are functions or methods in Python, so that `identity` knows them again.
        """

        def wrap_call(method: Call) -> Call:
            def call(*args: Any, **kwargs: Any) -> Any:
                if before is not None:
                    before()
                try:
                    return method(*args, **kwargs)
                finally:
                    if after is not None:
                        after()

            return call

        self.wrap(owner, name, wrap_call)

    def register_undo(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` once what is patched after this was restored."""
        self._stack.callback(callback)

    def undo(self) -> None:
        """Take all off again."""
        self._stack.close()


def identity(call: Any, _above: tuple[int, ...] = ()) -> Hashable:
    """Return a key for what ``call`` does: equal for closures of the same code over the same objects.

    Treatments are applied for every call, and may make new closures each time. What was built of one closure
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
        case _ if callable(call) and not isinstance(call, type) and not is_module(call) and hasattr(call, "__dict__"):
            return ("object", id(type(call)), *((name, id(value)) for name, value in vars(call).items()))
        case _:
            return id(call)


def find_replacements(module: nn.Module) -> tuple[list[object], Hashable]:
    """Return what replaces methods anywhere in ``module``, and one key for it (`identity`); configs count by type."""
    configs = tuple(type(vars(child).get("config")) for child in module.modules())
    calls = [
        (where, name, value)
        for where, child in enumerate(module.modules())
        for name, value in vars(child).items()
        if isinstance(value, FunctionType | MethodType)
    ]
    return [call for _, _, call in calls], (configs, *((where, name, identity(call)) for where, name, call in calls))


def _content(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None
