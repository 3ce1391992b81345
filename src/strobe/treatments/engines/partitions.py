"""The engines that torch-tensorrt made of a part, and the partitions between them that stayed with torch.

By its source (https://github.com/pytorch/TensorRT, ``dynamo/_compiler.py``, ``dynamo/_exporter.py``): a part that was
just built is a graph of submodules, ``_run_on_acc_N`` for an engine and ``_run_on_gpu_N`` for torch's operators. A part
that was loaded from a file is one graph of both, where an engine is a call of ``tensorrt::execute_engine``. Both graphs
have the order of the partitions, so torch's operators between two engines are one partition.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import GraphModule

_ENGINE = ""  # in the place of an operator's name


class Partitions(NamedTuple):
    """The numbers of engines and of partitions that torch computes, and torch's operators in them, each once."""

    engines: int
    in_torch: int
    operators: tuple[str, ...]


class OnCard:
    """A part that torch-tensorrt built or loaded for ``device``. Raises RuntimeError where none of it is an engine."""

    def __init__(self, module: Callable[..., Any], device: torch.device) -> None:
        self.module, self.device, self.partitions = module, device, partitions(module)
        if self.partitions is not None and not self.partitions.engines:
            raise RuntimeError(f"TensorRT supports none of its operators, such as {self.partitions.operators[0]}")
        if isinstance(module, GraphModule):
            # What torch computes holds the policy's own weights, in the engine's precision only while it is built.
            for name, inner in module.named_children():
                if isinstance(inner, GraphModule):
                    setattr(module, name, copy.deepcopy(inner))

    def __call__(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return its results for ``inputs``, on its own device."""
        with torch.cuda.device(self.device):
            out = self.module(*inputs)
        return [out] if isinstance(out, Tensor) else list(out)


def partitions(built: object) -> Partitions | None:
    """Return the partitions of what torch-tensorrt built or loaded; None for what is no graph."""
    if not isinstance(built, GraphModule):
        return None
    engines, in_torch, before = 0, 0, _ENGINE
    operators: dict[str, None] = {}
    for name in _iter_operators(built):
        if name == _ENGINE:
            engines += 1
        else:
            operators[name] = None
            in_torch += before == _ENGINE
        before = name
    return Partitions(engines, in_torch, tuple(operators))


def _iter_operators(module: GraphModule) -> Iterator[str]:
    for node in module.graph.nodes:
        target = str(node.target)
        if node.op == "call_module":
            inner = module.get_submodule(target)
            if "_run_on_acc" in target:
                yield _ENGINE
            elif isinstance(inner, GraphModule):
                yield from _iter_operators(inner)
        elif node.op == "call_function" and target.startswith("tensorrt.execute_engine"):
            yield _ENGINE
        # getitem takes an engine's output out of its list; what nobody reads is an assertion
        elif node.op in ("call_function", "call_method") and node.target is not operator.getitem and node.users:
            yield str(getattr(node.target, "overloadpacket", target))
