"""A policy of random weights for a rehearsal, made for the robot: for who has no checkpoint yet."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.robots import RobotConfig
from lerobot.utils.constants import ACTION, OBS_IMAGES, OBS_STATE
from lerobot.utils.import_utils import register_third_party_plugins

from strobe.core.errors import UserError
from strobe.core.families.registry import building
from strobe.lerobot.flags.lerobot_flags import joined, parsed, patched_arguments
from strobe.lerobot.policies import inputs, lerobot_policies
from strobe.lerobot.policies.standins import stand_ins
from strobe.lerobot.quiet import quiet
from strobe.rehearse.emulator.arms import arms_of, cameras_of, with_ports
from strobe.rollout.loops import rollout
from strobe.rollout.loops.header import MADE
from strobe.rollout.loops.rollout import COMMAND

_EYE = "--robot.cameras={front: {type: opencv, index_or_path: 0, fps: 30, width: 640, height: 480}}"
SOURCE = "random weights"  # the folder's name, which is where the report says that the policy is from


@dataclass
class _Body:
    robot: RobotConfig


def _robot(body: Sequence[str]) -> Any:
    with patched_arguments(body, COMMAND):
        return parsed(body, _Body, lambda _: None, COMMAND).robot


@contextlib.contextmanager
def with_policy(argv: Sequence[str]) -> Iterator[list[str]]:
    """Lend lerobot-rollout a policy of random weights where ``argv`` names a type instead of a checkpoint.

    ``--policy.type=KIND`` makes one for the robot's cameras and joints, tiny unless ``--policy.size=full``; further
    ``--policy.*`` flags are its config's. The same flags make the same weights. Yields the arguments that
    lerobot-rollout is to get. A robot without cameras gets one, ``front``.

    Raises:
        UserError: an unknown type or field, a type and a path, a robot that LeRobot does not know.
    """
    given = [argument.partition("=")[::2] for argument in joined(argv, COMMAND)]
    of_policy = {name.removeprefix("--policy."): value for name, value in given if name.startswith("--policy.")}
    if "type" not in of_policy:
        yield list(argv)
        return
    if "path" in of_policy:
        raise UserError("--policy.path and --policy.type exclude each other: a checkpoint has its type in its config")
    made = [f"--policy.{name}={value}" for name, value in of_policy.items()]
    kind, size = of_policy.pop("type"), of_policy.pop("size", "tiny")
    if size not in ("tiny", "full"):
        raise UserError(f"--policy.size={size}: 'full' or 'tiny'")
    rest = [f"{name}={value}" for name, value in given if not name.startswith("--policy.")]
    body = [argument for argument in with_ports(rest) if argument.startswith("--robot.")]
    if not any(argument.startswith("--robot.type=") for argument in body):
        raise UserError("name the robot: --robot.type=so101_follower (or another)")
    register_third_party_plugins()  # cameras that a recorded run replays are one
    assert rollout.loop is not None  # robots and cameras register themselves when LeRobot's script is imported
    robot = _robot(body)
    if not cameras_of(robot):  # LeRobot refuses most policies that see nothing
        rest.append(_EYE)
        robot = _robot([*body, _EYE])
    joints = sum(len(arm.kind.models) for arm in arms_of(robot, "robot").values())
    with tempfile.TemporaryDirectory(prefix="strobe-policy-") as temporary:
        folder = Path(temporary) / SOURCE
        device = [f"--device={value}" for name, value in given if name == "--device"]
        config = lerobot_policies.config_from_type(
            kind, [*device, *(f"--{name}={value}" for name, value in of_policy.items())]
        )
        config.input_features = {
            f"{OBS_IMAGES}.{name}": PolicyFeature(FeatureType.VISUAL, (3, camera.height, camera.width))
            for name, (_, _, camera) in cameras_of(robot).items()
        } | {OBS_STATE: PolicyFeature(FeatureType.STATE, (joints,))}
        config.output_features = {ACTION: PolicyFeature(FeatureType.ACTION, (joints,))}
        loaded = lerobot_policies.load(config, inputs.synthetic(config), size=size)  # type: ignore[arg-type]
        with quiet():
            for part in (loaded.policy, loaded.preprocessor, loaded.postprocessor):
                part.save_pretrained(folder)
        (folder / MADE).write_text(json.dumps(made))
        del loaded
        # Some configs hold no tiny size: LeRobot makes such a policy again as it was made here.
        tiny = size == "tiny"
        with stand_ins(kind, random_weights=True, tiny=tiny), building(config, tiny):
            yield [*rest, f"--policy.path={folder}"]
