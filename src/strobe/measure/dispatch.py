"""Each operator as it reaches the device's kernels, whatever called it, under inference_mode as under no_grad.

Under inference_mode torch hands a dispatch mode the operators that users write (``linear``, ``matmul``, ``lstm``),
under no_grad those that these are made of. Here they are always taken apart, by the code that torch itself would run.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from strobe.measure.flop import knows


class Operators(TorchDispatchMode):
    """A dispatch mode whose `ran` sees every operator of this thread that is not made of others."""

    supports_higher_order_operators = True

    @abstractmethod
    def ran(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run ``operator`` and return its result; what it runs inside is not seen."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(kind.__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl for kind in types):
            return NotImplemented  # a class of tensors of its own computes by other operators, which are seen in turn
        if isinstance(func, OpOverload) and _made_of_others(func, args, kwargs):
            with self:
                return func._op_dk(DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
        return self.ran(func, args, kwargs)


def _made_of_others(operator: OpOverload, args: Any, kwargs: Any) -> bool:
    if knows(operator):
        return False
    if not torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), DispatchKey.CompositeImplicitAutograd):
        return False
    # Nested tensors have kernels of their own for many of these.
    return not any(isinstance(leaf, Tensor) and leaf.is_nested for leaf in tree_leaves((args, kwargs)))
