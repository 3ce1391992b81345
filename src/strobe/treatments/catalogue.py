"""Every treatment that can be written down: in ``--variant``, in a recipe, and by ``strobe optimize``.

A treatment is a file with an `Entry` at its end, and a line here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import yaml

from strobe.errors import UserError, nearest
from strobe.treatments import inputs, settings
from strobe.treatments.engines import compile, engine
from strobe.treatments.flow import cameras, closed_form, masks, padding, prefix_cache, prefix_tail, timesteps
from strobe.treatments.graphs import graph as cuda_graph
from strobe.treatments.layers import attention, projections
from strobe.treatments.numbers import channels_last, mixed_precision, precision, quantise, tf32
from strobe.treatments.training import accumulate, optimizer_form
from strobe.treatments.treatment import Entry, Spec, Treatment

ENTRIES: tuple[Entry, ...] = (
    settings.ENTRY,
    *inputs.ENTRIES,
    precision.ENTRY,
    tf32.ENTRY,
    *quantise.ENTRIES,
    channels_last.ENTRY,
    padding.ENTRY,
    cameras.ENTRY,
    prefix_tail.ENTRY,
    prefix_cache.ENTRY,
    timesteps.ENTRY,
    masks.ENTRY,
    closed_form.ENTRY,
    projections.ENTRY,
    attention.ENTRY,
    mixed_precision.ENTRY,
    *optimizer_form.ENTRIES,
    accumulate.ENTRY,
    engine.ENTRY,
    compile.ENTRY,
    cuda_graph.ENTRY,
)


def entry_of(key: str) -> Entry:
    """The entry that ``key`` begins. Raises UserError."""
    for entry in ENTRIES:
        if key == entry.key or (entry.key.endswith(".") and key.startswith(entry.key) and key != entry.key):
            return entry
    known = [entry.key for entry in ENTRIES]
    raise UserError(f"no treatment '{key}': {nearest(key, known, many=len(known))}")


def make(spec: Spec) -> Treatment:
    """The treatment that ``spec`` writes down. Raises UserError for a key or a value that means nothing."""
    if not spec:
        raise UserError("a treatment is written KEY=VALUE: here is none")
    first, *others = spec
    entry = entry_of(first)
    for key in others:
        if not _belongs(key, entry):
            raise UserError(f"'{key}' is no option of '{first}': write it as a treatment of its own")
    return entry.make(spec)


def ordered(specs: Iterable[Spec]) -> list[Spec]:
    """``specs`` in the order in which they are put on, which is no matter of how they were written."""
    return sorted(specs, key=rank_of)


def rank_of(spec: Spec) -> int:
    """Where ``spec`` stands among those that are put on together."""
    return entry_of(next(iter(spec))).rank


def compose(specs: Iterable[Spec]) -> tuple[Treatment, ...]:
    """The treatments of ``specs``, in the order in which they are put on. Raises UserError."""
    return tuple(make(spec) for spec in ordered(specs))


def parse(text: str) -> list[Spec]:
    """``'precision=bf16, precision.part=model.backbone, channels_last=true'`` as specs. Raises UserError.

    An option belongs to the treatment before it; settings of the policy are one treatment. A value holds no comma.
    """
    specs: list[dict[str, Any]] = []
    for pair in filter(None, (part.strip() for part in text.split(","))):
        key, equals, raw = (piece.strip() for piece in pair.partition("="))
        if not (key and equals and raw):
            raise UserError(f"'{pair}': write KEY=VALUE")
        try:
            value = yaml.safe_load(raw)
        except yaml.YAMLError:
            raise UserError(f"'{pair}': the value cannot be read") from None
        if specs and _belongs(key, entry_of(next(iter(specs[-1])))) and key not in specs[-1]:
            specs[-1][key] = value
        elif (owner := _owner(key)) is not None:
            raise UserError(f"'{key}' is an option of '{owner}': write {owner}=… before it")
        else:
            entry_of(key)
            specs.append({key: value})
    return list(specs)


def told(spec: Spec) -> str:
    """``spec`` as it is written on a command line."""
    return ", ".join(f"{key}={'true' if value is True else value}" for key, value in spec.items())


def _belongs(key: str, entry: Entry) -> bool:
    if entry.key.endswith("."):
        return key.startswith(entry.key)
    return key in [f"{entry.key}.{option}" for option in entry.options]


def _owner(key: str) -> str | None:
    owners: Sequence[Entry] = [entry for entry in ENTRIES if not entry.key.endswith(".") and _belongs(key, entry)]
    return owners[0].key if owners else None
