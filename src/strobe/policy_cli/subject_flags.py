"""Which policy or model: the ``--policy.*`` and ``--model.*`` flags, taken out of the arguments and checked.

draccus does not know them: ``--policy.path``, which LeRobot takes out before it too, ``--policy.size``, ``--model.*``.
"""

from __future__ import annotations

import contextlib
import difflib
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from strobe.core.cli.bounds import check_bounds, minimum_bound
from strobe.core.cli.flags import flag_values
from strobe.core.cli.help import describe_field, flag_fields
from strobe.core.cli.live import importing
from strobe.core.cli.parse import Hint, MissingFlagError, UnknownFlagError, check_names, format_argument, pairs
from strobe.core.errors import UserError, nearest
from strobe.lerobot.flags.former_flags import hint as former_flag
from strobe.lerobot.flags.lazy_flags import kinds, options
from strobe.lerobot.policies.options import (
    FactoryOptions,
    ModelOptions,
    PolicyOptions,
    check_checkpoint,
    checkpoint_policy_type,
    split_factory,
)
from strobe.lerobot.refusals import first_line
from strobe.lerobot.schema.registries import BACKBONE_FLAGS, POLICY, check_backbone, config_fields, require_one_package
from strobe.lerobot.schema.shapes import build, nest_fields
from strobe.lerobot.schema.source import UnreadableSourceError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

POLICY_NAMES = ("--policy.path", "--policy.type", "--policy.size", "--policy.factory")
MODEL_NAMES = ("--model.path", "--model.type", "--model.size")
DTYPES = ("float32", "bfloat16", "float16")  # a model's
# torch's words for types of devices (c10/core/DeviceType.cpp).
DEVICES = (
    "cpu", "cuda", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve", "fpga", "maia", "xla", "lazy", "vulkan", "mps",
    "xpu", "hpu", "meta", "ipu", "mtia", "privateuseone",
)  # fmt: skip


@dataclass
class ModelFlags(ModelOptions):
    """`ModelOptions` with bounds."""

    # Height and width of its images in pixels.
    img_size: int | None = field(default=None, metadata=minimum_bound(1))
    # Frames in a clip.
    num_frames: int | None = field(default=None, metadata=minimum_bound(1))


SubjectFlags = PolicyOptions | ModelFlags | FactoryOptions


def subject_values(subject: SubjectFlags, config: DataclassInstance) -> dict[str, object]:
    """Return the flags of a config by name, those of its ``subject`` first."""
    return {"model" if isinstance(subject, ModelFlags) else "policy": subject, **flag_values(config)}


def split_subject(argv: Sequence[str]) -> tuple[SubjectFlags, list[str]]:
    """Take the ``--policy.*`` or ``--model.*`` flags out of ``argv``; ``--x 1`` and ``--x=1`` are the same.

    Nothing need be named: `require_subject` asks for that, once the other flags are checked.

    Raises:
        UserError: a policy and a model, two of one, an unknown size, a flag without a value.
    """
    policy: list[tuple[str, str]] = []
    model: list[tuple[str, str]] = []
    rest: list[str] = []
    for name, value in pairs(argv):
        prefix, _, setting = name.partition(".")
        if prefix not in ("--policy", "--model"):
            rest.append(format_argument(name, value))
            continue
        if name == "--model.predictor" and value is None:
            value = "true"
        if value is None or not setting:
            raise UserError(
                f"{name} needs a value, such as {prefix}.type={'act' if prefix == '--policy' else 'vjepa2'}"
            )
        (policy if prefix == "--policy" else model).append((setting, value))
    if policy and model:
        raise UserError("--policy.* and --model.* exclude each other: use one of the two")
    if model:
        return _model_flags(model), rest
    if any(setting == "factory" for setting, _ in policy):
        return _factory_flags(policy), rest
    return _policy_flags(policy), rest


def _policy_flags(given: Iterable[tuple[str, str]]) -> PolicyOptions:
    flags = PolicyOptions()
    for setting, value in given:
        if setting in ("path", "type", "size"):
            setattr(flags, setting, value)
        elif setting == "pretrained_path":
            flags.path = value
        else:
            flags.overrides.append(f"--{setting}={value}")
    if flags.path and flags.type:
        raise UserError(
            "--policy.path and --policy.type exclude each other: remove --policy.type, because the checkpoint's config "
            "has the type"
        )
    if flags.size not in ("full", "tiny"):
        raise UserError(f"--policy.size={flags.size}: 'full' or 'tiny'")
    return flags


