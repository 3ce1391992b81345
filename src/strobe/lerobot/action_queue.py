"""The queue in which a policy of LeRobot holds the actions of the coming control ticks."""

from __future__ import annotations

from typing import Any


def actions_left(policy: Any) -> int:
    """Return the number of actions that the policy holds for the next ticks; -1 if it does not say."""
    queue = getattr(policy, "_action_queue", None)
    if queue is None:
        queue = (getattr(policy, "_queues", None) or {}).get("action")
    return -1 if queue is None else len(queue)
