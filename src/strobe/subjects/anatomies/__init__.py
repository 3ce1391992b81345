"""One file per family; importing it registers its anatomy."""

from strobe.subjects.anatomies import act, diffusion, pi, smolvla, vjepa2

__all__ = ["act", "diffusion", "pi", "smolvla", "vjepa2"]