def _factory_flags(given: Iterable[tuple[str, str]]) -> FactoryOptions:
    flags = FactoryOptions()
    for setting, value in given:
        if setting != "factory":
            raise UserError(
                f"--policy.{setting} has no effect with --policy.factory: remove it, or set it in the function"
            )
        flags.factory = value
    split_factory(flags.factory)
    return flags


def _model_flags(given: Iterable[tuple[str, str]]) -> ModelFlags:
    flags = ModelFlags()
    for setting, value in given:
        if setting in ("path", "type", "size", "dtype"):
            setattr(flags, setting, value)
        elif setting in ("img_size", "num_frames"):
            try:
                setattr(flags, setting, int(value))
            except ValueError:
                raise UserError(f"--model.{setting}={value}: must be a whole number") from None
        elif setting == "predictor":
            if value.lower() not in ("true", "false"):
                raise UserError(f"--model.predictor={value}: true or false")
            flags.predictor = value.lower() == "true"
        else:
            flags.overrides.append(f"--{setting}={value}")
    if flags.path and flags.type:
        raise UserError(
            "--model.path and --model.type exclude each other: remove --model.type, because the model's config has the "
            "type"
        )
    check_bounds(flags, "model.")
    return flags


def require_subject(flags: SubjectFlags) -> None:
    """Raises UserError if no policy or model is named, with the flag that a misspelt one resembles."""
    if isinstance(flags, FactoryOptions) or flags.path or flags.type:
        return
    model = isinstance(flags, ModelFlags)
    prefix, offered = ("--model.", MODEL_NAMES) if model else ("--policy.", POLICY_NAMES)
    for override in flags.overrides:
        name = override.removeprefix("--").partition("=")[0]
        if not _is_policy_field(name) and (said := former_flag(f"{prefix}{name}", lambda _: False)):
            raise UnknownFlagError(f"{prefix}{name}", said)
        # Without the prefix, which would make any two flags alike.
        close = difflib.get_close_matches(name, [flag.removeprefix(prefix) for flag in offered], n=1, cutoff=0.6)
        if close and (model or not _is_policy_field(name)):
            meant = f"{prefix}{close[0]}"
            raise UnknownFlagError(f"{prefix}{name}", Hint(f"did you mean {meant}?", (meant,)))
    backbone, policy = "--model.type=vjepa2", "--policy.path=FOLDER_OR_HUB_ID"
    if model:
        said = f"name the model: {backbone} for random weights, or --model.path=FOLDER_OR_HUB_ID"
        raise MissingFlagError(said, backbone)
    said = f"name the policy: {policy}, or --policy.type=act for random weights; or a backbone: {backbone}"
    raise MissingFlagError(said, policy)


def subject_fields(flags: SubjectFlags) -> Iterator[str]:
    """Yield the flags of the policy or the model that is named, and of either where none is."""
    if isinstance(flags, FactoryOptions):
        return
    model = isinstance(flags, ModelFlags)
    if model or not (flags.path or flags.type or flags.overrides):
        yield from (f"--model.{name}" for name in BACKBONE_FLAGS)
        with contextlib.suppress(UnreadableSourceError, KeyError):
            yield from (f"--model.{name}" for name in config_fields(flags.type if model and flags.type else "vjepa2"))
    if not model:
        kind = flags.type or (checkpoint_policy_type(flags.path) if flags.path else None)
        yield from (f"--policy.{name}" for name in options(POLICY, kind if kind in kinds(POLICY) else None))


def _is_policy_field(name: str) -> bool:
    """Whether some policy's config has a field ``name``, such as pi05's dtype, which resembles 'type'."""
    return name in options(POLICY)


def policy_type(name: str) -> str:
    """Check that LeRobot, or a plug-in of it, knows the policy type ``name``. Raises UserError."""
    known = kinds(POLICY)
    if name not in known:
        raise UserError(f"unknown policy type '{name}': {nearest(name, known, many=30)}")
    return name


