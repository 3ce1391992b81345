"""The text of a command's help: its words, its flags with defaults and bounds, the policy's flags, the treatments."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from strobe.core.cli.bounds import bound_of, positional_of
from strobe.core.devices.untried import KEY, untried
from strobe.lerobot.policies.options import FactoryOptions, PolicyOptions

LAST = ("output", "output_dir", "thresholds")  # shared by many commands, whose own flags come before


def help_text(doc: str, config_class: object, skip: Iterable[str] = ()) -> str:
    """Return a command's docstring, then its arguments and flags with their defaults, bounds and comments."""
    arguments, flags = [], []
    for item in _fields(config_class, skip):
        (arguments if positional_of(item) else flags).extend(_about(config_class, item))
    return "\n".join([doc.strip(), "", *(["Arguments:", *arguments, ""] if arguments else []), "Flags:", *flags])


def policy_help() -> str:
    """Return the help on ``--policy.*``, which many commands take."""
    flags = [
        line for item in _fields(PolicyOptions, ["overrides"]) for line in _about(PolicyOptions, item, "--policy.")
    ]
    more = ["  --policy.FIELD", "      Any field of its config, as LeRobot spells it."]
    return "\n".join(["Flags of the policy:", *flags, *more])


def factory_help() -> str:
    """Return the help on ``--policy.factory``."""
    flags = _fields(FactoryOptions, ["path", "type"])
    lines = [line for item in flags for line in _about(FactoryOptions, item, "--policy.")]
    return "\n".join(["A policy of another project, in its place:", *lines])


def model_help() -> str:
    """Return the help on ``--model.*``."""
    from strobe.lerobot.flags.subject_flags import (
        ModelFlags,  # reads LeRobot's source, which most commands' help need not
    )

    flags = [line for item in _fields(ModelFlags, ["overrides"]) for line in _about(ModelFlags, item, "--model.")]
    more = ["  --model.FIELD", "      Any field of its config."]
    return "\n".join(["Flags of a vision or video backbone, in a policy's place:", *flags, *more])


def with_treatments(doc: str | None) -> str:
    """Return a command's docstring with all treatments: what each does, and what of it has run nowhere yet."""
    from strobe.core.treatments.known import known_words

    lines = [(doc or "").rstrip(), "", "Treatments (exact, rounding or lossy: the most they do to the actions):"]
    for entry in known_words():
        key = f"{entry.key}FIELD" if entry.key.endswith(".") else entry.key
        lines += [f"  {key} ({entry.effect})", f"      {entry.help}"]
        if words := untried(*entry.untried):
            lines.append(f"      {words}")
    return "\n".join(lines)


def _fields(config_class: Any, skip: Iterable[str]) -> list[dataclasses.Field[object]]:
    items = [item for item in dataclasses.fields(config_class) if item.name not in skip]
    return sorted(items, key=lambda item: item.name in LAST)


def _about(config_class: Any, item: dataclasses.Field[object], prefix: str = "--") -> list[str]:
    """Return the lines on one field: its flag with default and bound, then its comment."""
    from draccus.wrappers.docstring import get_attribute_docstring

    # draccus looks for the comment in the first base alone.
    owner = next(base for base in config_class.__mro__ if item.name in inspect.get_annotations(base))
    written = get_attribute_docstring(owner, item.name)
    comment = written.comment_above or written.comment_inline or written.docstring_below
    default = _default(item)
    notes = []
    if isinstance(default, str | int | float | bool | Path | list) and default not in ("", []):
        notes.append(f"default: {', '.join(map(str, default)) if isinstance(default, list) else default}")
    if (bound := bound_of(item)) and bound.words:
        notes.append(bound.words)
    name = positional_of(item) or f"{prefix}{item.name}"
    lines = [f"  {name}{f' ({"; ".join(notes)})' if notes else ''}"]
    lines += [f"      {line}" for line in comment.splitlines() if line.strip()]
    if words := untried(*item.metadata.get(KEY, ())):
        lines.append(f"      {words}")
    return lines


def _default(item: dataclasses.Field[object]) -> object:
    if item.default is not dataclasses.MISSING:
        return item.default
    return item.default_factory() if item.default_factory is not dataclasses.MISSING else None
