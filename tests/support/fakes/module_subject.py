"""A subject that is one module, for treatments of modules."""

from __future__ import annotations

import torch
from torch import nn

from strobe.core.families.family import Family
from strobe.core.subjects.subject import Abilities


class Bare(Abilities):
    """A subject of one module."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.device = torch.device("cpu")
        self.info = type("Info", (), {"name": "bare", "kind": "bare"})
        self.family = Family("modules", ())
