"""The policy of a recorded rollout, built again as ``lerobot-rollout`` builds it, for the observations of that run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event
from types import SimpleNamespace
from typing import TYPE_CHECKING
from unittest import mock

from lerobot.configs.parser import PLUGIN_DISCOVERY_SUFFIX
from lerobot.rollout import context as lerobot_context
from lerobot.rollout.configs import BaseStrategyConfig

from strobe.core.errors import UserError
from strobe.lerobot.flags.lerobot_flags import join_flag_values, patched_arguments
from strobe.lerobot.quiet import quiet
from strobe.loops.header import Header
from strobe.loops.observations import Observations
from strobe.loops.rollout import COMMAND, rollout_config
from strobe.loops.virtual_rollout import EngineInputs, RecordedWorld
from strobe.rehearse.stage import lend_policy
from strobe.replay.results import PLAIN

if TYPE_CHECKING:
    from strobe.core.subjects.subject import Observation

SETTINGS = ("robot.", "inference.", "device", "task", "rename_map")  # and `PLAIN`
SLACK_NS = 1_000_000  # a replayed tick that begins as much before the recorded one is that one


@dataclass
class FedPolicy:
    """A policy that gets recorded observations, and how old they were.

    Attributes:
        behind_ns: by which the oldest of them was recorded before the moment that it stands for.
    """

    inputs: EngineInputs
    behind_ns: int = 0


def merge_arguments(recorded: Sequence[str], changes: Sequence[str]) -> list[str]:
    """Return ``lerobot-rollout``'s arguments as recorded, with ``changes`` in place of those of the same name."""
    named = {argument.split("=", 1)[0]: argument for argument in join_flag_values(recorded, COMMAND)}
    named |= {argument.split("=", 1)[0]: argument for argument in join_flag_values(changes, COMMAND)}
    if any(name.startswith("--inference.rtc.") or name == "--inference.queue_threshold" for name in named):
        kind = named.get("--inference.type", "--inference.type=sync")
        if kind.endswith("=sync"):
            of_rtc = [name for name in named if name.startswith("--inference.") and name != "--inference.type"]
            named = {name: argument for name, argument in named.items() if name not in of_rtc}
    return list(named.values())


def fed_policy(
    header: Header,
    changes: Sequence[str],
    observations: Observations,
    origin: int,
    around: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
) -> FedPolicy:
    """Load the policy of the run that ``header`` is of, with its processors, for a robot that gives ``observations``.

    Args:
        changes: arguments of ``lerobot-rollout`` in place of those recorded, ``--name=value``.
        origin: the start of the first tick, on the clock of the observations, in nanoseconds.
        around: is open while it loads, such as `deploy.with_recipe`.

    Raises:
        UserError: the run does not tell its policy, it is a stranger's and ``changes`` do not name one, it is not
            there, or LeRobot refuses the arguments.
    """
    with _arguments(header, changes) as arguments:
        return _build(arguments, header, changes, observations, origin, around)


def names_policy(header: Header, changes: Sequence[str]) -> str | None:
    """Return the reason why the policy of the run is not loaded; None if it may be loaded.

    A policy that only a stranger's file names is not loaded, since its code and its processors would run.
    """
    if header.is_own or any(change.startswith("--policy.path=") for change in changes):
        return None
    named = f": --policy.path={header.policy}, if you trust that" if header.policy and not header.made else ""
    return f"this run was not recorded by you on this machine, so name its policy yourself{named}"


def _arguments(header: Header, changes: Sequence[str]) -> contextlib.AbstractContextManager[list[str]]:
    if header.arguments is None:
        raise UserError("the run does not name its policy: an older Strobe recorded it; record it again")
    if why := names_policy(header, changes):
        raise UserError(why)
    recorded = join_flag_values(header.arguments, COMMAND)
    if not header.is_own:
        recorded = [argument for argument in recorded if _is_setting(argument)]
    if not header.made or any(change.startswith("--policy.path") for change in changes):
        own = [f"--policy.path={header.policy}"] if header.is_own else []
        return contextlib.nullcontext(merge_arguments(recorded, [*own, *changes]))
    others = [argument for argument in recorded if not argument.startswith("--policy.")]
    return lend_policy(merge_arguments([*others, *header.made], changes))


def _is_setting(argument: str) -> bool:
    name = argument.removeprefix("--").partition("=")[0]
    return (name in PLAIN or name.startswith(SETTINGS)) and not name.endswith((PLUGIN_DISCOVERY_SUFFIX, "config_path"))


def _build(
    arguments: list[str],
    header: Header,
    changes: Sequence[str],
    observations: Observations,
    origin: int,
    around: Callable[[], contextlib.AbstractContextManager[object]],
) -> FedPolicy:
    config = rollout_config(arguments)
    config.strategy, config.teleop, config.dataset, config.use_torch_compile = BaseStrategyConfig(), None, None, False
    robot = _robot(header, observations)
    try:
        with (
            around(),
            quiet(),
            patched_arguments(arguments, COMMAND),
            mock.patch.object(lerobot_context, "make_robot_from_config", return_value=robot),
        ):
            built = lerobot_context.build_rollout_context(config, Event())
    except (ValueError, NotImplementedError, OSError, ImportError, RuntimeError) as error:
        raise UserError(f"the policy cannot be loaded: {str(error).splitlines()[0][:250]}") from None
    process = built.processors.robot_observation_processor
    changed = {change.split("=", 1)[0]: change.split("=", 1)[1] for change in join_flag_values(changes, COMMAND)}

    def observe(moment: int) -> Callable[[], Observation]:
        def observation() -> Observation:
            raw, recorded = observations.latest_observation(origin + moment + SLACK_NS)
            fed.behind_ns = max(fed.behind_ns, origin + moment - recorded)
            return process(raw)

        return observation

    fed = FedPolicy(
        EngineInputs(
            policy=built.policy.policy,
            preprocessor=built.policy.preprocessor,
            postprocessor=built.policy.postprocessor,
            robot=built.hardware.robot_wrapper,
            hw_features=built.data.hw_features,
            dataset_features=built.data.dataset_features,
            keys=built.data.ordered_action_keys,
            task=changed.get("--task", header.task or ""),
            device=str(config.device),
            world=RecordedWorld(observe),
        )
    )
    return fed


def _robot(header: Header, observations: Observations) -> object:
    features = header.observation_features
    return SimpleNamespace(
        name=header.robot,
        robot_type=header.robot,
        cameras={},
        is_connected=True,
        observation_features={name: float if shape is None else tuple(shape) for name, shape in features.items()},
        action_features=dict.fromkeys(header.action_features, float),
        connect=lambda: None,
        get_observation=lambda: observations.latest_observation(0)[0],
    )
