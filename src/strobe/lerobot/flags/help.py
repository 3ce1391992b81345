"""The help on the flags of a subject: a policy, a policy of another project, a backbone."""

from __future__ import annotations

from strobe.core.cli.help import about, fields_of
from strobe.lerobot.policies.options import FactoryOptions, PolicyOptions


def subject_help(*, model: bool) -> list[str]:
    """Return the help on ``--policy.*`` and, for commands that take them, on other subjects."""
    return [policy_help(), factory_help(), model_help()] if model else [policy_help()]


def policy_help() -> str:
    """Return the help on ``--policy.*``, which many commands take."""
    flags = [
        line for item in fields_of(PolicyOptions, ["overrides"]) for line in about(PolicyOptions, item, "--policy.")
    ]
    more = ["  --policy.FIELD", "      Any field of its config, as LeRobot spells it."]
    return "\n".join(["Flags of the policy:", *flags, *more])


def factory_help() -> str:
    """Return the help on ``--policy.factory``."""
    flags = fields_of(FactoryOptions, ["path", "type"])
    lines = [line for item in flags for line in about(FactoryOptions, item, "--policy.")]
    return "\n".join(["A policy of another project, in its place:", *lines])


def model_help() -> str:
    """Return the help on ``--model.*``."""
    from strobe.lerobot.flags.subject_flags import ModelFlags

    flags = [line for item in fields_of(ModelFlags, ["overrides"]) for line in about(ModelFlags, item, "--model.")]
    more = ["  --model.FIELD", "      Any field of its config."]
    return "\n".join(["Flags of a vision or video backbone, in a policy's place:", *flags, *more])
