"""A digest that distinguishes two policies' weights without reading all of them."""

from __future__ import annotations

import hashlib

import torch

_EACH = 64  # numbers of each tensor: training changes them all


def fingerprint(module: torch.nn.Module) -> str:
    """Return a digest of the names and shapes of ``module``'s parameters and buffers, and the first numbers of each."""
    seen = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        first = tensor.detach().flatten()[:_EACH].to("cpu")
        seen.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        seen.update(first.to(torch.float64).numpy().tobytes() if not first.is_complex() else b"")
    return seen.hexdigest()[:16]
