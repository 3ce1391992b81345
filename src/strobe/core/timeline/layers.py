"""Layers: a record of what stands around a callable (a probe, a cast), so that it can be put around another one.

A treatment that computes the result of a callable in another way has to run inside the same probes and casts. So a
wrapper, a plain function to its caller, remembers the function that made it and the callable that it wraps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from strobe.core.torch_there import is_module

Call = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Layer:
    """``made`` = ``around(inner)``; ``probe``: it only watches."""

    made: Call
    around: Callable[[Call], Call]
    inner: Call
    probe: bool = False


def add_layer(around: Callable[[Call], Call], inner: Call, *, probe: bool = False) -> Call:
    """``around(inner)``, remembering both if it is a function made for this call."""
    made = around(inner)
    if isinstance(made, FunctionType) and made is not inner:
        made.layer = Layer(made, around, inner, probe)  # type: ignore[attr-defined]
    return made


def find_layer(call: Call) -> Layer | None:
    """The layer that ``call`` is the outermost of; None if it is no layer."""
    layer = getattr(call, "layer", None) if isinstance(call, FunctionType) else None
    # functools.wraps copies a function's attributes to what it wraps it with: that is no layer.
    return layer if isinstance(layer, Layer) and layer.made is call else None


def peel_layers(call: Call) -> tuple[Call, list[Layer]]:
    """Return the innermost callable of ``call``, and the layers around it, the outermost first.

    A wrapper that is no layer hides what it wraps: then it is itself the innermost.
    """
    layers: list[Layer] = []
    while (layer := find_layer(call)) is not None:
        layers.append(layer)
        call = layer.inner
    return call, layers


def rewrap_layers(layers: Iterable[Layer], call: Call) -> Call:
    """``call`` with ``layers`` around it, the first one outermost."""
    for layer in reversed(list(layers)):
        call = add_layer(layer.around, call, probe=layer.probe)
    return call


# A probed object is copied and pickled as if no probe were on it: what is on it would run the original's code.

REDUCE = "__reduce_ex__"  # what copy, deepcopy and pickle ask an object for


def reduce_bare(owner: object, protocol: object) -> Any:
    """Return the state to copy or pickle ``owner`` from, without its probes, which would run the original's code."""
    kind: Any = type(owner)
    made = kind.__reduce_ex__(owner, protocol)
    if isinstance(made, str) or len(made) < 3:
        return made
    state = made[2]
    if isinstance(state, dict):
        state = _bare(owner, state)
    elif isinstance(state, tuple) and len(state) == 2 and isinstance(state[0], dict):  # of a class with slots
        state = (_bare(owner, state[0]), state[1])
    return (*made[:2], state, *made[3:])


def forget_copying(owner: object) -> None:
    """An object without probes is copied as ever."""
    here = vars(owner)
    own = here.get(REDUCE)
    probed = any(layer.probe for value in list(here.values()) for layer in peel_layers(value)[1])
    if isinstance(own, functools.partial) and own.func is reduce_bare and not probed:
        delete(owner, REDUCE)


def _bare(owner: object, state: dict[str, Any]) -> dict[str, Any]:
    callables = {}
    for name, value in state.items():
        if name == REDUCE:
            continue
        bare = value
        while (layer := find_layer(bare)) is not None and layer.probe:
            bare = layer.inner
        if bare is value or not is_own_method(owner, name, bare):
            callables[name] = bare
    return callables


def is_own_method(owner: object, name: str, call: Any) -> bool:
    """Whether ``call`` is what the owner's class gives it under ``name``."""
    function = getattr(call, "__func__", None)
    return function is not None and call.__self__ is owner and function is getattr(type(owner), name, None)


def assign_attribute(owner: Any, attribute: str, value: object) -> None:
    """Set an attribute of an object, a class or a module of Python."""
    # nn.Module._putattr__ sorts what it is given into parameters, buffers and children; a function belongs in none.
    if is_module(owner):
        owner.__dict__[attribute] = value
    else:
        setattr(owner, attribute, value)


def delete(owner: Any, attribute: str) -> None:
    """Delete an attribute that `set_on` has set."""
    if is_module(owner):
        owner.__dict__.pop(attribute, None)
    else:
        delattr(owner, attribute)
