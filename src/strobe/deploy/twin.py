"""The baseline, to compare the treated one with: a copy of its modules whose weights lie in the same memory.

Treatments swap weights or methods on the policy's own objects, which the copy does not share; so it stays what the
policy was when the copy was made, and costs next to no memory for as long as the policy's own weights are kept anyway.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from strobe.core.devices.accelerators import generator_states, generators_restored, number_device
from strobe.core.errors import UserError, error_line
from strobe.treatments.flow.rtc import switch


@dataclass(frozen=True)
class PolicyCall:
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
    def record_call(
        cls, policy: Any, device: torch.device, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> PolicyCall:
        """Take down a call that is about to be made."""
        return cls(
            args=copy_containers(args),
            kwargs=copy_containers(kwargs),
            state=copied_state(policy),
            rtc=copy.deepcopy(getattr(policy.config, "rtc_config", None)),
            guided=getattr(policy, "rtc_processor", None) is not None,
            noise=generator_states(device),
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
    """The baseline when this is made.

    Raises:
        UserError: it cannot be copied.
    """

    def __init__(self, policy: nn.Module) -> None:
        held = [*policy.parameters(), *policy.buffers()]
        try:
            self.policy: Any = copy.deepcopy(policy, {id(tensor): _same_memory(tensor) for tensor in held})
        except Exception as error:
            why = error_line(error, 200)
            raise UserError(f"the baseline cannot be copied for the comparison: {why}") from error
        for module in self.policy.modules():
            _drop_replaced_methods(module)
        self._rtc: tuple[object, bool] | None = None

    def predict(self, call: PolicyCall, *, own_noise: bool = True) -> Tensor:
        """Return the chunk of ``call``, (B, chunk, action dim).

        Args:
            own_noise: draw the call's noise from generators of its own; else the process's, as they stand.
        """
        policy = self.policy
        vars(policy).update({name: copy_containers(value) for name, value in call.state.items()})
        if self._rtc is None or self._rtc != (call.rtc, call.guided):
            self._follow(call)
        noise: Callable[[], object] = (lambda: OwnNoise(call.noise)) if own_noise else contextlib.nullcontext
        with call.modes(), noise():
            return policy.predict_action_chunk(*copy_containers(call.args), **copy_containers(call.kwargs))

    def _follow(self, call: PolicyCall) -> None:
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
    kind = type(module)
    for name, value in list(vars(module).items()):
        replaced = isinstance(value, FunctionType | MethodType) or hasattr(value, "_torchdynamo_orig_callable")
        if replaced and callable(getattr(kind, name, None)):
            del vars(module)[name]


# Noise of one's own: random numbers of this thread from generators that nothing else draws from.
#
# torch's generators belong to the whole process. A policy that runs at the same time as another would take numbers from
# it, and the program's next action would be another.

# Operators that older versions of torch give no generator: what fills an empty tensor to the same bits.
_FILLED = {"aten::randn_like": "normal_", "aten::rand_like": "uniform_"}


class OwnNoise(TorchDispatchMode):
    """Inside, on this thread, random numbers come from generators that start in ``states``.

    The numbers are those that the process's generators would give from there.

    Args:
        states: name of a device → state of its generator (`generator_states`). A device that is not among them
            draws from the process's generator.
    """

    def __init__(self, states: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._generators: dict[torch.device, torch.Generator] = {}
        for name, state in states.items():
            generator = torch.Generator(torch.device(name))
            generator.set_state(state)
            self._generators[torch.device(name)] = generator

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if not _random(func):
            return func(*args, **named)
        given = named.get("generator")
        generator = self._generators.get(_device(args, named)) if given is None else None
        if generator is None:
            return func(*args, **named)
        if "generator" in _arguments(func):
            at = _arguments(func).index("generator")
            if at < len(args):
                return func(*args[:at], generator, *args[at + 1 :], **named)
            return func(*args, **{**named, "generator": generator})
        other = _generator_overload(func)
        if other is not None:
            return other(*args, **named, generator=generator)
        filled = _FILLED.get(func._schema.name)
        if filled is None:
            raise NotImplementedError(f"{func} draws random numbers and takes no generator")
        return getattr(torch.empty_like(*args, **named), filled)(generator=generator)


@functools.cache
def _random(func: Any) -> bool:
    # Attention and dropout are among them for the sake of training: a policy that acts drops nothing out.
    names = [func._schema.name, *_arguments(func)]
    return torch.Tag.nondeterministic_seeded in func.tags and not any("dropout" in name for name in names)


@functools.cache
def _arguments(func: Any) -> list[str]:
    return [argument.name for argument in func._schema.arguments]


@functools.cache
def _generator_overload(func: Any) -> Any:
    """Return the overload of ``func`` that takes its arguments and a generator as well; None if there is none."""
    wanted = sorted([*_arguments(func), "generator"])
    for name in func.overloadpacket.overloads():
        other = getattr(func.overloadpacket, name)
        types = {argument.name: str(argument.type) for argument in func._schema.arguments}
        alike = all(types.get(argument.name, "") in ("", str(argument.type)) for argument in other._schema.arguments)
        if sorted(_arguments(other)) == wanted and alike:
            return other
    return None


def _device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device:
    device = kwargs.get("device")
    if device is None:
        device = next((leaf.device for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)), None)
    if device is None:
        device = torch.get_default_device()
    return number_device(device)


# State of a policy and its program besides the weights, which a check must leave as it was.
#
# That is the policy's queues, its mode, and the state of the generators that draw its noise.

_OF_MODULES = frozenset(vars(nn.Module()))
_ELSEWHERE = frozenset({"config", "rtc_processor"})  # the same in all calls, or handled where RTC is
_PLAIN = (bool, int, float, str, bytes, type(None))


def copy_containers(value: Any) -> Any:
    """Return ``value`` with its tensors and containers copied; what is neither is the same object."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, deque):
        return deque(map(copy_containers, value), value.maxlen)
    if isinstance(value, dict):
        return {key: copy_containers(entry) for key, entry in value.items()}
    if type(value) in (list, tuple, set):
        return type(value)(map(copy_containers, value))
    return value


