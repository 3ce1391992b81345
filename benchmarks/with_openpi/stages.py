"""The stages of LeRobot's and of openpi's pi0.5 on the way to a chunk: both have the methods that are looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

Arrays = dict[str, np.ndarray]


def stages(model: Any, sample: Callable[[], torch.Tensor]) -> Arrays:
    """Return name → array of each stage of one chunk, in the order in which they are computed.

    Args:
        model: LeRobot's `PI05Pytorch` or openpi's `PI0Pytorch`.
        sample: makes one chunk with it.
    """
    arrays: Arrays = {}
    images, steps = 0, 0
    masks: list[torch.Tensor] = []

    def embed_image(tokens: Any, *_: Any, **__: Any) -> None:
        nonlocal images
        images += 1
        arrays[f"vision tokens of image {images}"] = _array(tokens)

    def embed_prefix(embedded: Any, *_: Any, **__: Any) -> None:
        tokens, mask, _order = embedded
        masks.append(mask[0])
        arrays["prefix tokens"] = _array(tokens[:, mask[0]])

    def transformers(output: Any, *_: Any, **given: Any) -> None:
        if given["inputs_embeds"][1] is None:
            for name, value in zip(("keys", "values"), _last_layer(output[1]), strict=True):
                arrays[f"prefix cache, {name} of the last layer"] = _array(value[:, :, masks[-1]])

    def denoise_step(velocity: Any, *_: Any, **__: Any) -> None:
        nonlocal steps
        steps += 1
        arrays[f"velocity of denoising step {steps}"] = _array(velocity)

    joint = model.paligemma_with_expert
    with (
        _observe_calls(joint, "embed_image", embed_image),
        _observe_calls(model, "embed_prefix", embed_prefix),
        _observe_calls(joint, "forward", transformers),
        _observe_calls(model, "denoise_step", denoise_step),
    ):
        arrays["actions"] = _array(sample())
    return arrays


@contextmanager
def _observe_calls(owner: Any, name: str, look: Callable[..., None]) -> Iterator[None]:
    """Have ``look`` called with what each call of a method returns, and with its arguments."""
    inner = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        output = inner(*args, **kwargs)
        look(output, *args, **kwargs)
        return output

    setattr(owner, name, call)
    try:
        yield
    finally:
        delattr(owner, name)


def _last_layer(cache: Any) -> tuple[Any, Any]:
    """Return keys and values, (B, heads, tokens, width). transformers 5 keeps them in layers, 4.53 in two lists."""
    layers = getattr(cache, "layers", None)
    return (layers[-1].keys, layers[-1].values) if layers else (cache.key_cache[-1], cache.value_cache[-1])


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().float().cpu().numpy().copy()
