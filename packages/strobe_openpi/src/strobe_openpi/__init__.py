"""Exact treatments of Strobe on openpi's own PyTorch pi0 and pi0.5: `apply_treatments`."""

from strobe_openpi.treatments import EXACT, apply_treatments

__all__ = ["EXACT", "apply_treatments"]
