"""lerobot-train's arguments as the config that it would train with: LeRobot's own parsing and checks.

LeRobot's parser reads ``sys.argv`` in places and keeps what it found in module variables; both are lent to it here and
taken back.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
import sys
from collections.abc import Iterator, Sequence
from unittest import mock

from draccus.help_formatter import SimpleHelpFormatter
from draccus.wrappers import DataclassWrapper
from draccus.wrappers.suppressing_argparse import SuppressingArgumentParser
from lerobot.configs import parser
from lerobot.configs.train import TrainPipelineConfig

from strobe.errors import UserError, nearest
from strobe.subjects import policies
from strobe.subjects.inputs import locate_dataset

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
    policies.known_types()  # policies and plug-ins register themselves when they are imported
    arguments = _joined(argv)
    _require_subject(arguments)
    if measuring:
        arguments = _without_writing(arguments)
    with lent(arguments):
        config = _parsed(arguments)
    for name, value, least in (("batch_size", config.batch_size, 1), ("num_workers", config.num_workers, 0)):
        if value < least:
            raise UserError(f"--{name}={value}: must be at least {least}")
    if not config.dataset.streaming:
        locate_dataset(config.dataset.root, config.dataset.repo_id)
    return config


@contextlib.contextmanager
def lent(argv: Sequence[str]) -> Iterator[None]:
    """While open, LeRobot's parser sees ``argv`` as the process's arguments, and nothing of earlier parses."""
    with (
        mock.patch.object(sys, "argv", ["lerobot-train", *argv]),
        mock.patch.dict(parser._config_path_args, clear=True),
        mock.patch.dict(parser._config_yaml_overrides, clear=True),
    ):
        yield


def _parsed(arguments: Sequence[str]) -> TrainPipelineConfig:
    def validated(config: TrainPipelineConfig) -> TrainPipelineConfig:
        config.validate()
        return config

    validated.__annotations__ = {"config": TrainPipelineConfig}  # the class itself: LeRobot's parser looks there
    said = io.StringIO()
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # building a config warns of every device that it falls back from
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            return parser.wrap()(validated)()  # type: ignore[call-arg, return-value]
    except SystemExit as error:  # draccus and LeRobot have said why on stderr, not always the cause
        raise UserError(_unknown_flag(arguments) or _cause(error) or _complaint(said.getvalue())) from None
    except UserError:
        raise
    except Exception as error:  # LeRobot's own checks raise many kinds, all of them about the user's input
        raise UserError(_unknown_flag(arguments) or _one_line(str(error))) from None
    finally:
        logging.disable(before)


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
        policies.config_from_path(given["policy.path"], overrides)
    elif "policy.type" in given:
        if not brings_plugin:  # it may bring the type, and is loaded by LeRobot's parser
            policies.config_from_type(given["policy.type"], overrides)
    elif not any(name.startswith("reward_model.") for name in given):
        raise UserError("which policy? --policy.type=act (or another) for a new one, or --policy.path=FOLDER_OR_HUB_ID")
    if "dataset.repo_id" not in given:
        example = "local/mine, whatever its name" if "dataset.root" in given else "OWNER/NAME"
        raise UserError(f"which dataset? lerobot-train wants --dataset.repo_id={example}")


def _joined(argv: Sequence[str]) -> list[str]:
    """``--a 1 --b`` as ``--a=1``, ``--b=true``. Raises UserError for what is neither a flag nor a flag's value."""
    joined: list[str] = []
    open_flag = False
    for argument in argv:
        if argument.startswith("--"):
            joined.append(argument)
            open_flag = "=" not in argument
        elif open_flag:
            joined[-1] += f"={argument}"
            open_flag = False
        else:
            raise UserError(f"'{argument}' is not a flag; lerobot-train's flags start with --")
    return [argument if "=" in argument else f"{argument}=true" for argument in joined]


def _without_writing(arguments: Sequence[str]) -> list[str]:
    kept = [argument for argument in arguments if argument.removeprefix("--").split("=", 1)[0] not in _WRITES]
    subject = "reward_model" if any(argument.startswith("--reward_model.") for argument in kept) else "policy"
    return [*kept, *(f"--{name}={value}" for name, value in _WRITES.items() if value and name.startswith(subject))]


def _unknown_flag(arguments: Sequence[str]) -> str | None:
    """A sentence on the first flag that LeRobot does not have, given the policy, environment, … that are chosen."""
    offered = SuppressingArgumentParser(formatter_class=SimpleHelpFormatter)
    parser._register_scoped_actions(DataclassWrapper(TrainPipelineConfig), offered, arguments)
    known = {option for action in offered._actions for option in action.option_strings}
    known |= {"--policy.path", "--reward_model.path", "--config_path"}
    for argument in arguments:
        name = argument.split("=", 1)[0]
        by_plugin = name.endswith(parser.PLUGIN_DISCOVERY_SUFFIX)
        if name not in known and not by_plugin:
            return f"lerobot-train has no flag {name}: {nearest(name, known, many=0)}".removesuffix(": known: , …")
    return None


def _cause(error: BaseException) -> str | None:
    """The complaint of a config's own check, which draccus wraps; None without one."""
    inner = error.__context__
    while inner is not None and inner.__cause__ is not None:
        inner = inner.__cause__
    return _one_line(str(inner)) if isinstance(inner, ValueError) and inner is not error.__context__ else None


def _complaint(said: str) -> str:
    """The one line of a parser's output that says what is wrong."""
    lines = [line.split("error:", 1)[1] for line in said.splitlines() if "error:" in line]
    return _one_line(lines[-1] if lines else said)


def _one_line(text: str) -> str:
    plain = re.sub(r"\s+", " ", text).strip() or "lerobot-train refuses these arguments"
    return plain if len(plain) <= 300 else f"{plain[:300]}…"
