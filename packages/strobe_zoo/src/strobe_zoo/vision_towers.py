"""Vision towers by themselves: of Qwen2-VL, Qwen2.5-VL, Qwen3-VL (transformers' ``models/qwen*_vl``) and SigLIP 2.

Every block is a part at the first level. A frame of a clip is an image of its own, as for a policy.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from strobe.core.families.capabilities import Backbone
from strobe.core.families.family import Family, transformer
from strobe.core.timeline.probe import Hook, Probe

# Type → the class of its tower; then the published sizes, by the numbers of their configs on the Hub.
_TOWERS = {
    "qwen2_vl": "Qwen2VisionTransformerPretrainedModel",
    "qwen2_5_vl": "Qwen2_5_VisionTransformerPretrainedModel",
    "qwen3_vl": "Qwen3VLVisionModel",
}
_TINY = {"depth": 3, "num_heads": 2}
_QWEN25: dict[str, Any] = {"depth": 32, "hidden_size": 1280, "num_heads": 16, "intermediate_size": 3420}
_QWEN3: dict[str, Any] = {"depth": 24, "hidden_size": 1024, "intermediate_size": 4096, "num_heads": 16,
                          "deepstack_visual_indexes": [5, 11, 17]}  # fmt: skip
SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "qwen2_vl": {"tiny": {**_TINY, "embed_dim": 64, "hidden_size": 64}, "2b": {"hidden_size": 1536},
                 "7b": {"hidden_size": 3584}},
    "qwen2_5_vl": {
        "tiny": {**_TINY, "hidden_size": 64, "intermediate_size": 128, "out_hidden_size": 64,
                 "fullatt_block_indexes": [1]},
        "3b": {**_QWEN25, "out_hidden_size": 2048}, "7b": {**_QWEN25, "out_hidden_size": 3584},
    },
    "qwen3_vl": {
        "tiny": {**_TINY, "hidden_size": 64, "intermediate_size": 128, "out_hidden_size": 64,
                 "deepstack_visual_indexes": [1]},
        "2b": {**_QWEN3, "out_hidden_size": 2048}, "4b": {**_QWEN3, "out_hidden_size": 2560},
        "8b": {"out_hidden_size": 4096},
    },
}  # fmt: skip


def probes(tower: object) -> Sequence[Probe]:
    """Patches, blocks, and the merger that makes a token of four patches."""
    return [
        Probe.module("patch_embed", "patch embedding"),
        *transformer("blocks", "block", attention="attn", level=1),
        Probe.module("merger", "merger"),
        Probe.module("deepstack_merger_list.*", "deep merger {}", optional=True),
        Probe.method("", "rot_pos_emb", "rotary positions", optional=True),
        Probe.method("", "get_window_index", "windows", optional=True),
        Probe.method("", "fast_pos_embed_interpolate", "position embedding", optional=True),
    ]


def tower(kind: str) -> type[nn.Module]:
    """Return the class of the tower of a type."""
    return getattr(importlib.import_module(f"transformers.models.{kind}.modeling_{kind}"), _TOWERS[kind])


def preprocessing(model: Any) -> tuple[Any, list[Hook]]:
    """Return its own image processor, frames (clips, frames, 3, height, width) → the tower's arguments, and probes.

    Images keep their proportions; they have about as many pixels as a square of ``img_size``.
    """
    from transformers import Qwen2VLImageProcessor

    config, pixels = model.config, model.img_size**2
    processor: Any = Qwen2VLImageProcessor(
        patch_size=config.patch_size,
        merge_size=config.spatial_merge_size,
        temporal_patch_size=config.temporal_patch_size,
    )
    hooks = [Hook(processor, "resize", "resize"), Hook(processor, "rescale_and_normalize", "rescale and normalise")]

    def prepare(frames: Tensor) -> dict[str, Tensor]:
        size = {"shortest_edge": pixels, "longest_edge": pixels}
        batch = processor(list(frames.flatten(0, 1)), size=size, return_tensors="pt")
        return {"hidden_states": batch["pixel_values"], "grid_thw": batch["image_grid_thw"]}

    return prepare, hooks


def _family(kind: str, usual: str) -> Family:
    return Family(
        kind,
        (kind,),
        probes,
        costly=("blocks",),
        capabilities=(
            Backbone(
                sizes=SIZES[kind],
                usual=usual,
                frames=1,
                preprocessing=preprocessing,
                tower=tower,
                weights=r"^(model\.)?visual\.",
            ),
        ),
    )


# SigLIP 2's vision tower with a free aspect ratio, NaFlex (Tschannen et al. 2025, transformers' ``models/siglip2``).
# Its variants with a fixed size are of transformers' type ``siglip_vision_model``.

# The published sizes, by the numbers of their configs on the Hub: base is the config's default.
_SIGLIP2_SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 128},
    "base": {},
    "so400m": {"hidden_size": 1152, "num_hidden_layers": 27, "num_attention_heads": 16, "intermediate_size": 4304},
}


def _siglip2_probes(model: object) -> Sequence[Probe]:
    root = "vision_model." if hasattr(model, "vision_model") else ""
    return [
        Probe.module(f"{root}embeddings", "patch embedding"),
        *transformer(f"{root}encoder.layers", "block", level=1),
        Probe.module(f"{root}post_layernorm", "final norm"),
        Probe.module(f"{root}head", "pooling head", optional=True),
    ]


def _siglip2_preprocessing(model: Any) -> tuple[Any, list[Hook]]:
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


SIGLIP2 = Family(
    "siglip2",
    ("siglip2_vision_model",),
    _siglip2_probes,
    costly=("encoder.layers",),
    capabilities=(Backbone(sizes=_SIGLIP2_SIZES, usual="base", preprocessing=_siglip2_preprocessing),),
)

QWEN2_VL, QWEN2_5_VL, QWEN3_VL = _family("qwen2_vl", "2b"), _family("qwen2_5_vl", "3b"), _family("qwen3_vl", "2b")
