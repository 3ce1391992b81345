"""The first observation of a rollout is looked at once, before the driver gives its arm torque where it can be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from lerobot.rollout import context

from strobe.loops.first_look import FirstLook


class Arm:
    """Connects as LeRobot's SO arms do: torque comes last, in `configure`."""

    def __init__(self, connected: bool = True, readable: bool = True) -> None:
        self.is_connected, self.readable = connected, readable
        self.torque, self.reads = False, 0

    def configure(self) -> None:
        self.torque, self.readable = True, True

    def get_observation(self) -> dict[str, float]:
        if not self.readable:
            raise ConnectionError("no status packet")
        self.reads += 1
        return {"torque": float(self.torque)}


def run(arm: Any, monkeypatch: pytest.MonkeyPatch, look: Any) -> None:
    """Connect and observe as ``build_rollout_context`` does, then three ticks."""
    monkeypatch.setattr(context, "make_robot_from_config", lambda _: arm)
    with FirstLook(look):
        made: Any = context.make_robot_from_config(None)  # pyright: ignore[reportArgumentType]
        made.configure()
        for _ in range(4):
            made.get_observation()


@pytest.mark.parametrize(
    ("arm", "before"), [(Arm(), True), (Arm(connected=False), False), (Arm(readable=False), False)]
)
def test_one_observation_is_looked_at_and_before_torque_where_it_can_be_read(
    arm: Arm, before: bool, monkeypatch: pytest.MonkeyPatch
):
    own, seen = vars(Arm).copy(), []
    run(arm, monkeypatch, lambda observation, before_torque: seen.append((observation["torque"], before_torque)))
    assert seen == [(float(not before), before)]
    assert arm.torque
    assert arm.reads == 4 + before
    assert vars(Arm) == own, "nothing stays on the driver"


def test_a_look_that_fails_does_not_keep_the_arm_from_its_run(monkeypatch: pytest.MonkeyPatch):
    def raise_planted_error(_: Mapping[str, Any], __: bool) -> None:
        raise RuntimeError("as planted")

    arm = Arm()
    run(arm, monkeypatch, raise_planted_error)
    assert arm.reads == 5


def test_without_a_look_nothing_is_read(monkeypatch: pytest.MonkeyPatch):
    arm = Arm()
    run(arm, monkeypatch, None)
    assert arm.reads == 4