def check_policy(kind: str, overrides: Sequence[str]) -> None:
    """Check ``--policy.*`` overrides (``--chunk_size=50``) by what the source of the config of ``kind`` says.

    Raises:
        UserError: a field that the config lacks, or a value of the wrong kind. Other values, which the config itself
            refuses, are found when it is made.
    """
    given = {name: value or "" for name, value in pairs(overrides)}
    known = [f"--policy.{name}" for name in options(POLICY, kind) if name != "type"]
    check_names(known, [f"--policy.{name[2:]}" for name in given], others=lambda: POLICY_NAMES)
    try:
        build(POLICY, nest_fields(POLICY, {"type": kind} | {name[2:]: value for name, value in given.items()}))
    except (UnreadableSourceError, KeyError):  # only the config itself knows
        return
    except Exception as error:
        raise UserError(f"--policy.type={kind} cannot be read as a policy's config: {first_line(error)}") from None


def check_device_name(name: str) -> None:
    """Raises UserError for what is no type of device to torch; whether one is there is asked once torch is loaded."""
    if "torch" not in sys.modules and name.partition(":")[0] not in DEVICES:
        raise UserError(f"no device '{name}': use cpu, cuda, cuda:N or mps")


def check_overrides(flags: PolicyOptions, device: str | None) -> None:
    """Add ``device`` to the overrides. Raises UserError for an unknown type, or a field that its config lacks."""
    if device is not None:
        check_device_name(device)
    if flags.type is not None:
        require_one_package(POLICY, flags.type)
        check_policy(policy_type(flags.type), flags.overrides)
    elif flags.path is not None:
        check_checkpoint(flags.path)
        kind = checkpoint_policy_type(flags.path)
        require_one_package(POLICY, kind)
        if kind in kinds(POLICY):
            check_policy(str(kind), flags.overrides)
    if device is not None and not any(o.startswith("--device=") for o in flags.overrides):
        flags.overrides.append(f"--device={device}")


def check_model(flags: ModelFlags) -> None:
    """Raises UserError for a format, a type or a field of its config that a backbone does not have."""
    if flags.dtype is not None and flags.dtype not in DTYPES:
        raise UserError(f"--model.dtype={flags.dtype}: {nearest(flags.dtype, DTYPES)}")
    if flags.path is not None:
        check_checkpoint(flags.path, "model")
    if flags.type is not None:
        _check_model_words(flags.type, flags.overrides)
        with importing():
            check_values(flags)


def _check_model_words(kind: str, overrides: Sequence[str]) -> None:
    """Raises UserError for a type that transformers does not list, or a field that its config lacks."""
    if "transformers.models.auto.configuration_auto" in sys.modules:  # which may know more by now
        return
    try:
        check_backbone(kind, overrides)
    except UnreadableSourceError:  # transformers itself says it, later
        return


def check_values(flags: SubjectFlags) -> None:
    """Build the subject's config, which checks the values of its overrides. Raises UserError."""
    if isinstance(flags, FactoryOptions):
        return
    from strobe.lerobot.policies import lerobot_policies
    from strobe.vision import backbones

    if isinstance(flags, ModelFlags):
        backbones.build_config(
            path=flags.path,
            kind=flags.type,
            size=flags.size,
            img_size=flags.img_size,
            num_frames=flags.num_frames,
            overrides=flags.overrides,
        )
    elif flags.type is not None:
        lerobot_policies.config_from_type(flags.type, flags.overrides)
    else:
        lerobot_policies.config_from_path(flags.path or "", flags.overrides)


# The help on the flags of a subject: a policy, a policy of another project, a backbone.


def subject_help(model: bool) -> list[str]:
    """Return the help on ``--policy.*`` and, for commands that take them, on other subjects."""
    return [policy_help(), factory_help(), model_help()] if model else [policy_help()]


def policy_help() -> str:
    """Return the help on ``--policy.*``, which many commands take."""
    flags = [
        line
        for item in flag_fields(PolicyOptions, ["overrides"])
        for line in describe_field(PolicyOptions, item, "--policy.")
    ]
    more = ["  --policy.FIELD", "      Any field of its config, as LeRobot spells it."]
    return "\n".join(["Flags of the policy:", *flags, *more])


def factory_help() -> str:
    """Return the help on ``--policy.factory``."""
    flags = flag_fields(FactoryOptions, ["path", "type"])
    lines = [line for item in flags for line in describe_field(FactoryOptions, item, "--policy.")]
    return "\n".join(["A policy of another project, in its place:", *lines])


def model_help() -> str:
    """Return the help on ``--model.*``."""
    flags = [
        line for item in flag_fields(ModelFlags, ["overrides"]) for line in describe_field(ModelFlags, item, "--model.")
    ]
    more = ["  --model.FIELD", "      Any field of its config."]
    return "\n".join(["Flags of a vision or video backbone, in a policy's place:", *flags, *more])
