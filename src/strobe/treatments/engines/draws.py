"""Numbers that a policy draws at random, as inputs of a program: the same noise gives the same actions in torch.

A program that is exported has one order of work. So the steps of a noise scheduler are laid out one after the other,
and what each of them draws comes in with the other inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, NamedTuple
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

NoiseKind = Literal["normal", "uniform"]
_DRAWS: dict[Any, NoiseKind] = {
    torch.randn: "normal",
    torch.randn_like: "normal",
    torch.normal: "normal",
    torch.rand: "uniform",
    torch.rand_like: "uniform",
}


class Draw(NamedTuple):
    """One draw: its distribution, standard normal or uniform from 0 to 1, and its values."""

    kind: NoiseKind
    values: Tensor

    def draw_again(self) -> Tensor:
        """Draw values of the same shape and dtype from torch's generator."""
        make = torch.randn if self.kind == "normal" else torch.rand
        return make(self.values.shape, dtype=self.values.dtype, device=self.values.device)


class RecordedDraws(TorchFunctionMode):
    """Notes what is drawn, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.draws: list[Draw] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        if function in _DRAWS:
            self.draws.append(Draw(_DRAWS[function], made.detach().clone()))
        return made


class DrawnBefore(TorchFunctionMode):
    """Gives what was drawn before, in its order, in place of a draw, while a program is exported.

    A conversion to the dtype that is there is left out: a program has two operators for it, which take time to build.
    OpenVINO has no rule for memory that is not written yet (SmolVLA's rotary embedding), so it holds zeros.
    """

    def __init__(self, noise: Sequence[Tensor]) -> None:
        super().__init__()
        self._noise = list(noise)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in _DRAWS:
            return self._noise.pop(0)
        if function is Tensor.to and _changes_nothing(*args, **(kwargs or {})):
            return args[0]
        return (torch.zeros_like if function is torch.empty_like else function)(*args, **(kwargs or {}))


def _changes_nothing(tensor: Tensor, *to: object, **named: object) -> bool:
    there = tensor.dtype, tensor.device
    return all(isinstance(value, torch.dtype | torch.device) and value in there for value in (*to, *named.values()))


@contextmanager
def schedulers_laid_out(owners: Iterable[object]) -> Iterator[None]:
    """Let the noise schedulers of diffusers that ``owners`` have go through their steps as plain numbers."""
    with ExitStack() as stack:
        for owner in owners:
            scheduler: Any = getattr(owner, "noise_scheduler", None)
            if scheduler is not None:
                scheduler.set_timesteps(getattr(owner, "num_inference_steps", None) or len(scheduler.timesteps))
                plain = [int(step) for step in scheduler.timesteps]
                stack.enter_context(mock.patch.object(scheduler, "timesteps", plain))
                stack.enter_context(mock.patch.object(scheduler, "set_timesteps"))
                if hasattr(scheduler, "previous_timestep"):  # DDPM's looks for the place of a step in a tensor
                    before = dict(zip(plain, [*plain[1:], -1], strict=True))
                    stack.enter_context(mock.patch.object(scheduler, "previous_timestep", before.__getitem__))
        yield
