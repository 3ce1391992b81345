"""The levers of training: treatments of a training step by name, alone and together."""

from __future__ import annotations

from strobe.errors import UserError, nearest
from strobe.subjects.subject import Subject
from strobe.treatments.accumulate import Accumulate
from strobe.treatments.channels_last import ChannelsLast
from strobe.treatments.compile import MODES, Compile
from strobe.treatments.mixed_precision import AUTO, MixedPrecision
from strobe.treatments.optimizer_form import FORMS, OptimizerForm
from strobe.treatments.tf32 import TensorFloat32
from strobe.treatments.treatment import Treatment, Variant

LEVERS = ("amp", "tf32", "compile", "channels_last", *FORMS, "accumulate")
# What auto tries: the last is for memory, not for time, and no part of the combination.
WORTH_TRYING = ("tf32", "amp", "channels_last", "fused", "compile", "accumulate")
MICRO_BATCHES = 4


def lever(name: str, value: str = "") -> Treatment:
    """The treatment ``name``, such as 'amp', with its value, such as 'bf16', or its default. Raises UserError."""
    switch = value.lower() in ("", "true")
    if name == "amp":
        return MixedPrecision(AUTO if switch else value)
    if name == "compile":
        mode = "default" if switch else value
        if mode not in MODES:
            raise UserError(f"compile={value}: {nearest(value, MODES)}")
        return Compile(mode)
    if name == "accumulate":
        if not value.isdecimal():
            raise UserError(f"accumulate={value or '?'}: a whole number of micro-batches, such as accumulate=4")
        return Accumulate(int(value))
    if name not in LEVERS:
        raise UserError(f"no lever '{name}': {nearest(name, LEVERS, many=len(LEVERS))}")
    if not switch:
        raise UserError(f"{name}={value}: {name} takes no value")
    if name == "tf32":
        return TensorFloat32()
    return ChannelsLast() if name == "channels_last" else OptimizerForm(name)


def parse(text: str) -> list[Variant]:
    """``'amp=bf16,fused,amp=bf16+fused'``: a variant for each, named as it is written. Raises UserError."""
    variants = []
    for written in (part.strip() for part in text.split(",")):
        pairs = [one.strip().partition("=") for one in written.split("+")]
        pairs = [(name.replace("-", "_"), value) for name, _, value in pairs]
        names = [name for name, _ in pairs]
        if sum(name in FORMS for name in names) > 1 or len(set(names)) < len(names):
            raise UserError(f"--levers: '{written}' pulls one lever twice")
        variants.append(Variant(written, tuple(lever(name, value) for name, value in pairs)))
    names = [variant.name for variant in variants]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"--levers={text}: {twice[0]} is there twice")
    return variants


def worth_trying(subject: Subject, batch_size: int) -> tuple[list[Variant], list[str]]:
    """Each lever that applies to ``subject``, those for time all together, and why the others do not apply."""
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
    alone = ("accumulate",) if subject.device.type == "cuda" else ("accumulate", "compile")
    together = [variant for variant in variants if not variant.name.startswith(alone)]
    if len(together) > 1:
        names = "+".join(variant.name for variant in together)
        # Treatments of its own: compiled code is made for the settings that it first meets.
        variants.append(parse(names)[0])
    return variants, left_out
