"""A camera that replays recordings, for LeRobot's own commands, which import this module by its name."""

from lerobot_camera_strobe.camera import ReplayCamera
from lerobot_camera_strobe.config import ReplayCameraConfig
from lerobot_camera_strobe.stream import StampedFrame

__all__ = ["ReplayCamera", "ReplayCameraConfig", "StampedFrame"]
