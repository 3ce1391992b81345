"""The action that a simulator executes in a control tick for which none was sent. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from lerobot.envs.configs import EnvConfig

Action = NDArray[np.float32]  # (action dim,), as the simulator takes it

# Types of environments whose actions are movements → the dimension that is a gripper's goal, which is no movement.
MOVEMENTS: dict[str, int | None] = {
    "metaworld": 3, "metaworld_state": 3, "libero": 6, "libero_plus": 6, "robocasa": None,
}  # fmt: skip
POSITIONS = ("pusht", "aloha", "robotwin", "vlabench")


@dataclass(frozen=True)
class Hold:
    """The action of a tick for which none was sent.

    Args:
        kind: 'last' repeats the last action, as a servo holds its goal; 'zero' moves nothing.
        gripper: with 'zero', the dimension that still gets its last value.
        known: whether the meaning of the environment's actions is known.
    """

    kind: Literal["last", "zero"]
    gripper: int | None = None
    known: bool = True

    def action(self, last: Action | None, rest: Action | None, size: int) -> Action | None:
        """Return the action, (``size``,); None if no action is known that keeps the simulator still.

        Args:
            last: the last action that was sent; None before the first.
            rest: the position at the start of the episode, as an action; None if unknown.
        """
        if self.kind == "last":
            return rest if last is None else last
        held = np.zeros(size, np.float32)
        if self.gripper is not None and last is not None:
            held[self.gripper] = last[self.gripper]
        return held


def choose_hold(env: EnvConfig, kind: str = "") -> Hold:
    """Return how ``env`` (LeRobot's ``EnvConfig``) is held: by ``kind``, or as fits its actions if ``kind`` is ''."""
    moves = env.type in MOVEMENTS and getattr(env, "control_mode", "") != "absolute"
    known = moves or env.type in (*MOVEMENTS, *POSITIONS)
    if (kind or ("zero" if moves else "last")) == "last":
        return Hold("last", None, known)
    return Hold("zero", MOVEMENTS.get(env.type) if moves else None, known)
