"""From an argument list to a study's config, in LeRobot's spelling.

draccus parses; this module takes out what draccus does not know (``--policy.path``, which LeRobot handles before it
too, ``--policy.size``, ``--model.*``, repeated ``--variant``), checks every flag against the known ones so that a
misspelt one is answered with the nearest, checks numbers against their bounds (`bounds`), and turns whatever goes
wrong into one line.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import draccus

from strobe.cli.bounds import at_least, bound_of, check_bounds
from strobe.cli.late import asked_for, groups, kinds, options
from strobe.cli.refused import one_line, option_names, refusals
from strobe.devices.untried import KEY, untried
from strobe.errors import UserError, nearest
from strobe.findings.thresholds import refusal_of_former
from strobe.lerobot.refusals import first_line
from strobe.lerobot.schema.registries import POLICY
from strobe.lerobot.schema.shapes import made, nested
from strobe.lerobot.schema.source import Unreadable

__all__ = ["one_line"]  # and what is defined below

# The flags that name a subject; they are taken out before draccus sees the rest.
POLICY_NAMES = ("--policy.path", "--policy.type", "--policy.size")
MODEL_NAMES = ("--model.path", "--model.type", "--model.size")


Size = Literal["full", "tiny"]


@dataclass
class PolicyFlags:
    """The ``--policy.*`` flags: the policy's name, and overrides of its config's fields (``--chunk_size=50`` …)."""

    # A checkpoint: its folder, or its name on the Hub.
    path: str | None = None
    # A kind of policy, built with random weights: act, diffusion, pi05, smolvla …
    type: str | None = None
    # The size of a policy that is built: full or tiny.
    size: Size = "full"
    overrides: list[str] = field(default_factory=list)


@dataclass
class ModelFlags:
    """The ``--model.*`` flags: the backbone's name, its clips, and overrides of its config's fields."""

    # A checkpoint of transformers: its folder, or its name on the Hub.
    path: str | None = None
    # A kind of backbone, built with random weights: vjepa2, vit, dinov2, videomae …
    type: str | None = None
    # The size of a V-JEPA 2 that is built: tiny, large, huge, giant or giant-384.
    size: str | None = None
    # Height and width of its images in pixels.
    img_size: int | None = field(default=None, metadata=at_least(1))
    # Frames in a clip.
    num_frames: int | None = field(default=None, metadata=at_least(1))
    # The weights' format, such as bfloat16.
    dtype: str | None = None
    # Also run V-JEPA 2's predictor.
    predictor: bool = False
    overrides: list[str] = field(default_factory=list)


def split_subject(argv: Sequence[str]) -> tuple[PolicyFlags | ModelFlags, list[str]]:
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
            rest.append(name if value is None else f"{name}={value}")
            continue
        if name == "--model.predictor" and value is None:
            value = "true"
        if value is None or not setting:
            raise UserError(
                f"{name} needs a value, such as {prefix}.type={'act' if prefix == '--policy' else 'vjepa2'}"
            )
        (policy if prefix == "--policy" else model).append((setting, value))
    if policy and model:
        raise UserError("--policy.* and --model.* exclude each other: name a policy or a model")
    if model:
        return _model_flags(model), rest
    return _policy_flags(policy), rest


def _policy_flags(given: Iterable[tuple[str, str]]) -> PolicyFlags:
    flags = PolicyFlags()
    for setting, value in given:
        if setting in ("path", "type", "size"):
            setattr(flags, setting, value)
        elif setting == "pretrained_path":
            flags.path = value
        else:
            flags.overrides.append(f"--{setting}={value}")
    if flags.path and flags.type:
        raise UserError("--policy.path and --policy.type exclude each other: a checkpoint knows its type")
    if flags.size not in ("full", "tiny"):
        raise UserError(f"--policy.size={flags.size}: 'full' or 'tiny'")
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
        raise UserError("--model.path and --model.type exclude each other: a model's folder knows its type")
    check_bounds(flags, "model.")
    return flags


def require_subject(flags: PolicyFlags | ModelFlags) -> None:
    """Raises UserError where no policy or model is named, with the flag that a misspelt one resembles."""
    if flags.path or flags.type:
        return
    model = isinstance(flags, ModelFlags)
    prefix, offered = ("--model.", MODEL_NAMES) if model else ("--policy.", POLICY_NAMES)
    for override in flags.overrides:
        name = override.removeprefix("--").partition("=")[0]
        # Without the prefix, which would make any two flags alike.
        close = difflib.get_close_matches(name, [flag.removeprefix(prefix) for flag in offered], n=1, cutoff=0.6)
        if close and (model or not _is_policy_field(name)):
            raise UserError(f"unknown flag {prefix}{name}: did you mean {prefix}{close[0]}?")
    if model:
        raise UserError("which model? --model.type=vjepa2 for random weights, or --model.path=FOLDER_OR_HUB_ID")
    raise UserError(
        "which policy? --policy.path=FOLDER_OR_HUB_ID, or --policy.type=act for random weights; "
        "or a backbone: --model.type=vjepa2"
    )


def _is_policy_field(name: str) -> bool:
    """Whether some policy's config has a field ``name``, such as pi05's dtype, which resembles 'type'."""
    return name in options(POLICY)


def split_lerobot(argv: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Split into Strobe's flags and LeRobot's, which stand after ``--`` (None where there is no ``--``)."""
    arguments = list(argv)
    if "--" not in arguments:
        return arguments, None
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def refuse_recipe(ours: Sequence[str]) -> None:
    """Raises UserError for ``--recipe`` on a command that trains."""
    if any(name == "--recipe" for name, _ in pairs(ours)):
        raise UserError("--recipe is about inference: `strobe breakdown` and `strobe compare` take it")