def policy_state(policy: nn.Module) -> dict[str, object]:
    """Return the data that ``policy`` itself holds, by name: queues, counters, a history. They are not copied."""
    return {name: value for name, value in vars(policy).items() if _is_state(policy, name, value)}


def copied_state(policy: nn.Module) -> dict[str, object]:
    """Return a copy of `state_of`."""
    copies = {}
    for name, value in policy_state(policy).items():
        if _own_object(policy, value):
            other = copy.copy(value)
            vars(other).update({key: copy_containers(entry) for key, entry in vars(value).items()})
            copies[name] = other
        else:
            copies[name] = copy_containers(value)
    return copies


def _is_state(policy: nn.Module, name: str, value: object) -> bool:
    if name in _OF_MODULES or name in _ELSEWHERE:
        return False
    return isinstance(value, (*_PLAIN, Tensor, deque, dict, list, tuple, set)) or _own_object(policy, value)


def _own_object(policy: nn.Module, value: object) -> bool:
    if isinstance(value, nn.Module | Tensor) or callable(value) or not hasattr(value, "__dict__"):
        return False
    return type(value).__module__.rpartition(".")[0] == type(policy).__module__.rpartition(".")[0]


@contextlib.contextmanager
def preserve_policy_state(policy: nn.Module, device: torch.device) -> Iterator[None]:
    """Inside, the policy may be called and reset, and generators seeded; after it all of that is as it was before."""
    modes = {module: module.training for module in policy.modules()}
    before, working = policy_state(policy), copied_state(policy)
    vars(policy).update(working)
    try:
        with generators_restored(device):
            yield
    finally:
        for name in set(policy_state(policy)) - set(before):
            del vars(policy)[name]
        vars(policy).update(before)
        for module, mode in modes.items():
            module.training = mode
