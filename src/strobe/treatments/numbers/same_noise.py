"""The same noise in every precision.

A policy that draws noise in its weights' dtype (Diffusion) would be given other noise in 16 bits, since torch's CPU
generator uses other bits for each dtype, and the actions could not be compared. So such noise is drawn in float32 and
rounded, by a mode of torch's function overrides that is in force on this thread and inside the policy's own calls only:
whoever else draws in the process draws as ever.

Under a mode every function of torch costs a microsecond more. So what was seen to draw no such noise runs without it:
the networks of a policy whose loop draws, and all of one that draws in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import _get_current_function_mode

from strobe.treatments.graphs.host_work import Stepping, stepped_aside

Call = Callable[..., Any]

_DRAWING = {torch.randn, torch.randn_like, torch.rand, torch.rand_like}


class SameNoise(Stepping):
    """The mode of one policy, with what is known of its modules."""

    def __init__(self) -> None:
        super().__init__()
        self._drawn = 0
        self._draws: dict[Hashable, bool] = {}  # what was called, and how → whether it drew noise in 16 bits

    def entry(self, inner: Call, name: str) -> Call:
        """``inner``, a method by which the policy is called: inside it the mode is in force."""

        def call(*args: Any, **kwargs: Any) -> Any:
            key = (name, len(args), *kwargs)
            if torch.compiler.is_compiling() or self._in_force() or self._draws.get(key) is False:
                return inner(*args, **kwargs)
            with self:
                return self._seen(key, inner, args, kwargs)

        return call

    def within(self, inner: Call, module: Any) -> Call:
        """``inner``, the forward pass of a module of the policy: without the mode where it was seen to draw nothing."""

        def forward(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or not self._in_force():
                return inner(*args, **kwargs)
            key = (id(module), module.training, len(args), *kwargs)
            if self._draws.get(key) is False:
                with stepped_aside():
                    return inner(*args, **kwargs)
            return self._seen(key, inner, args, kwargs)

        return forward

    def _in_force(self) -> bool:
        return _get_current_function_mode() is self

    def _seen(self, key: Hashable, inner: Call, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        before = self._drawn
        made = inner(*args, **kwargs)
        self._draws[key] = self._drawn > before or self._draws.get(key, False)
        return made

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in _DRAWING:
            return func(*args, **kwargs)
        like = args[0] if args and isinstance(args[0], Tensor) else kwargs.get("input")
        wanted = kwargs.get("dtype") or getattr(like, "dtype", None)
        if wanted not in (torch.bfloat16, torch.float16):
            return func(*args, **kwargs)
        self._drawn += 1
        return func(*args, **{**kwargs, "dtype": torch.float32}).to(wanted)