def take_repeated(argv: Sequence[str], flag: str) -> tuple[list[str], list[str]]:
    """Take every occurrence of ``--flag VALUE`` out of ``argv``: the values, and the rest."""
    values, rest = [], []
    for name, value in pairs(argv):
        if name != flag:
            rest.append(name if value is None else f"{name}={value}")
        elif value is None:
            raise UserError(f"{flag} needs a value")
        else:
            values.append(value)
    return values, rest


def pairs(argv: Sequence[str]) -> Iterable[tuple[str, str | None]]:
    """``--a=1 --b 2 --c`` as ``('--a', '1'), ('--b', '2'), ('--c', None)``; ``--a-b`` is ``--a_b``.

    Raises:
        UserError: something that is neither a flag nor a flag's value.
    """
    index = 0
    while index < len(argv):
        argument = argv[index]
        index += 1
        if not argument.startswith("--"):
            raise UserError(f"'{argument}' is not a flag; flags start with --")
        name, equals, value = argument.partition("=")
        name = f"--{name[2:].replace('-', '_')}"
        if equals:
            yield name, value
        elif index < len(argv) and not argv[index].startswith("--"):
            yield name, argv[index]
            index += 1
        else:
            yield name, None


def parse[C](config_class: type[C], argv: Sequence[str], *, extra: Iterable[str] = ()) -> C:
    """Parse ``argv`` into ``config_class`` (a dataclass).

    Args:
        extra: flags that were taken out before, offered when a misspelt one resembles them.

    Raises:
        UserError: an unknown flag (with the nearest known one), a value of the wrong kind or outside its bound, a
            flag that is missing.
    """
    arguments = []
    late: dict[str, dict[str, str]] = {prefix: {} for prefix in groups(config_class)}  # LeRobot's, parsed apart
    types = {f"--{item.name}": str(item.type) for item in dataclasses.fields(config_class)}  # type: ignore[arg-type]
    for name, value in pairs(argv):
        prefix = next((prefix for prefix in late if name.startswith(f"--{prefix}.")), None)
        if prefix is not None:
            late[prefix][name.removeprefix(f"--{prefix}.")] = value or ""
            continue
        # A bare --flag is a switch; draccus wants its value spelt out.
        switch = value is None and "bool" in types.get(name, "")
        arguments.append(f"{name}={'true' if switch else value if value is not None else ''}")
    of = groups(config_class)
    known = {*option_names(config_class)}
    for prefix in of:
        if late[prefix]:
            known |= {f"--{prefix}.{name}" for name in options(of[prefix], late[prefix].get("type"))}

    def others() -> Iterable[str]:
        return [*extra, *(f"--{prefix}.{name}" for prefix in of if not late[prefix] for name in options(of[prefix]))]

    names = [name for name, _ in pairs(argv)]
    if former := refusal_of_former(name.removeprefix("--thresholds.") for name in names):
        raise UserError(former)
    check_names(known, names, others=others)
    with refusals():
        config: C = draccus.parse(config_class, args=arguments)  # type: ignore[assignment]
        for prefix, where in of.items():
            if late[prefix]:
                *path, name = prefix.split(".")
                owner = functools.reduce(getattr, path, config)
                asked = asked_for(where, nested(late[prefix]), [*path, name], getattr(owner, name))
                setattr(owner, name, asked)
    check_bounds(config)
    return config


