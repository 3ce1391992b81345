"""Layers: a record of what stands around a callable (a probe, a cast), so that it can be put around another one.

A treatment that computes the result of a callable in another way has to run inside the same probes and casts. So a
wrapper, a plain function to its caller, remembers the function that made it and the callable that it wraps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

Call = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Layer:
    """``made`` = ``around(inner)``; ``probe``: it only watches."""

    made: Call
    around: Callable[[Call], Call]
    inner: Call
    probe: bool = False


def layered(around: Callable[[Call], Call], inner: Call, *, probe: bool = False) -> Call:
    """``around(inner)``, remembering both if it is a function made for this call."""
    made = around(inner)
    if isinstance(made, FunctionType) and made is not inner:
        made.layer = Layer(made, around, inner, probe)  # type: ignore[attr-defined]
    return made


def layer_of(call: Call) -> Layer | None:
    """The layer that ``call`` is the outermost of; None where it is no layer."""
    layer = getattr(call, "layer", None) if isinstance(call, FunctionType) else None
    # functools.wraps copies a function's attributes to what it wraps it with: that is no layer.
    return layer if isinstance(layer, Layer) and layer.made is call else None


def peeled(call: Call) -> tuple[Call, list[Layer]]:
    """Return the innermost callable of ``call``, and the layers around it, the outermost first.

    A wrapper that is no layer hides what it wraps: then it is itself the innermost.
    """
    layers: list[Layer] = []
    while (layer := layer_of(call)) is not None:
        layers.append(layer)
        call = layer.inner
    return call, layers


def within(layers: Iterable[Layer], call: Call) -> Call:
    """``call`` with ``layers`` around it, the first one outermost."""
    for layer in reversed(list(layers)):
        call = layered(layer.around, call, probe=layer.probe)
    return call
