"""One file per policy family; importing it registers its anatomy."""

from strobe.subjects.anatomies import act, diffusion, pi, smolvla

__all__ = ["act", "diffusion", "pi", "smolvla"]
