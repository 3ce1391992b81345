"""Tell which observations of an episode a policy looks at.

Only policies whose code was read are skipped for. LingBot-VA, for one, has an action queue and still looks at the
images in between.
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
        """Watch the queue of ``policy``.

        Args:
            steps: the steps of all processors that observations go through.
            early: ticks by which an observation may be older when the policy looks at it.
        """
        self._policy, self._early = policy, early
        self._predictable = _looks_at_calls(policy) and all(_keeps_no_image(step) for step in steps)

    def looks_next(self) -> bool:
        """Return whether the policy looks at the next observation. Call it after this tick's action was taken."""
        if not self._predictable or getattr(self._policy.config, "temporal_ensemble_coeff", None) is not None:
            return True
        # The call comes when the queue is empty. -1, no queue: every time.
        return actions_left(self._policy) < _observations(self._policy) + self._early


def _looks_at_calls(policy: Any) -> bool:
    """Return whether the policy's ``select_action``, own or inherited, is one of LeRobot's that was read."""
    where = getattr(getattr(type(policy), "select_action", None), "__module__", "")
    parts = where.split(".")
    return parts[:2] == ["lerobot", "policies"] and len(parts) > 2 and parts[2] in _LOOK_AT_CALLS


def _keeps_no_image(step: Any) -> bool:
    return type(step).__module__.split(".")[0] in ("lerobot", "strobe")


def _observations(policy: Any) -> int:
    """Return how many observations, up to the newest, a call looks at, by the config and the policy's queues."""
    config = policy.config
    deltas = getattr(config, "observation_delta_indices", None) or (0,)
    queues = (queue for name, queue in (getattr(policy, "_queues", None) or {}).items() if name != "action")
    held = (getattr(queue, "maxlen", None) or 1 for queue in queues)
    return max(getattr(config, "n_obs_steps", None) or 1, 1 - min(deltas), *held, 1)
