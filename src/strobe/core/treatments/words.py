"""The words that treatments are written in, and how they are read. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import yaml

from strobe.core.errors import UserError, nearest

# torch.compile's modes.
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
# What a CUDA graph can hold: embedding and KV cache, all denoising steps, the policy's whole sampling.
GRAPHS = ("prefix", "loop", "chunk")
# Settings that every family reads at every call, so that a change needs no second copy of the weights. Others shape the
# weights or are read once. A family's record names its steps and further ones.
LIVE = ("n_action_steps", "use_amp")
# Forms of an optimizer, torch's own words: 'fused' is one kernel, 'foreach' one per operator over all weights,
# 'forloop' neither.
FORMS = ("fused", "foreach", "forloop")
CUDNN = ("benchmark", "default")  # how cuDNN chooses among its algorithms: by measuring them, or by a rule
# Levers of a training step.
LEVERS = ("amp", "tf32", "cudnn", "compile", "channels_last", *FORMS, "accumulate", "checkpointing")
FOR_MEMORY = ("accumulate", "checkpointing")  # levers that save memory, not time
BATCH_NORM = "layers of BatchNorm"
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
ALIASES = {"float32": "fp32", "tfloat32": "tf32", "bfloat16": "bf16", "float16": "fp16", "half": "fp16"}
AUTO = "auto"


def precision_name(precision: str) -> str:
    """Return ``precision`` by the name used here: fp32, tf32, bf16 or fp16. Raises UserError."""
    name = ALIASES.get(precision.strip().lower(), precision.strip().lower())
    if name not in PRECISIONS:
        raise UserError(f"unknown precision '{precision}': {nearest(name, [*PRECISIONS, *ALIASES])}")
    return name


def sensible(device: str) -> tuple[str, ...]:
    """Return the precisions worth comparing on a device such as 'cpu' or 'cuda:0', the baseline first."""
    if device.startswith("cuda"):
        return PRECISIONS
    return ("fp32", "fp16") if device.startswith("mps") else ("fp32", "bf16")


def precisions(text: str, device: str) -> tuple[str, ...]:
    """Return the precisions in ``'fp32,bf16'``; for 'auto' those that make sense on ``device``. Raises UserError."""
    text = text.strip()
    if text.lower() in ("", AUTO):
        return sensible(device) if text else ()
    if text.replace(".", "", 1).isdecimal():
        raise UserError(
            f"--precision={text}: fp32, tf32, bf16, fp16 or auto; the width to stop at is --interval={text}"
        )
    names = tuple(precision_name(part) for part in text.split(","))
    if len(set(names)) < len(names):
        raise UserError(f"--precision={text}: each precision once")
    return names


def levers(text: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return each part of ``'amp=bf16,amp=bf16+fused'`` with its levers and their values. Raises UserError."""
    parsed = []
    for written in (part.strip() for part in text.split(",")):
        pairs = [lever.strip().partition("=") for lever in written.split("+")]
        pairs = [(name.replace("-", "_"), value) for name, _, value in pairs]
        names = [name for name, _ in pairs]
        if sum(name in FORMS for name in names) > 1 or len(set(names)) < len(names):
            raise UserError(f"--levers: '{written}' pulls one lever twice")
        for name in names:
            known_lever(name)
        parsed.append((written, pairs))
    names = [written for written, _ in parsed]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"--levers={text}: {twice[0]} is given twice")
    return parsed


def known_lever(name: str) -> None:
    """Raise UserError for what is no lever."""
    if name not in LEVERS:
        raise UserError(f"no lever '{name}': {nearest(name, LEVERS, many=len(LEVERS))}")


# Treatments as text, such as ``'precision=bf16, precision.part=model.backbone'``: read by the keys of entries.

Spec = Mapping[str, Any]


class Keyed(Protocol):
    """The part of an entry that says how it is written."""

    @property
    def key(self) -> str:
        """Stands before the ``=``; one that ends in a dot stands for all keys that begin with it."""
        ...

    @property
    def options(self) -> tuple[str, ...]:
        """The keys that may follow, written ``key.option``."""
        ...


E = TypeVar("E", bound=Keyed)


def find_entry(key: str, entries: Sequence[E]) -> E:
    """Return the entry that ``key`` begins. Raises UserError."""
    for entry in entries:
        if key == entry.key or (entry.key.endswith(".") and key.startswith(entry.key) and key != entry.key):
            return entry
    known = [entry.key for entry in entries]
    raise UserError(f"no treatment '{key}': {nearest(key, known, many=len(known))}")


def parse(text: str, entries: Sequence[Keyed]) -> list[Spec]:
    """Return the specs of ``'precision=bf16, precision.part=model.backbone, channels_last=true'``. Raises UserError.

    An option belongs to the treatment before it; settings of the policy are one treatment. A value holds no comma.
    """
    specs: list[dict[str, object]] = []
    for pair in filter(None, (part.strip() for part in text.split(","))):
        key, equals, raw = (piece.strip() for piece in pair.partition("="))
        if not (key and equals and raw):
            raise UserError(f"'{pair}': write KEY=VALUE")
        try:
            value = yaml.safe_load(raw)
        except yaml.YAMLError:
            raise UserError(f"'{pair}': the value cannot be read") from None
        if specs and belongs(key, find_entry(next(iter(specs[-1])), entries)) and key not in specs[-1]:
            specs[-1][key] = value
        elif owner := next((one.key for one in entries if not one.key.endswith(".") and belongs(key, one)), None):
            raise UserError(f"'{key}' is an option of '{owner}': write {owner}=… before it")
        else:
            find_entry(key, entries)
            specs.append({key: value})
    return list(specs)


def belongs(key: str, entry: Keyed) -> bool:
    """Return whether ``key`` may follow the key of ``entry``."""
    if entry.key.endswith("."):
        return key.startswith(entry.key)
    return key in [f"{entry.key}.{option}" for option in entry.options]
