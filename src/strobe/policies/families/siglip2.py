"""SigLIP 2's vision tower with a free aspect ratio, NaFlex (Tschannen et al. 2025, transformers' ``models/siglip2``).

Its variants with a fixed size are of transformers' type ``siglip_vision_model``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from strobe.policies.families.family import Backbone, Family, transformer
from strobe.timeline.probe import Hook, Probe

# The published sizes, by the numbers of their configs on the Hub: base is the config's default.
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 128},
    "base": {},
    "so400m": {"hidden_size": 1152, "num_hidden_layers": 27, "num_attention_heads": 16, "intermediate_size": 4304},
}


def probes(model: Any) -> Sequence[Probe]:
    """Patches, blocks, and the head that pools the tokens."""
    root = "vision_model." if hasattr(model, "vision_model") else ""
    return [
        Probe.module(f"{root}embeddings", "patch embedding"),
        *transformer(f"{root}encoder.layers", "block", level=1),
        Probe.module(f"{root}post_layernorm", "final norm"),
        Probe.module(f"{root}head", "pooling head", optional=True),
    ]


def preprocessing(model: Any) -> tuple[Any, list[Hook]]:
    """Return its own image processor, frames (clips, frames, 3, height, width) → the model's arguments, and probes.

    An image keeps its proportions and has as many patches as a square of ``img_size`` at most.
    """
    from transformers import Siglip2ImageProcessor

    processor: Any = Siglip2ImageProcessor(patch_size=model.config.patch_size)
    hooks = [Hook(processor, "resize", "resize"), Hook(processor, "rescale_and_normalize", "rescale and normalise")]
    patches = (model.img_size // model.config.patch_size) ** 2

    def prepare(frames: Tensor) -> dict[str, Tensor]:
        return dict(processor(list(frames.flatten(0, 1)), max_num_patches=patches, return_tensors="pt"))

    return prepare, hooks


FAMILY = Family(
    "siglip2",
    ("siglip2_vision_model",),
    probes,
    costly=("encoder.layers",),
    backbone=Backbone(sizes=SIZES, usual="base", preprocessing=preprocessing),
)
