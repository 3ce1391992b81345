"""State of a policy and its program besides the weights, which a check must leave as it was.

That is the policy's queues, its mode, and the state of the generators that draw its noise.
"""

from __future__ import annotations

import contextlib
import copy
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from strobe.devices.random_state import put_back

_OF_MODULES = frozenset(vars(nn.Module()))
_ELSEWHERE = frozenset({"config", "rtc_processor"})  # the same in all calls, or handled where RTC is
_PLAIN = (bool, int, float, str, bytes, type(None))


def copied(value: Any) -> Any:
    """Return ``value`` with its tensors and containers copied; what is neither is the same object."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, deque):
        return deque(map(copied, value), value.maxlen)
    if isinstance(value, dict):
        return {key: copied(one) for key, one in value.items()}
    if type(value) in (list, tuple, set):
        return type(value)(map(copied, value))
    return value


def state_of(policy: nn.Module) -> dict[str, Any]:
    """Return the data that ``policy`` itself holds, by name: queues, counters, a history. They are not copied."""
    return {name: value for name, value in vars(policy).items() if _is_state(policy, name, value)}


def copied_state(policy: nn.Module) -> dict[str, Any]:
    """Return a copy of `state_of`."""
    found = {}
    for name, value in state_of(policy).items():
        if _own_object(policy, value):
            other = copy.copy(value)
            vars(other).update({key: copied(one) for key, one in vars(value).items()})
            found[name] = other
        else:
            found[name] = copied(value)
    return found


def _is_state(policy: nn.Module, name: str, value: Any) -> bool:
    if name in _OF_MODULES or name in _ELSEWHERE:
        return False
    return isinstance(value, (*_PLAIN, Tensor, deque, dict, list, tuple, set)) or _own_object(policy, value)


def _own_object(policy: nn.Module, value: Any) -> bool:
    """Whether ``value`` is of a class of the policy's own package, such as ACT's ensemble over time."""
    if isinstance(value, nn.Module | Tensor) or callable(value) or not hasattr(value, "__dict__"):
        return False
    return type(value).__module__.rpartition(".")[0] == type(policy).__module__.rpartition(".")[0]


@contextlib.contextmanager
def kept(policy: nn.Module, device: torch.device) -> Iterator[None]:
    """Inside, the policy may be called and reset, and generators seeded; after it all of that is as it was before."""
    modes = {module: module.training for module in policy.modules()}
    before, working = state_of(policy), copied_state(policy)
    vars(policy).update(working)
    try:
        with put_back(device):
            yield
    finally:
        for name in set(state_of(policy)) - set(before):
            del vars(policy)[name]
        vars(policy).update(before)
        for module, mode in modes.items():
            module.training = mode
