"""Features that have not run yet on the hardware that they are for. Help texts name them; no behaviour depends on it.

A feature that has run on a card is taken out of ``NOT_YET``, here and nowhere else.
"""

from __future__ import annotations

from typing import Literal

Feature = Literal[
    "the clock and memory of a device",
    "CUDA graphs",
    "TF32",
    "fp8",
    "int8 on CUDA",
    "TensorRT",
    "compile=reduce-overhead",
    "memory snapshots",
    "NVTX ranges",
    "cudnn=benchmark",
    "preprocessing=device",
    "autocast in inference",
]

# All others ran on an H100 (docs/hardware.md).
NOT_YET: frozenset[Feature] = frozenset(
    {"TensorRT", "cudnn=benchmark", "preprocessing=device", "autocast in inference", "NVTX ranges"}
)

KEY = "strobe.untried"  # key of a flag's metadata: the features that it stands for


def describe_untried(*features: Feature) -> str | None:
    """Return in words which of ``features`` have not run on a GPU yet."""
    missing = [feature for feature in features if feature in NOT_YET]
    return f"has not run on a GPU yet: {', '.join(missing)}" if missing else None
