"""The backward pass, part by part: the time between the gradient's arrival at a part's outputs and at its inputs.

Autograd goes back through the parts in the reverse of the order in which they ran. A hook on a tensor is called when
the tensor's gradient is there; it adds nothing to the graph, and no bit of any gradient changes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from strobe.core.timeline.layers import Call
from strobe.core.timeline.probe import Attached, Hook
from strobe.core.timeline.timeline import Mark, Timeline


@dataclass
class _Call:
    """One call of a part, whose inputs still wait for their gradients."""

    name: str
    inputs: int


class Backward:
    """Watches the parts that ``hooks`` name. Call ``sections`` once the backward pass is done.

    A part whose inputs need no gradient (a backbone that sees images) ends where the next one begins, or the pass does.
    Parts inside a torch.compile region are not seen. What lies between two parts belongs to neither.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._marks: list[tuple[_Call | None, Mark]] = []  # what the pass is in from here on

    def attach(self, hooks: Sequence[Hook]) -> Attached:
        """Watch the callables of ``hooks``, each under its name, until the result is detached."""
        return Attached([hook for hook in hooks if not (hook.argument or hook.begins or hook.ends)], self._wrap_call)

    def sections(self, start: Mark, end: Mark) -> None:
        """Record the parts of the pass between ``start`` and ``end``, and forget them."""
        marks, self._marks = self._marks, []
        marks = [one for one in marks if one[1].ns >= start.ns]
        ends = [mark for _, mark in marks[1:]] + [end]
        for (call, begin), until in zip(marks, ends, strict=False):
            if call is not None:
                self._timeline.record_span(call.name, begin, until)

    def _wrap_call(self, inner: Call, hook: Hook, takes_self: bool) -> Call:
        name, when = hook.name, hook.when

        @functools.wraps(inner)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not torch.is_grad_enabled() or torch.compiler.is_compiling():
                return inner(*args, **kwargs)
            if when is not None and not when(*(args[1:] if takes_self else args), **kwargs):
                return inner(*args, **kwargs)
            given = _graph_tensors((args, kwargs))
            this = _Call(name, len(given))
            output = inner(*args, **kwargs)
            for tensor in _graph_tensors(output):
                tensor.register_hook(functools.partial(self._enter, this))
            for tensor in given:
                tensor.register_hook(functools.partial(self._leave, this))
            return output

        return call

    def _enter(self, call: _Call, _: Tensor) -> None:
        if not self._marks or self._marks[-1][0] is not call:  # several outputs are one entrance
            self._marks.append((call, self._timeline.mark()))

    def _leave(self, call: _Call, _: Tensor) -> None:
        call.inputs -= 1
        # A tensor that one part gives to the next is both: by the time the next one is left, the first was entered.
        if call.inputs == 0 and self._marks and self._marks[-1][0] is call:
            self._marks.append((None, self._timeline.mark()))


def _graph_tensors(tree: object) -> list[Tensor]:
    tensors = [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor) and leaf.grad_fn is not None]
    return list({id(tensor): tensor for tensor in tensors}.values())
