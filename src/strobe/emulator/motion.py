"""How a servo's shaft moves: by its motor, or by a hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Motion:
    """First-order motion: the speed is the distance to the goal over ``lag_s``, held to ``max_speed``."""

    max_speed: float = 3000.0  # counts/s
    lag_s: float = 0.04

    def after(self, distance: float, seconds: float, max_speed: float) -> float:
        """Distance to the goal that is left after ``seconds`` (counts), in closed form."""
        size = abs(distance)
        near = max_speed * self.lag_s  # from here on the speed falls with the distance
        if size > near:
            straight = min(seconds, (size - near) / max_speed)
            size -= straight * max_speed
            seconds -= straight
        return math.copysign(size * math.exp(-seconds / self.lag_s), distance)


_SWING = 0.2  # of a joint's range, from end to end
_SWING_S = 4.0


def swinging(low: int, high: int, begun: float) -> Callable[[float], float]:
    """Return the motion of a hand that swings a joint slowly about the middle of its range.

    Args:
        low, high: the joint's range, in counts.
        begun: seconds, when the joint is in the middle.
    """

    def at(now: float) -> float:
        return (low + high) / 2 + _SWING / 2 * (high - low) * math.sin(math.tau * (now - begun) / _SWING_S)

    return at
