"""lerobot-train's arguments as the config that it would train with: LeRobot's own parsing and checks."""

from __future__ import annotations

from collections.abc import Sequence

from lerobot.configs import parser
from lerobot.configs.train import TrainPipelineConfig

from strobe.errors import UserError
from strobe.lerobot.flags import joined, parsed, patched_arguments
from strobe.policies import lerobot_policies
from strobe.policies.dataset_frames import locate_dataset

__all__ = ["patched_arguments", "train_config"]

# What would write or push, and what a measurement puts in its place.
_WRITES = {
    "output_dir": None,
    "save_checkpoint_to_hub": None,
    "policy.push_to_hub": "false",
    "reward_model.push_to_hub": "false",
}


def train_config(argv: Sequence[str], *, measuring: bool = False) -> TrainPipelineConfig:
    """The config that ``lerobot-train`` makes of ``argv``, as valid as it has it before it trains.

    Args:
        argv: lerobot-train's arguments, without its name: ``--dataset.repo_id=… --policy.type=…``, ``--policy.path``,
            ``--config_path``, plug-ins' ``--….discover_packages_path``.
        measuring: nothing will be trained, so flags that write or push are set aside: ``output_dir`` may exist, and
            ``policy.repo_id`` is not asked for.

    Raises:
        UserError: an unknown flag (with the nearest known one), a value of the wrong kind or that LeRobot refuses, no
            policy, no dataset or one that is not there, a device that this machine has not.
    """
    lerobot_policies.known_types()  # policies and plug-ins register themselves when they are imported
    arguments = joined(argv)
    _require_subject(arguments)
    if measuring:
        arguments = _without_writing(arguments)
    with patched_arguments(arguments):
        config = parsed(arguments, TrainPipelineConfig, TrainPipelineConfig.validate)
    for name, value, least in (("batch_size", config.batch_size, 1), ("num_workers", config.num_workers, 0)):
        if value < least:
            raise UserError(f"--{name}={value}: must be at least {least}")
    if not config.dataset.streaming:
        locate_dataset(config.dataset.root, config.dataset.repo_id)
    return config


def _require_subject(arguments: Sequence[str]) -> None:
    """Raises UserError, before LeRobot's longer words, for what is missing and for a policy or device not there."""
    given = dict(argument.removeprefix("--").split("=", 1) for argument in arguments)
    if "help" in given:
        raise UserError("`lerobot-train --help` lists its flags; Strobe's own stand before the --")
    if "config_path" in given:
        return
    overrides = parser.get_cli_overrides("policy", arguments) or []
    brings_plugin = parser.parse_plugin_args(parser.PLUGIN_DISCOVERY_SUFFIX, arguments)
    if "policy.path" in given:
        lerobot_policies.config_from_path(given["policy.path"], overrides)
    elif "policy.type" in given:
        if not brings_plugin:  # it may bring the type, and is loaded by LeRobot's parser
            lerobot_policies.config_from_type(given["policy.type"], overrides)
    elif not any(name.startswith("reward_model.") for name in given):
        raise UserError("which policy? --policy.type=act (or another) for a new one, or --policy.path=FOLDER_OR_HUB_ID")
    if "dataset.repo_id" not in given:
        example = "local/mine, whatever its name" if "dataset.root" in given else "OWNER/NAME"
        raise UserError(f"which dataset? lerobot-train wants --dataset.repo_id={example}")


def _without_writing(arguments: Sequence[str]) -> list[str]:
    others = [argument for argument in arguments if argument.removeprefix("--").split("=", 1)[0] not in _WRITES]
    subject = "reward_model" if any(argument.startswith("--reward_model.") for argument in others) else "policy"
    return [*others, *(f"--{name}={value}" for name, value in _WRITES.items() if value and name.startswith(subject))]
