"""V-JEPA 2 (Assran et al. 2025, transformers' ``models/vjepa2``): every block is a part at the first level.

The blocks are what one asks a backbone about, so that they come before the levels of a policy's parts do.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from strobe.subjects.anatomy import Anatomy, blocks, register
from strobe.timeline.probe import Probe


def probes(_: nn.Module) -> Sequence[Probe]:
    """The predictor is there always, and run only where it is asked for."""
    return [
        Probe.module("encoder", "encoder"),
        Probe.module("encoder.embeddings", "patch embedding"),
        blocks("encoder.layer", "block", level=1),
        Probe.module("encoder.layer.*.attention", "attention", level=2),
        Probe.module("encoder.layer.*.mlp", "MLP", level=2),
        Probe.module("encoder.layernorm", "final norm"),
        Probe.module("predictor", "predictor", optional=True),
        Probe.module("predictor.embeddings", "embeddings", level=2, optional=True),
        Probe.module("predictor.layer.*", "block {}", level=2, optional=True),
        Probe.module("predictor.layer.*.attention", "attention", level=3, optional=True),
        Probe.module("predictor.layer.*.mlp", "MLP", level=3, optional=True),
    ]


register(Anatomy("vjepa2", ("vjepa2",), probes))
