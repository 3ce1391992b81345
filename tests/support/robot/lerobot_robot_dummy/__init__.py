"""A robot and a leader without hardware, as a LeRobot plug-in: six joints, two cameras, a file of what it was told.

``LEROBOT_DUMMY_TINY`` names a type of policy whose tokenizer is stood in for, so that tiny ones load without the Hub.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from lerobot.robots import Robot, RobotConfig
from lerobot.teleoperators import Teleoperator, TeleoperatorConfig

JOINTS = [f"joint_{number}" for number in range(6)]
CAMERAS = ("front", "wrist")
SIDE = 64

_open = ExitStack()
if os.environ.get("LEROBOT_DUMMY_TINY"):
    from strobe.lerobot.policies.standins import stand_ins

    _open.enter_context(stand_ins(os.environ["LEROBOT_DUMMY_TINY"], random_weights=True, tiny=True))


@RobotConfig.register_subclass("dummy")
@dataclass(kw_only=True)
class DummyRobotConfig(RobotConfig):
    """``told``: where to write each action as a line of JSON, its time first; ``side``: pixels of its images."""

    told: Path | None = None
    side: int = SIDE


class Device:
    """Connected when it is told so, and in need of no calibration."""

    _connected = False

    @property
    def is_connected(self) -> bool:
        return self._connected

    @property
    def is_calibrated(self) -> bool:
        return True

    def connect(self, calibrate: bool = True) -> None:
        self._connected = True

    def calibrate(self) -> None:
        pass

    def configure(self) -> None:
        pass

    def disconnect(self) -> None:
        self._connected = False


class DummyRobot(Device, Robot):
    """Its observations depend on the number of the observation alone."""

    config_class = DummyRobotConfig
    name = "dummy"

    def __init__(self, config: DummyRobotConfig) -> None:
        super().__init__(config)
        self.cameras: dict[str, Any] = {}
        self._told, self._tick, self._connected, self._side = config.told, 0, False, config.side

    @property
    def observation_features(self) -> dict[str, Any]:
        return {f"{joint}.pos": float for joint in JOINTS} | dict.fromkeys(CAMERAS, (self._side, self._side, 3))

    @property
    def action_features(self) -> dict[str, Any]:
        return {f"{joint}.pos": float for joint in JOINTS}

    def get_observation(self) -> dict[str, Any]:
        drawn = np.random.default_rng(self._tick)
        self._tick += 1
        joints = {f"{joint}.pos": float(drawn.uniform(-90, 90)) for joint in JOINTS}
        shape = (self._side, self._side, 3)
        return joints | {camera: drawn.integers(0, 255, shape, dtype=np.uint8) for camera in CAMERAS}

    def send_action(self, action: dict[str, Any]) -> dict[str, Any]:
        if self._told is not None:
            with self._told.open("a") as file:
                line = [time.time(), *(float(action[f"{joint}.pos"]) for joint in JOINTS)]
                file.write(json.dumps(line) + "\n")
        return action


@TeleoperatorConfig.register_subclass("dummy_leader")
@dataclass(kw_only=True)
class DummyLeaderConfig(TeleoperatorConfig):
    """A leader that takes ``delay_s`` for each answer."""

    delay_s: float = 0.0


class DummyLeader(Device, Teleoperator):
    """Its joints count its answers."""

    config_class = DummyLeaderConfig
    name = "dummy_leader"

    def __init__(self, config: DummyLeaderConfig) -> None:
        super().__init__(config)
        self._config, self._asked = config, 0

    @property
    def action_features(self) -> dict[str, Any]:
        return {f"{joint}.pos": float for joint in JOINTS}

    @property
    def feedback_features(self) -> dict[str, Any]:
        return {}

    def get_action(self) -> dict[str, Any]:
        time.sleep(self._config.delay_s)
        self._asked += 1
        return {f"{joint}.pos": float(self._asked) for joint in JOINTS}

    def send_feedback(self, feedback: dict[str, Any]) -> None:
        pass
