"""lerobot-rollout's arguments as the config that it would run with: LeRobot's own parsing and checks."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lerobot.rollout import RolloutConfig
from lerobot.utils.import_utils import register_third_party_plugins

from strobe.errors import UserError
from strobe.lerobot.flags import joined, parsed, patched_arguments
from strobe.loops import rollout
from strobe.policies import lerobot_policies

COMMAND = "lerobot-rollout"


def rollout_config(argv: Sequence[str]) -> RolloutConfig:
    """The config that ``lerobot-rollout`` makes of ``argv``; nothing is connected or loaded.

    Raises:
        UserError: an unknown flag (with the nearest known one), a value of the wrong kind or that LeRobot refuses, no
            robot, no policy or one that is not there.
    """
    # Policies register themselves when they are imported; robots, when LeRobot's script is.
    lerobot_policies.known_types()
    assert rollout.loop is not None
    register_third_party_plugins()
    arguments = joined(argv, COMMAND)
    given = dict(argument.removeprefix("--").split("=", 1) for argument in arguments)
    if "help" in given:
        raise UserError(f"`{COMMAND} --help` lists its flags; Strobe's own stand before the --")
    if "config_path" not in given:
        if "robot.type" not in given:
            raise UserError("which robot? --robot.type=so101_follower --robot.port=… (or another)")
        if "policy.path" not in given:
            raise UserError("which policy? --policy.path=FOLDER_OR_HUB_ID")
        lerobot_policies.config_from_path(given["policy.path"], [])
    with patched_arguments(arguments, COMMAND):
        config = parsed(arguments, RolloutConfig, lambda _: None, COMMAND)
    if not 0 < config.fps < math.inf:
        raise UserError(f"--fps={config.fps:g}: must be above 0")
    if config.interpolation_multiplier < 1:
        raise UserError(f"--interpolation_multiplier={config.interpolation_multiplier}: must be at least 1")
    return config
