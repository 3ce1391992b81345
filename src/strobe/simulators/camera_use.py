"""Which observations of an episode a policy looks at.

LingBot-VA, for one, has an action queue and looks at images in between all the same: so it is told only of policies
whose code was read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from strobe.lerobot.action_queue import actions_left

# Types of LeRobot 0.6's policies whose select_action was read: it takes queued actions, and in a call of the model it
# looks at the newest observation, or at those that its queues hold.
_LOOK_AT_CALLS = {
    "act", "diffusion", "eo1", "evo1", "fastwam", "groot", "molmoact2", "multi_task_dit", "pi0", "pi05", "pi0_fast",
    "smolvla", "tdmpc", "vla_jepa", "vqbet", "wall_x", "xvla",
}  # fmt: skip


class Looks:
    """Tells which observations the policy looks at."""

    def __init__(self, policy: Any, steps: Iterable[Any], early: int = 0) -> None:
        """Tell of ``policy``.

        Args:
            steps: those of all processors that observations go through.
            early: by how many ticks an observation may be older when it is looked at.
        """
        self._policy, self._early = policy, early
        self._told = _looks_at_calls(policy) and all(_keeps_no_image(step) for step in steps)

    def due(self) -> bool:
        """Whether the observation that comes next is looked at; asked after an action was taken for this tick."""
        if not self._told or getattr(self._policy.config, "temporal_ensemble_coeff", None) is not None:
            return True
        # The call comes when the queue is empty. -1, no queue: every time.
        return actions_left(self._policy) < _observations(self._policy) + self._early


def _looks_at_calls(policy: Any) -> bool:
    """Whether the policy acts by a ``select_action`` of LeRobot's that was read, its own or inherited."""
    where = getattr(getattr(type(policy), "select_action", None), "__module__", "")
    parts = where.split(".")
    return parts[:2] == ["lerobot", "policies"] and len(parts) > 2 and parts[2] in _LOOK_AT_CALLS


def _keeps_no_image(step: Any) -> bool:
    return type(step).__module__.split(".")[0] in ("lerobot", "strobe")


def _observations(policy: Any) -> int:
    """How many observations up to the newest one a call looks at, as the config and the policy's queues say it."""
    config = policy.config
    deltas = getattr(config, "observation_delta_indices", None) or (0,)
    queues = (queue for name, queue in (getattr(policy, "_queues", None) or {}).items() if name != "action")
    held = (getattr(queue, "maxlen", None) or 1 for queue in queues)
    return max(getattr(config, "n_obs_steps", None) or 1, 1 - min(deltas), *held, 1)
