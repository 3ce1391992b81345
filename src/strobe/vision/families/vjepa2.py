"""V-JEPA 2 (Assran et al. 2025, transformers' ``models/vjepa2``): every block is a part at the first level.

The blocks are the main parts of a backbone, so they come one level earlier than those of a policy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from strobe.core.families.capabilities import Backbone
from strobe.core.families.family import Family, always, transformer
from strobe.core.timeline.probe import Hook, Probe

# The published models (Assran et al. 2025, arXiv:2506.09985), with the numbers of transformers' own
# models/vjepa2/convert_vjepa2_to_hf.py; the predictor is the same for all of them, and the config's default.
_GIANT = {"hidden_size": 1408, "num_hidden_layers": 40, "num_attention_heads": 22, "mlp_ratio": 48 / 11}
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {
        "hidden_size": 64,
        "num_hidden_layers": 6,
        "num_attention_heads": 2,
        "crop_size": 96,
        "frames_per_clip": 4,
        "pred_hidden_size": 32,
        "pred_num_hidden_layers": 2,
        "pred_num_attention_heads": 2,
    },
    "large": {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16},
    "huge": {"hidden_size": 1280, "num_hidden_layers": 32, "num_attention_heads": 16},
    "giant": _GIANT,
    "giant-384": {**_GIANT, "crop_size": 384},
}


probes = always(
    # The predictor is always built, and runs only on request.
    Probe.module("encoder", "encoder"),
    Probe.module("encoder.embeddings", "patch embedding"),
    *transformer("encoder.layer", "block", attention="attention", level=1),
    Probe.module("encoder.layernorm", "final norm"),
    Probe.module("predictor", "predictor", optional=True),
    Probe.module("predictor.embeddings", "embeddings", level=2, optional=True),
    Probe.module("predictor.layer.*", "block {}", level=2, optional=True),
    Probe.module("predictor.layer.*.attention", "attention", level=3, optional=True),
    Probe.module("predictor.layer.*.mlp", "MLP", level=3, optional=True),
)


def preprocessing(model: Any) -> tuple[Callable[[Tensor], Tensor], list[Hook]]:
    """Return its own processor, frames (clips, frames, 3, height, width) → pixels, and the probes on its steps."""
    from transformers import VJEPA2VideoProcessor

    files = ("video_preprocessor_config.json", "preprocessor_config.json")
    options: dict[str, Any] = {"crop_size": model.img_size}
    if model.folder is not None and any((model.folder / name).is_file() for name in files):
        processor: Any = VJEPA2VideoProcessor.from_pretrained(model.folder, **options)
    else:
        processor = VJEPA2VideoProcessor(**options)
    hooks = [Hook(processor, "resize", "resize"), Hook(processor, "center_crop", "centre crop")]
    hooks += [Hook(processor, "rescale_and_normalize", "rescale and normalise")]
    built_for = model.img_size

    def prepare(frames: Tensor) -> Tensor:
        side, sizes = model.img_size, {}
        if side != built_for:  # in its own proportion of resizing to cropping
            sizes = {"size": {"shortest_edge": int(side * 256 / 224)}, "crop_size": {"height": side, "width": side}}
        return processor(list(frames), return_tensors="pt", **sizes)["pixel_values_videos"]

    return prepare, hooks


def grid_sizes(module: nn.Module, side: int, patch: int) -> list[tuple[Any, str, Any]]:
    """Return the sizes of patch grids to change: rotary positions are computed from the grid's side in every call."""
    grids = [child for child in module.modules() if isinstance(vars(child).get("grid_size"), int)]
    return [(grid, "grid_size", side // patch) for grid in grids]


FAMILY = Family(
    "vjepa2",
    ("vjepa2",),
    probes,
    costly=("encoder",),
    capabilities=(
        Backbone(
            sizes=SIZES,
            usual="large",
            # The published configs say 64, which the encoder does not depend on; 16 is the profiling guide's number.
            frames=16,
            predictor="skip_predictor",
            preprocessing=preprocessing,
            resized=grid_sizes,
        ),
    ),
)
