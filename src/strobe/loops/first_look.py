"""The first observation of lerobot-rollout, looked at before the arm has torque where its driver allows that.

LeRobot's drivers open bus and cameras in ``connect`` and call ``configure`` last, which gives the servos torque. An
observation is read right before that. Where a driver connects in another way, LeRobot's own first observation is taken:
`build_rollout_context` reads it once the robot is connected, before any action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import Any

from strobe.core.timeline.layers import Call
from strobe.loops.instrument import Instrument

Look = Callable[[Mapping[str, Any], bool], object]


class FirstLook(Instrument):
    """Calls ``look`` once with the first observation of the rollout that runs in the block.

    It wraps the classes' methods and not the robot's, since a cycle of references would keep its torque on.

    Args:
        look: takes the observation and whether the driver had yet to configure the arm. What it raises is dropped: the
            robot is connected, and nothing may keep LeRobot from putting it to rest. None: nothing is looked at.
    """

    def __init__(self, look: Look | None) -> None:
        super().__init__()
        self._look, self._before_torque = look, False
        self._own = ExitStack()  # closed with the first observation: the loop pays nothing

    def __enter__(self) -> FirstLook:
        if self._look is not None:
            from lerobot.rollout import context

            self._body.callback(self._own.close)
            self._wrap(context, "make_robot_from_config", self._make_robot)
        return self

    def _make_robot(self, inner: Call, *args: object, **kwargs: object) -> object:
        robot = inner(*args, **kwargs)
        for name, around in (("configure", self._configure_robot), ("get_observation", self._get_first_observation)):
            if hasattr(type(robot), name):
                self._wrap(type(robot), name, around, self._own)
        return robot

    def _configure_robot(self, inner: Call, robot: Any, *args: object, **kwargs: object) -> object:
        with suppress(Exception):  # LeRobot's own first observation is looked at instead
            if robot.is_connected:  # bus and cameras
                self._before_torque = True
                robot.get_observation()
        self._before_torque = False
        return inner(robot, *args, **kwargs)

    def _get_first_observation(self, inner: Call, robot: Any, *args: object, **kwargs: object) -> object:
        observation: Any = inner(robot, *args, **kwargs)
        self._own.close()
        with suppress(Exception):
            assert self._look is not None
            self._look(observation, self._before_torque)
        return observation
