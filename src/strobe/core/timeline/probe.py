"""Probes: sections attached to code that we do not own, and always reverted again.

A probe replaces a callable where its callers find it (``module.forward`` on the instance, a method on a class, a
function in its module) by a plain Python closure. wrapt's proxies were tried: torch.compile looks through them, so a
probe inside a compiled region would vanish without a word; a closure is traced like any function, and ``section``
then notes that it could not be timed.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from importlib import metadata
from types import ModuleType
from typing import Any

from typing_extensions import Self

from strobe.core.errors import UserError
from strobe.core.timeline.layers import (
    REDUCE,
    Call,
    add_layer,
    assign_attribute,
    delete,
    forget_copying,
    is_own_method,
    peel_layers,
    reduce_bare,
    rewrap_layers,
)
from strobe.core.timeline.sections import STOPPED, note_unseen, section, timed
from strobe.core.torch_there import is_module

_MISSING: Any = object()


class ProbeError(UserError):
    """A probe does not fit what is installed. Its message starts with the probe's name."""


@dataclass(frozen=True)
class Probe:
    """Where to attach a section, and under which name.

    Make one with ``Probe.module``, ``Probe.method`` or ``Probe.function``.

    Args:
        name: the section's name; for a path with ``*`` it may hold ``{}``, filled with what the star matched.
        path: dotted attribute path from the object that is probed, ``*`` standing for each child of a container;
            or, for a function, ``package.module:qualified.name``.
        attribute: the callable on that object.
        when: called with the call's own arguments (without ``self``); the section is opened only if it returns true.
        argument: name of a parameter that is itself a callable: the section is then around each call of that one.
        optional: nothing happens where the path does not exist, which otherwise is an error; and there is no note
            when it never fires.
        level: 1 for the parts shown by default, 2 for their blocks, 3 for the inside of blocks.
        until: path of the object, and name of its callable, with whose end the section ends, where that is another
            one: for a part that is a stretch of a loop's body.
    """

    name: str
    path: str
    attribute: str
    when: Callable[..., bool] | None = None
    argument: str | None = None
    optional: bool = False
    level: int = 1
    until: tuple[str, str] | None = None

    @classmethod
    def module(cls, path: str, name: str, **options: Any) -> Self:
        """The forward pass of the module at ``path``, also where ``.forward`` is called directly."""
        return cls(name, path, "forward", **options)

    @classmethod
    def method(cls, path: str, method: str, name: str, **options: Any) -> Self:
        """The method of the object at ``path`` ('' for the probed object itself)."""
        return cls(name, path, method, **options)

    @classmethod
    def function(cls, target: str, name: str, **options: Any) -> Self:
        """A function, or a method of a class, given as ``package.module:qualified.name``.

        A function is replaced in that module only: name the module that calls it if it was imported by name.
        """
        return cls(name, target, "", **options)

    def hooks(self, root: object) -> list[Hook]:
        """Every place it attaches to under ``root``. Raises ProbeError where the path is missing and not optional."""
        try:
            if not self.attribute:
                return [self._function_hook()]
            hooks = [
                Hook(owner, self.attribute, self.name.format(*stars), self.when, self.argument, self.optional)
                for owner, stars in _walk(root, self.path)
            ]
            if self.until is not None:
                path, last = self.until
                ((begin,), ((owner, _),)) = hooks, _walk(root, path)
                stretch = Stretch(self.name)
                hooks = [replace(begin, begins=stretch), Hook(owner, last, self.name, ends=stretch)]
            for hook in hooks:
                getattr(hook.owner, hook.attribute)
            if not hooks:
                raise AttributeError(f"nothing matches '{self.path}'")
            return hooks
        except (AttributeError, ImportError) as error:
            if self.optional:
                return []
            owner = type(root).__module__.split(".")[0]
            raise ProbeError(
                f"probe '{self.name}' does not fit {owner}'s {type(root).__name__} as installed"
                f"{_version_suffix(owner)}: {error}"
            ) from None

    def _function_hook(self) -> Hook:
        module_name, _, qualified = self.path.partition(":")
        owner: Any = importlib.import_module(module_name)
        *parents, attribute = qualified.split(".")
        for parent in parents:
            owner = getattr(owner, parent)
        getattr(owner, attribute)
        return Hook(owner, attribute, self.name, self.when, self.argument, self.optional)


def _version_suffix(package: str) -> str:
    try:
        return f" ({metadata.version(package)})"
    except metadata.PackageNotFoundError:
        return ""


