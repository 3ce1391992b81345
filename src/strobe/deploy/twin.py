"""The untouched policy beside the treated one: a copy of its modules whose weights lie in the same memory.

Treatments swap weights or methods on the policy's own objects, which the copy does not share; so it stays what the
policy was when the copy was made, and costs next to no memory for as long as the policy's own weights are kept anyway.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from strobe.deploy.noise import OwnNoise
from strobe.deploy.state import copied, copied_state
from strobe.devices import random_state
from strobe.errors import UserError, in_a_line
from strobe.treatments.flow.rtc import switch


@dataclass(frozen=True)
class Call:
    """A call of a policy's ``predict_action_chunk``, with all that its result depends on, to be made again elsewhere.

    Args:
        args, kwargs: copies of what it was given.
        state: a copy of what the policy held (`state_of`), its queues above all.
        rtc: a copy of its config of Real-Time Chunking, or None; ``guided``: whether it had a processor for it.
        noise: of the generators, before the call.
        inference: whether it was made in `torch.inference_mode`; ``autocast``: the dtype of autocast, or None.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    state: dict[str, Any]
    rtc: Any
    guided: bool
    noise: Mapping[str, Tensor]
    device: torch.device
    inference: bool
    autocast: torch.dtype | None

    @classmethod
    def of(cls, policy: Any, device: torch.device, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Take down a call that is about to be made."""
        return cls(
            args=copied(args),
            kwargs=copied(kwargs),
            state=copied_state(policy),
            rtc=copy.deepcopy(getattr(policy.config, "rtc_config", None)),
            guided=getattr(policy, "rtc_processor", None) is not None,
            noise=random_state.states(device),
            device=device,
            inference=torch.is_inference_mode_enabled(),
            autocast=torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None,
        )

    @contextlib.contextmanager
    def modes(self) -> Any:
        """Inside, this thread is in the modes of the call; gradients are off."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            if self.inference:
                stack.enter_context(torch.inference_mode())
            if self.autocast is not None:
                stack.enter_context(torch.autocast(self.device.type, dtype=self.autocast))
            yield


class Twin:
    """The policy as it is when this is made.

    Raises:
        UserError: it cannot be copied.
    """

    def __init__(self, policy: nn.Module) -> None:
        held = [*policy.parameters(), *policy.buffers()]
        try:
            self.policy: Any = copy.deepcopy(policy, {id(tensor): _same_memory(tensor) for tensor in held})
        except Exception as error:
            why = in_a_line(error, 200)
            raise UserError(f"the untouched policy cannot be copied to compare with: {why}") from error
        for module in self.policy.modules():
            _drop_replaced_methods(module)
        self._rtc: tuple[Any, bool] | None = None

    def predict(self, call: Call, *, own_noise: bool = True) -> Tensor:
        """Return the chunk of ``call``, (B, chunk, action dim).

        Args:
            own_noise: draw the call's noise from generators of its own; else the process's, as they stand.
        """
        policy = self.policy
        vars(policy).update({name: copied(value) for name, value in call.state.items()})
        if self._rtc is None or self._rtc != (call.rtc, call.guided):
            self._follow(call)
        noise: Callable[[], Any] = (lambda: OwnNoise(call.noise)) if own_noise else contextlib.nullcontext
        with call.modes(), noise():
            return policy.predict_action_chunk(*copied(call.args), **copied(call.kwargs))

    def _follow(self, call: Call) -> None:
        """Have Real-Time Chunking as the policy had it at the call: programs turn it on after loading."""
        policy = self.policy
        if hasattr(policy.config, "rtc_config") and hasattr(policy, "init_rtc_processor"):
            switch(policy, copy.deepcopy(call.rtc) if call.guided else None)
            policy.config.rtc_config = copy.deepcopy(call.rtc)
        self._rtc = call.rtc, call.guided


def _same_memory(tensor: Tensor) -> Tensor:
    if type(tensor) is nn.Parameter and type(tensor.data) is Tensor:
        return nn.Parameter(tensor.data, requires_grad=tensor.requires_grad)
    return tensor.detach() if not isinstance(tensor, nn.Parameter) else tensor


def _drop_replaced_methods(module: nn.Module) -> None:
    """Take off functions that stand in the place of a method: a closure belongs to the policy that it was made for."""
    kind = type(module)
    for name, value in list(vars(module).items()):
        replaced = isinstance(value, FunctionType | MethodType) or hasattr(value, "_torchdynamo_orig_callable")
        if replaced and callable(getattr(kind, name, None)):
            del vars(module)[name]