def check_names(known: Collection[str], names: Iterable[str], *, others: Callable[[], Iterable[str]] = tuple) -> None:
    """Raises UserError for a flag that is not among the ``known`` ones, with the nearest one.

    Args:
        known: flags; one that ends in ``.*`` stands for all that begin so.
        others: gives further flags that a misspelt one may have meant.
    """
    open_ended = tuple(name[:-1] for name in known if name.endswith(".*"))
    for name in names:
        if name in known or name == "--config_path" or (open_ended and name.startswith(open_ended)):
            continue
        offered = sorted(option for option in known if option.startswith("--")) + list(others())
        close = difflib.get_close_matches(name, offered, n=1, cutoff=0.6)
        raise UserError(f"unknown flag {name}: {f'did you mean {close[0]}?' if close else 'see --help'}")


def help_text(doc: str, config_class: Any, skip: Iterable[str] = ()) -> str:
    """A command's docstring, then its own flags with their defaults, bounds and comments."""
    return "\n".join([doc.strip(), "", "Flags:", *_told(config_class, "--", skip)])


def policy_help() -> str:
    """The help on ``--policy.*``, which many commands take."""
    lines = _told(PolicyFlags, "--policy.", ["overrides"])
    return "\n".join(
        ["Flags of the policy:", *lines, "  --policy.FIELD", "      Any field of its config, as LeRobot spells it."]
    )


def model_help() -> str:
    """The help on ``--model.*``."""
    lines = _told(ModelFlags, "--model.", ["overrides"])
    return "\n".join(
        [
            "Flags of a vision or video backbone, in a policy's place:",
            *lines,
            "  --model.FIELD",
            "      Any field of its config.",
        ]
    )


def _told(config_class: Any, prefix: str, skip: Iterable[str]) -> list[str]:
    """Lines on each field of a config as a flag."""
    from draccus.wrappers.docstring import get_attribute_docstring

    lines = []
    for item in dataclasses.fields(config_class):
        if item.name in skip:
            continue
        about = get_attribute_docstring(config_class, item.name)
        said = about.comment_above or about.comment_inline or about.docstring_below
        if item.default is not dataclasses.MISSING:
            default = item.default
        elif item.default_factory is not dataclasses.MISSING:
            default = item.default_factory()
        else:
            default = None
        plain = isinstance(default, str | int | float | bool | Path | list) and default not in ("", [])
        bound = bound_of(item)
        said_of = [f"default: {_shown(default)}"] * plain + [str(bound)] * (bound is not None)
        lines.append(f"  {prefix}{item.name}{f' ({"; ".join(said_of)})' if said_of else ''}")
        lines += [f"      {line}" for line in said.splitlines() if line.strip()]
        if words := untried(*item.metadata.get(KEY, ())):
            lines.append(f"      {words}")
    return lines


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
        made(POLICY, nested({"type": kind} | {name[2:]: value for name, value in given.items()}))
    except (Unreadable, KeyError):  # only the config itself knows
        return
    except Exception as error:
        raise UserError(f"--policy.type={kind} cannot be read as a policy's config: {first_line(error)}") from None


def _shown(default: Any) -> str:
    return ", ".join(map(str, default)) if isinstance(default, list) else str(default)
