"""How many examples a property is tried on: all of them in `make test`, a tenth in `make check`."""

from __future__ import annotations

from hypothesis import settings

ALL = 100  # of a property that asks for no number of its own; Hypothesis's default
FEWEST = 5


def scale_count(count: int) -> int:
    """Return ``count``, scaled as the profile that is loaded scales `ALL`, and at least `FEWEST`."""
    return max(FEWEST, count * settings().max_examples // ALL)
