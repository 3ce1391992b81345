"""The text of a command's help: its words, its flags with defaults and bounds, the policy's flags, the treatments."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from strobe.core.cli.bounds import field_bound, positional_name
from strobe.core.devices.untried import KEY, describe_untried

LAST = ("output", "output_dir", "thresholds")  # shared by many commands, whose own flags come before
MORE = "\nMore:\n"  # in a command's docstring: what follows stands in the whole help alone


def help_text(doc: str, config_class: object, skip: Iterable[str] = ()) -> str:
    """Return a command's docstring, then its arguments and flags with their defaults, bounds and comments."""
    arguments, flags = [], []
    for item in flag_fields(config_class, skip):
        (arguments if positional_name(item) else flags).extend(describe_field(config_class, item))
    named = ["Arguments:", *arguments, ""] if arguments else []
    return "\n".join([doc.replace(MORE, "\n", 1).strip(), "", *named, "Flags:", *flags])


def brief_help(command: str, doc: str, whole: str, common: Mapping[str, Sequence[str]], *, treatments: bool) -> str:
    """Return a command's words up to `MORE`, the flags that most users need, and where the rest stands.

    Args:
        whole: the whole help of the command, from which its flags are taken.
        common: name of a group → its flags without ``--``; empty for a command whose flags are few.
        treatments: whether the command takes treatments, which have a help of their own.
    """
    blocks = _flag_blocks(whole)
    if common:
        lines = []
        for group, names in common.items():
            lines += [f"{group}:", *(line for name in names for line in blocks[name]), ""]
    else:
        lines = [*whole[len(doc.replace(MORE, "\n", 1).strip()) :].strip().splitlines(), ""]
    left = len(blocks) - sum(len(names) for names in common.values()) if common else 0
    rest = f"The other {left} flags, details and examples" if left else "Details and more examples"
    lines += [f"{rest}: strobe {command} --help=all"] if left or MORE in doc else []
    lines += [f"What each treatment does: strobe {command} --help=treatments"] if treatments else []
    lines.append("Every command takes --full, --json or --quiet, which say how the answer is printed.")
    return "\n".join([doc.split(MORE)[0].strip(), "", *lines])


def _flag_blocks(text: str) -> dict[str, list[str]]:
    """Return flag without ``--`` → its lines in a help text; of a flag that stands twice the first."""
    blocks: dict[str, list[str]] = {}
    name = None
    for line in text.splitlines():
        if line.startswith("  --"):
            name = re.split(r"[ =]", line.strip(), maxsplit=1)[0].removeprefix("--")
            name = None if name in blocks else name
            if name is not None:
                blocks[name] = [line]
        elif name is not None and line.startswith("      "):
            blocks[name].append(line)
        else:
            name = None
    return blocks


def treatments_help() -> str:
    """Return all treatments: what each does, and what of it has run nowhere yet."""
    from strobe.core.treatments.known import known_words

    lines = ["Treatments (exact, rounding or lossy: the most they do to the actions):"]
    for entry in known_words():
        key = f"{entry.key}FIELD" if entry.key.endswith(".") else entry.key
        lines += [f"  {key} ({entry.effect})", f"      {entry.help}"]
        if words := describe_untried(*entry.untried):
            lines.append(f"      {words}")
    return "\n".join(lines)


def flag_fields(config_class: Any, skip: Iterable[str]) -> list[dataclasses.Field[Any]]:
    """Return the fields of a class of flags, those that many commands share last."""
    items = [item for item in dataclasses.fields(config_class) if item.init and item.name not in skip]
    return sorted(items, key=lambda item: item.name in LAST)


def describe_field(config_class: Any, item: dataclasses.Field[Any], prefix: str = "--") -> list[str]:
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
    if (bound := field_bound(item)) and bound.words:
        notes.append(bound.words)
    name = positional_name(item) or f"{prefix}{item.name}"
    said = f" ({'; '.join(notes)})" if notes else ""
    lines = [f"  {name}{said}"]
    lines += [f"      {line}" for line in comment.splitlines() if line.strip()]
    if words := describe_untried(*item.metadata.get(KEY, ())):
        lines.append(f"      {words}")
    return lines


def _default(item: dataclasses.Field[object]) -> object:
    if item.default is not dataclasses.MISSING:
        return item.default
    return item.default_factory() if item.default_factory is not dataclasses.MISSING else None
