"""The text of a command's help: its words, its flags with defaults and bounds, the policy's flags, the treatments."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from strobe.core.cli.bounds import field_bound, positional_name
from strobe.core.devices.untried import KEY, describe_untried

LAST = ("output", "output_dir", "thresholds")  # shared by many commands, whose own flags come before


def help_text(doc: str, config_class: object, skip: Iterable[str] = ()) -> str:
    """Return a command's docstring, then its arguments and flags with their defaults, bounds and comments."""
    arguments, flags = [], []
    for item in flag_fields(config_class, skip):
        (arguments if positional_name(item) else flags).extend(describe_field(config_class, item))
    return "\n".join([doc.strip(), "", *(["Arguments:", *arguments, ""] if arguments else []), "Flags:", *flags])


def append_treatments(doc: str | None) -> str:
    """Return a command's docstring with all treatments: what each does, and what of it has run nowhere yet."""
    from strobe.core.treatments.known import known_words

    lines = [(doc or "").rstrip(), "", "Treatments (exact, rounding or lossy: the most they do to the actions):"]
    for entry in known_words():
        key = f"{entry.key}FIELD" if entry.key.endswith(".") else entry.key
        lines += [f"  {key} ({entry.effect})", f"      {entry.help}"]
        if words := describe_untried(*entry.untried):
            lines.append(f"      {words}")
    return "\n".join(lines)


def flag_fields(config_class: Any, skip: Iterable[str]) -> list[dataclasses.Field[Any]]:
    """Return the fields of a class of flags, those that many commands share last."""
    items = [item for item in dataclasses.fields(config_class) if item.name not in skip]
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
