"""From a method of the policy to the region that is captured: prefix, denoising loop, the whole sampling."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_flatten

from strobe.policies.policy_subject import PolicySubject
from strobe.treatments.graphs.regions import Regions
from strobe.treatments.parts import PREFIX

LOOP = "denoising loop"  # the section around a replay of all steps


def always(call: Callable[..., Any], regions: Regions, label: str) -> Callable[..., Any]:
    def captured(*args: Any, **kwargs: Any) -> Any:
        return regions.run(label, lambda given: call(*given[0], **given[1]), (args, kwargs))

    return captured


def prefix(call: Callable[..., Any], regions: Regions) -> Callable[..., Any]:
    def captured(*args: Any, **kwargs: Any) -> Any:
        embeds = kwargs.get("inputs_embeds")
        if embeds is None or len(embeds) != 2 or embeds[1] is not None:  # a denoising step, or training
            return call(*args, **kwargs)
        return regions.run(PREFIX, lambda given: call(*given[0], **given[1]), (args, kwargs))

    return captured


def chunk(call: Callable[..., Any], regions: Regions, subject: PolicySubject) -> Callable[..., Any]:
    def captured(*args: Any, **kwargs: Any) -> Any:
        if _steps_aside(regions, subject, kwargs.get("prev_chunk_left_over")):
            return call(*args, **kwargs)
        args = tuple(_with_tensors(value) for value in args)
        return regions.run("chunk", lambda given: call(*given[0], **given[1]), (args, kwargs))

    return captured


def loop(call: Callable[..., Any], regions: Regions, subject: PolicySubject) -> Callable[..., Any]:
    """Around a policy module's ``euler_integrate``; another policy's loop passes through."""
    model = subject.policy.model

    def captured(denoise: Any, noise: Tensor, num_steps: int, **options: Any) -> Any:
        cells = _cells(denoise)
        if not any(value is model for value in cells.values()):
            return call(denoise, noise, num_steps, **options)
        if options.get("rtc_enabled") and _steps_aside(regions, subject, options.get("prev_chunk_left_over")):
            return call(denoise, noise, num_steps, **options)
        processor = options.pop("rtc_processor", None)

        def run(given: Any) -> Any:
            inside = _rebound(denoise, given["cells"])
            return call(inside, given["noise"], num_steps, rtc_processor=processor, **given["options"])

        return regions.run(LOOP, run, {"cells": cells, "noise": noise, "options": options}, num_steps)

    return captured


def _cells(call: Any) -> dict[str, Any]:
    """Return the variables that a closure captured, by name; none for anything but a function."""
    if not isinstance(call, FunctionType):
        return {}
    return {
        name: cell.cell_contents for name, cell in zip(call.__code__.co_freevars, call.__closure__ or (), strict=True)
    }


def _rebound(call: FunctionType, cells: dict[str, Any]) -> FunctionType:
    """Return ``call`` with other captured variables: in LeRobot's loop they hold the KV cache and the masks."""
    closure = tuple(_cell(cells[name]) for name in call.__code__.co_freevars)
    rebound = FunctionType(call.__code__, call.__globals__, call.__name__, call.__defaults__, closure)
    rebound.__kwdefaults__ = call.__kwdefaults__
    return rebound


def _cell(value: Any) -> Any:
    return (lambda: value).__closure__[0]  # type: ignore[index]


def _with_tensors(value: Any) -> Any:
    """Return a batch without entries that hold no tensor: no model reads them, but each task would need a capture."""
    if type(value) is not dict:
        return value
    return {
        name: kept for name, kept in value.items() if any(isinstance(leaf, Tensor) for leaf in tree_flatten(kept)[0])
    }


def _steps_aside(regions: Regions, subject: PolicySubject, previous: Tensor | None) -> bool:
    """Return whether this call is guided by RTC in a way that no graph holds, and so runs without one.

    Raises UserError where RTC was on before the graph was put on: then a graph was asked for that would never run. RTC
    that is turned on later, as a rollout does, must not end the robot's loop.
    """
    processor: Any = getattr(subject.policy, "rtc_processor", None)
    if processor is None or previous is None:
        return False
    if "denoise_step" not in vars(processor):
        return regions.step_aside(
            "RTC's autograd cannot be captured in a CUDA graph: put guidance='closed form' before graph"
        )
    if processor.is_debug_enabled():
        return regions.step_aside("RTC's debug tracking does not see into a CUDA graph: leave out --rtc.debug")
    return False
