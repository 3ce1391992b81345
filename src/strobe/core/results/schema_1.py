"""Documents of schema 1, in which a measurement's traits were pairs of texts, its ``facts``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from strobe.core.results.traits import (
    BackboneTraits,
    DelayTraining,
    Facts,
    LoaderTraits,
    LoopTraits,
    PolicyTraits,
    RealTimeChunking,
    Record,
    Traits,
    TreatmentTraits,
    Value,
)

# The keys of that schema's treatments that were facts under their own names.
_KEYS = {
    "frames", "images", "precision", "tf32", "int8", "fp8", "channels_last", "padding", "cameras", "views",
    "prefix_tail", "prefix_cache", "prompt", "timesteps", "masks", "lm_head", "word_tables", "words", "context_keys",
    "unread_half", "conditioning", "last_block", "rotations", "projections", "weights", "attention", "scores", "amp",
    "engine", "int8_engine", "memory", "threads",
}  # fmt: skip
_BUILDS = {"compile": "compiled", "engine": "built", "int8_engine": "built", "graph": "captured"}
_OPTIONS = {"engine.precision": "precision", "engine build s": "build_s", "engine from cache": "from_cache"}


def with_traits(document: dict[str, object]) -> dict[str, object]:
    """Return ``document`` of schema 1 with typed traits in place of facts."""
    measurements = document.get("measurements")
    if not isinstance(measurements, list):
        return document
    return document | {"measurements": [_measurement(measurement) for measurement in measurements]}


def _measurement(measurement: object) -> object:
    if not isinstance(measurement, dict):
        return measurement  # for the schema to refuse
    facts = measurement.get("facts")
    if not isinstance(facts, dict) or any(isinstance(value, list | dict) for value in facts.values()):
        return measurement  # likewise, or of a study whose measurements have none
    others = {name: value for name, value in measurement.items() if name != "facts"}
    return others | {"traits": traits_of(facts)}


def traits_of(facts: Facts) -> Traits:
    """Return the traits that ``facts`` say. What no field takes, such as other packages' own, becomes a note."""
    remaining = dict(facts)
    traits = Traits(treatments=list(_treatments(remaining)))
    for name, label in list(_labels(Traits, remaining)):
        setattr(traits, name, remaining.pop(label))
    traits.policy = _filled(PolicyTraits, remaining)
    if (delay_training := _filled(DelayTraining, remaining)) is not None:
        traits.policy = traits.policy or PolicyTraits()
        traits.policy.delay_training = delay_training
    traits.backbone = _filled(BackboneTraits, remaining)
    traits.loader = _filled(LoaderTraits, remaining)
    traits.loop = _filled(LoopTraits, remaining)
    traits.notes = remaining
    return traits


def _treatments(remaining: Facts) -> Iterator[TreatmentTraits]:
    """Yield the treatments, in the order in which they were put on, and take their facts out of ``remaining``."""
    for label in list(remaining):
        if label not in remaining:
            continue  # taken with an earlier one
        if label == "rtc.enabled":
            on = remaining.pop(label)
            guidance = _filled(RealTimeChunking, remaining) or (RealTimeChunking() if on is True else None)
            yield TreatmentTraits(key="rtc", value=on, rtc=guidance)
        elif label == "rtc.guidance":
            yield TreatmentTraits(key="guidance", value=remaining.pop(label))
        elif label == "compiled" and remaining[label]:
            del remaining[label]
            yield from _on_parts("compile", "compile mode", remaining)
        elif label.startswith("graph.") and remaining.pop("captured", None):
            for graph in [label for label in remaining if label.startswith("graph.")]:
                del remaining[graph]
                yield TreatmentTraits(key="graph", value=graph.removeprefix("graph."), builds="captured")
        elif label == "micro-batches":
            yield TreatmentTraits(key="accumulate", value=remaining.pop(label))
        elif label == "optimizer":
            yield TreatmentTraits(key=str(remaining.pop(label)), value=True)
        elif label.startswith("policy."):
            names = [label for label in remaining if label.startswith("policy.")]
            settings = {name.removeprefix("policy."): remaining.pop(name) for name in names}
            yield TreatmentTraits(key="policy", settings=settings)
        elif label in _KEYS:
            yield from _on_parts(label, label, remaining)


def _on_parts(key: str, label: str, remaining: Facts) -> list[TreatmentTraits]:
    """Return the treatments ``key``, one for each part: values on several parts were joined in a text."""
    joined: dict[str, Value] = {"value": remaining.pop(label, None), "part": remaining.pop(f"{key}.part", "")}
    if key in ("engine", "int8_engine"):
        joined |= {name: remaining.pop(fact) for fact, name in _OPTIONS.items() if fact in remaining}
    if f"{key} in lerobot-train" in remaining:
        joined["lerobot_flag"] = remaining.pop(f"{key} in lerobot-train")
    if f"{key} layers" in remaining:
        joined["layers"] = remaining.pop(f"{key} layers")
    skipped = str(remaining.pop(f"{key} not", "")).split(", ")
    parts = str(joined["part"]).split(", ")
    values = {name: value.split(", ") if isinstance(value, str) else [value] for name, value in joined.items()}
    if len(parts) == 1 or any(len(entries) not in (1, len(parts)) for entries in values.values()):
        parts, values = parts[:1], {name: [value] for name, value in joined.items()}
    records = []
    for index in range(len(parts)):
        given = {name: entries[index if len(entries) > 1 else 0] for name, entries in values.items()}
        records.append({"key": key, "builds": _BUILDS.get(key, ""), "left_out": list(filter(None, skipped)), **given})
    try:
        return [TreatmentTraits.model_validate(record) for record in records]
    except ValidationError:  # numbers joined in a text of which it is not known whose they are
        text = {"value": joined["value"], "part": str(joined["part"])}
        notes = {name: value for name, value in joined.items() if name not in text}
        return [TreatmentTraits.model_validate({"key": key, "builds": _BUILDS.get(key, ""), **text, "notes": notes})]


R = TypeVar("R", bound=Record)


def _filled(kind: type[R], remaining: Facts) -> R | None:
    """Return a record of what ``remaining`` has of its fields, which is taken out; None where it has none."""
    labels = dict(_labels(kind, remaining))
    if not labels:
        return None
    try:
        record = kind.model_validate({name: remaining[label] for name, label in labels.items()})
    except ValidationError:  # without a field that it must have
        return None
    for label in labels.values():
        del remaining[label]
    return record


@cache
def _adapter(annotation: Any) -> TypeAdapter[object]:
    return TypeAdapter(annotation)


def _labels(kind: type[Record], remaining: Facts) -> Iterator[tuple[str, str]]:
    """Yield the names of the fields of ``kind`` that ``remaining`` has a fitting value for, with their labels there."""
    for name, field in kind.model_fields.items():
        if field.title is not None and field.title in remaining:
            with contextlib.suppress(ValidationError):
                _adapter(field.annotation).validate_python(remaining[field.title], strict=True)
                yield name, field.title
