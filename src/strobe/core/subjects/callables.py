"""The callable that a study calls of any object, and the torch modules inside it."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from strobe.core.errors import UserError
from strobe.core.subjects.leaves import takes_nothing
from strobe.core.timeline.layers import Call
from strobe.core.torch_there import has_torch, is_module

if TYPE_CHECKING:
    from torch import nn

# The methods of policies, in the order in which they are looked for. `select_action` is the last one: in LeRobot most
# of its calls only take an action from a queue.
METHODS = ("infer", "get_action", "predict_action_chunk", "sample_actions", "select_action")
_MAY_QUEUE = ("infer", "get_action", "select_action")  # openpi-client's ActionChunkBroker has an `infer` with a queue
MODULE = "torch module"  # the kind of a target that is a module, called as one
_SHOWN = 80  # characters of a name


@dataclass(frozen=True)
class Target:
    """The function, module or object under test, under a name.

    Args:
        name: the variant's.
        call: what is timed, with the arguments of an input.
        label: what it is, such as 'ResNet' or 'my_policy.act', for titles.
        kind: its kind in words, such as 'torch module', 'function', 'object with infer()'.
        modules: path → torch module inside; the path of a target that is a module itself is ''.
        before: called before each call and not timed; None for nothing.
        opaque: why its parts cannot be timed.
        owner: the object that has the modules, each at its path; None for a function without one.
    """

    name: str
    call: Call
    label: str
    kind: str
    modules: Mapping[str, nn.Module] = field(default_factory=dict)
    before: Callable[[], object] | None = None
    opaque: str | None = None
    owner: object = None

    @functools.cached_property
    def module(self) -> nn.Module:
        """The module itself, or an empty one that holds those inside."""
        if "" in self.modules:
            return self.modules[""]
        if not has_torch():
            return cast("nn.Module", NoModule())
        from torch import nn

        holder = type(self.label, (nn.Module,), {})()  # messages name its class
        for name, module in self.modules.items():
            holder.add_module(name, module)
        return holder


class NoModule:
    """An empty module, where torch is not installed."""

    def parameters(self) -> Iterator[Any]:
        """Yield nothing, as whatever else asks for what is inside."""
        return iter(())

    buffers = modules = named_modules = named_children = parameters


def make_target(name: str, target: object) -> Target:
    """Return what is called of ``target``: a method of `METHODS` where it has one, else the object itself.

    `infer`, `get_action` and `select_action` are preceded by `reset`, where there is one, so that no call takes an
    action from a queue. So are these methods by themselves, as in ``target_of("a", policy.select_action)``.

    Raises:
        UserError: ``target`` is a class, or nothing that can be called.
    """
    if isinstance(target, type):
        raise UserError(f"'{name}' is the class {target.__name__}: pass an object of it")
    method = next((each for each in METHODS if callable(getattr(target, each, None))), "")
    if method:
        call, kind = getattr(target, method), f"object with {method}()"
        return _target(name, call, type(target).__name__, kind, target, _reset(target, method))
    if is_module(target):
        return _target(name, target, type(getattr(target, "_orig_mod", target)).__name__, MODULE, target)
    if not callable(target):
        raise UserError(
            f"'{name}' is of type {type(target).__name__} and cannot be called: pass a function, a torch module, or an "
            f"object with {', '.join(METHODS[:-1])} or {METHODS[-1]}"
        )
    inner = target
    while isinstance(inner, functools.partial):
        inner = inner.func
    owner = getattr(inner, "__self__", None) if inspect.ismethod(inner) else inner
    label = str(getattr(inner, "__qualname__", type(inner).__name__)).rpartition("<locals>.")[2]
    label = "function" if "<lambda>" in label else label
    return _target(name, target, label, _kind(target), owner, _reset(owner, getattr(inner, "__name__", "")))


def _reset(owner: object, method: str) -> Callable[[], object] | None:
    """Return what empties the queue that ``method`` may take actions from; None if there is nothing."""
    reset = getattr(owner, "reset", None) if method in _MAY_QUEUE else None
    return reset if takes_nothing(reset) else None


def one_part(target: Target) -> str | None:
    """Return why nothing divides a target into parts; None if something does."""
    return target.opaque or (None if target.modules else "no torch module was found in it")


def list_modules(target: Target) -> list[nn.Module]:
    """Return the modules of a target, and those that its function has in hand: as globals, or of where it was made."""
    held, call = list[object](), target.call
    while isinstance(call, functools.partial):
        held, call = [*held, *call.args, *call.keywords.values()], call.func
    if inspect.isfunction(call):
        with contextlib.suppress(ValueError):  # a name of its surroundings has no value yet
            found = inspect.getclosurevars(call)
            held += [*found.nonlocals.values(), *found.globals.values(), *(call.__defaults__ or ())]
    return [*target.modules.values(), *(module for each in held for module in modules_inside(each).values())]


def modules_inside(owner: object) -> dict[str, nn.Module]:
    """Return path → module: '' for a module itself; else the modules among the object's attributes, each once."""
    if is_module(owner):
        return {"": owner}
    found: dict[str, nn.Module] = {}
    for name, value in _attributes(owner):
        if is_module(value) and value not in found.values() and "." not in name:
            found[name] = value
    return found


def _attributes(owner: object) -> Iterator[tuple[str, object]]:
    if owner is None or inspect.isfunction(owner) or inspect.isbuiltin(owner) or inspect.ismodule(owner):
        return
    yield from getattr(owner, "__dict__", {}).items()


def _target(
    name: str, call: Any, label: str, kind: str, owner: object, before: Callable[[], object] | None = None
) -> Target:
    modules = modules_inside(owner)
    return Target(name, call, label[:_SHOWN], kind, modules, before, _opaque(call, modules, owner), owner)


def _kind(target: object) -> str:
    if inspect.ismethod(target):
        return "method"
    return "function" if inspect.isroutine(target) or isinstance(target, functools.partial) else "callable object"


def _opaque(call: object, modules: Mapping[str, nn.Module], owner: object) -> str | None:
    for each in (call, *modules.values()):
        if _is_compiled(each):
            return "it is compiled by torch.compile"
        if type(each).__module__.startswith("torch.jit"):
            return "it is a program of TorchScript"
    for name, module in modules.items():
        for method in METHODS:
            if _is_compiled(vars(module).get(method)):
                return f"its {name}.{method} is compiled by torch.compile"
    return None if modules else _describe_jax_model(owner)


def _is_compiled(target: object) -> bool:
    return (
        hasattr(target, "_torchdynamo_orig_callable")
        or hasattr(target, "_orig_mod")
        or getattr(target, "_compiled_call_impl", None) is not None
    )


def _describe_jax_model(owner: object) -> str | None:
    """Return that ``owner`` is or has a model of one of JAX's libraries, in words; None for any other object."""
    for name, value in (("", owner), *_attributes(owner)):
        packages = {kind.__module__.partition(".")[0] for kind in type(value).__mro__}
        if packages & {"flax", "equinox", "haiku"}:
            return f"{f'its {name}' if name else 'it'} is a model of JAX, whose parts are compiled into one program"
    return None