class Stretch:
    """A section that one callable begins and another one ends, on each thread by itself."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._here = threading.local()

    def begin(self) -> None:
        """Open the section; one that an exception left open ends here."""
        self.end()
        opened = self._here.open = section(self.name)
        opened.__enter__()

    def end(self) -> None:
        """Close the section, if it is open."""
        opened: AbstractContextManager[Any] | None = getattr(self._here, "open", None)
        if opened is not None:
            self._here.open = None
            opened.__exit__(None, None, None)


@dataclass(frozen=True)
class Hook:
    """One callable to wrap: ``owner.attribute``. It may begin or end a stretch instead of being a section itself."""

    owner: Any
    attribute: str
    name: str
    when: Callable[..., bool] | None = None
    argument: str | None = None
    optional: bool = False
    begins: Stretch | None = None
    ends: Stretch | None = None


def resolve_hooks(probes: Iterable[Probe], root: object) -> list[Hook]:
    """The hooks of all ``probes`` under ``root``, in their order. Raises ProbeError."""
    return [hook for probe in probes for hook in probe.hooks(root)]


@dataclass(frozen=True, eq=False)
class _Replacement:
    """The replacement of ``own`` (`_MISSING`: of what the owner's class has)."""

    owner: Any
    attribute: str
    own: Any
    value: Any
    around: Callable[[Call], Call]  # what made the value


# What is put around a hook's callable: from the callable, the hook, and whether its first argument is an instance.
Around = Callable[[Call, Hook, bool], Call]


class Attached:
    """Probes that are on, until ``detach`` or the end of the ``with`` block.

    A copy of a probed object, and what is pickled of it, is without probes and runs its own code.

    Args:
        around: makes what is put around each hook's callable: a section, unless said otherwise.
    """

    def __init__(self, hooks: Sequence[Hook], around: Around | None = None) -> None:
        self.names = list(dict.fromkeys(hook.name for hook in hooks))
        self._around = around or _closure
        self._undo: list[_Replacement] = []
        try:
            for hook in hooks:
                self._wrap(hook)
        except BaseException:
            self.detach()
            raise

    def _wrap(self, hook: Hook) -> None:
        # vars(), not getattr: what a class holds may be a descriptor, and an instance must not keep its class's method.
        namespace = vars(hook.owner)
        own = namespace.get(hook.attribute, _MISSING)
        descriptor = own if isinstance(own, staticmethod | classmethod) else None
        inner = descriptor.__func__ if descriptor is not None else getattr(hook.owner, hook.attribute)
        takes_self = isinstance(hook.owner, type) and not isinstance(own, staticmethod)

        def wrap_call(call: Call) -> Call:
            return self._around(call, hook, takes_self)

        closure = add_layer(wrap_call, inner, probe=True)
        value = type(descriptor)(closure) if descriptor is not None else closure
        self._undo.append(_Replacement(hook.owner, hook.attribute, own, value, wrap_call))
        assign_attribute(hook.owner, hook.attribute, value)
        if not isinstance(hook.owner, type | ModuleType) and REDUCE not in namespace:
            assign_attribute(hook.owner, REDUCE, functools.partial(reduce_bare, hook.owner))

    def detach(self) -> None:
        """Take every probe off, the last one first; what was there before is there again, the same object.

        Where another wrapper was put around a probe meanwhile, it stays, without the probe in it.
        """
        while self._undo:
            replaced = self._undo.pop()
            if vars(replaced.owner).get(replaced.attribute, _MISSING) is replaced.value:
                if replaced.own is _MISSING:
                    delete(replaced.owner, replaced.attribute)
                else:
                    assign_attribute(replaced.owner, replaced.attribute, replaced.own)
            else:
                _taken_out(replaced)
            forget_copying(replaced.owner)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.detach()


def attach(probes: Iterable[Probe | Hook], root: object) -> Attached:
    """Attach ``probes`` to ``root``, or none. Raises ProbeError where one that is not optional finds nothing."""
    hooks: list[Hook] = []
    for probe in probes:
        hooks += [probe] if isinstance(probe, Hook) else probe.hooks(root)
    return Attached(hooks)


def _closure(inner: Call, hook: Hook, takes_self: bool) -> Call:
    name, when, argument, begins, ends = hook.name, hook.when, hook.argument, hook.begins, hook.ends
    if inspect.isgeneratorfunction(inner):  # a call runs nothing of it
        note_unseen(name, STOPPED)
        return inner

    if argument is not None:
        names = list(inspect.signature(inner).parameters)
        place = names.index(argument) if argument in names else len(names)

        @functools.wraps(inner)
        def call(*args: Any, **kwargs: Any) -> Any:
            callback = kwargs.get(argument, args[place] if place < len(args) else None)
            if callback is not None:
                probed = _closure(callback, replace(hook, argument=None), False)
                if argument in kwargs:
                    kwargs[argument] = probed
                else:
                    args = (*args[:place], probed, *args[place + 1 :])
            return inner(*args, **kwargs)

    elif begins is not None or ends is not None:
        from torch.compiler import is_compiling

        @functools.wraps(inner)
        def call(*args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                with section(name):
                    return inner(*args, **kwargs)
            if begins is not None:
                begins.begin()
            try:
                return inner(*args, **kwargs)
            finally:
                if ends is not None:
                    ends.end()

    elif when is None and inspect.iscoroutinefunction(inner):
        call = timed(name)(inner)

    else:

        @functools.wraps(inner)
        def call(*args: Any, **kwargs: Any) -> Any:
            if when is not None and not when(*(args[1:] if takes_self else args), **kwargs):
                return inner(*args, **kwargs)
            with section(name):
                return inner(*args, **kwargs)

    return call


def _walk(root: object, path: str) -> Iterable[tuple[Any, tuple[str, ...]]]:
    reached: list[tuple[Any, tuple[str, ...]]] = [(root, ())]
    for part in path.split(".") if path else []:
        step: list[tuple[Any, tuple[str, ...]]] = []
        for owner, stars in reached:
            if part == "*":
                children = owner.named_children() if is_module(owner) else enumerate(owner)
                step += [(child, (*stars, str(key))) for key, child in children]
            elif re.fullmatch(r"\d+", part):
                step.append((owner[int(part)], stars))
            else:
                step.append((getattr(owner, part), stars))
        reached = step
    return reached


def _taken_out(replaced: _Replacement) -> None:
    there: Any = vars(replaced.owner).get(replaced.attribute)
    kind: Any = type(there) if isinstance(there, staticmethod | classmethod) else None
    wrapped: Any = there if kind is None else there.__func__
    call, layers = peel_layers(wrapped)
    rest = [layer for layer in layers if layer.around is not replaced.around]
    if len(rest) == len(layers):
        return
    if not rest and is_own_method(replaced.owner, replaced.attribute, call):
        delete(replaced.owner, replaced.attribute)
        return
    bare = rewrap_layers(rest, call)
    assign_attribute(replaced.owner, replaced.attribute, bare if kind is None else kind(bare))
