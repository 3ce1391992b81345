"""The levers of training: treatments of a training step by name, alone and together."""

from __future__ import annotations

from strobe.core.errors import UserError
from strobe.core.subjects.subject import Subject
from strobe.core.treatments import words
from strobe.core.treatments.catalogue import make
from strobe.core.treatments.treatment import Treatment, Variant
from strobe.core.treatments.words import LEVERS

__all__ = ["LEVERS", "lever", "parse", "worth_trying"]

# What auto tries: the last two are for memory, not for time, and no part of the combination.
FOR_MEMORY = ("accumulate", "checkpointing")
WORTH_TRYING = ("amp", "channels_last", "fused", "compile", *FOR_MEMORY)
MICRO_BATCHES = 4


def lever(name: str, value: str = "") -> Treatment:
    """Return the treatment ``name``, such as 'amp', with ``value``, such as 'bf16' or the default. Raises UserError."""
    words.known_lever(name)
    return make({name: {"": True, "true": True, "false": False}.get(value.lower(), value)})


def parse(text: str) -> list[Variant]:
    """Return the variants of ``'amp=bf16,fused,amp=bf16+fused'``, each named as written. Raises UserError."""
    return [
        Variant(written, tuple(lever(name, value) for name, value in pairs)) for written, pairs in words.levers(text)
    ]


def worth_trying(subject: Subject, batch_size: int) -> tuple[list[Variant], list[str]]:
    """Return each lever that applies to ``subject``, those for time all together, and why the others do not apply."""
    variants, left_out = [], []
    for name in WORTH_TRYING:
        written = f"accumulate={MICRO_BATCHES}" if name == "accumulate" else name
        if name == "accumulate" and batch_size % MICRO_BATCHES:
            left_out.append(f"{written}: a batch of {batch_size} cannot be cut into {MICRO_BATCHES} equal parts")
            continue
        variant = parse(written)[0]
        try:
            variant.apply(subject)()
        except UserError as error:
            left_out.append(f"{written}: {error}")
            continue
        variants.append(variant)
    # Compiling once more takes minutes on a CPU, where it buys least.
    not_combined = FOR_MEMORY if subject.device.type == "cuda" else (*FOR_MEMORY, "compile")
    together = [variant for variant in variants if not variant.name.startswith(not_combined)]
    if len(together) > 1:
        names = "+".join(variant.name for variant in together)
        # Treatments of its own: compiled code is made for the settings that it first meets.
        variants.append(parse(names)[0])
    return variants, left_out
