"""Where two passes of the same policy first differ: records of two environments, compared with each other.

A record is what `strobe.environments.carried` writes: a sample of each tensor that a step or module is given or gives,
in the order in which they came. Numbers differ where they are further apart than sums in another order move the first
side's own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from strobe.core.results.comparison import GradientAgreement
from strobe.core.untrusted import parse_json
from strobe.environments.results import StageDifference

# Distance that is never a difference, as the length of the difference over the length of the tensor. Kernels of one
# arithmetic differ by a few steps of the last bit: 6e-8 in float32, 4e-3 in bfloat16, 5e-4 in float16.
FLOORS = {"float32": 1e-5, "float64": 1e-9, "bfloat16": 2e-2, "float16": 3e-3}
MARGIN = 10.0  # times what reordered sums do; as `guard.MARGIN`
_MASKED = 1e30  # what a mask adds: infinity in one version, the lowest number of a dtype in the next
_VISION = re.compile(r"vision|visual|image|siglip|backbone|resnet|rgb|dino|camera|pixel|patch|vae", re.IGNORECASE)
_LANGUAGE = re.compile(r"language|text|llm|word|vlm|lm_|paligemma|qwen|embed_tokens", re.IGNORECASE)

POLICY = "policy"  # the group of the modules; its entry without a name is the policy's actions
GIVEN, GIVES = "given", "gives"

Key = tuple[str, str, str, int]


@dataclass(frozen=True)
class Entry:
    """A tensor or a text of a pass: where it came, and a sample of it."""

    key: Key  # group, name, what of it, call
    shape: tuple[int, ...]
    dtype: str
    text: str = ""
    digest: str = ""
    sample: np.ndarray | None = None


def read(file: Path) -> list[Entry]:
    """Return the entries of a record, in order."""
    entries = parse_json(file.with_suffix(".json").read_text())
    with np.load(file) as arrays:
        return [_entry(one, arrays) for one in entries]


def _entry(one: Mapping[str, Any], arrays: Any) -> Entry:
    return Entry(
        key=(one["group"], one["name"], one["what"], one["call"]),
        shape=tuple(one["shape"]),
        dtype=one["dtype"],
        text=one.get("text", ""),
        digest=one.get("digest", ""),
        sample=arrays[str(one["sample"])] if "sample" in one else None,
    )


@dataclass(frozen=True)
class Compared:
    """Differences of two passes.

    Args:
        stages: the first difference of each stage, in order.
        inside: the same for stages of the policy that lead to the same actions.
        count: tensors and texts that both sides have.
        unmatched: names that only one side has.
    """

    stages: list[StageDifference]
    inside: list[StageDifference]
    count: int
    unmatched: list[str]


def compare(
    first: Sequence[Entry], second: Sequence[Entry], reordered: Sequence[Entry] = (), steps: int | None = None
) -> Compared:
    """Compare the second record with the first, in the order of the first.

    Two versions may compute the same in another way. So what a module is given counts where what it gives differs too,
    and a difference inside the policy counts where the policy's actions differ.

    Args:
        reordered: the first side's record with its sums in another order; where it has none of an entry, the dtype's
            floor counts alone.
        steps: the policy's denoising steps, by which calls of a module are named.
    """
    others, own = {entry.key: entry for entry in second}, {entry.key: entry for entry in reordered}
    calls, other_calls = _calls(first), _calls(second)
    differing: dict[Key, StageDifference] = {}
    for entry in first:
        if (other := others.get(entry.key)) is not None:
            stage = stage_name(entry.key, calls[entry.key[:2]], steps)
            if (difference := _difference(entry, other, own.get(entry.key), stage)) is not None:
                differing[entry.key] = difference
    changed = {(group, name) for group, name, what, _ in differing if what.startswith(GIVES)}
    found: dict[str, StageDifference] = {}
    if (unread := _unread(first, second)) is not None:
        found[unread.stage] = unread
    for entry in first:
        group, name, what, call = entry.key
        if entry.key in differing:
            difference = differing[entry.key]
            if difference.kind != "shape" or not what.startswith(GIVEN) or (group, name) in changed:
                found.setdefault(difference.stage, difference)
        elif entry.key not in others and 0 < other_calls[group, name] < call:
            stage = stage_name(entry.key, calls[group, name], steps)
            found.setdefault(stage, _other_count(stage, name or group, calls[group, name], other_calls[group, name]))
    for (group, name), there in other_calls.items():
        if there > (here := calls[group, name]) > 0:
            stage = stage_name((group, name, "", here), here, steps)
            found.setdefault(stage, _other_count(stage, name or group, here, there))
    stages = list(found.values())
    inside: list[StageDifference] = []
    actions = [key for key in others if key[0] == POLICY and not key[1]]
    if actions and not any(key in differing for key in actions):
        outside = {entry.key[0] for entry in first if entry.key[0] != POLICY}
        inside = [difference for difference in stages if difference.stage not in outside]
        stages = [difference for difference in stages if difference.stage in outside]
    return Compared(stages, inside, sum(entry.key in others for entry in first), _unmatched_names(calls, other_calls))


def _other_count(stage: str, name: str, here: int, there: int) -> StageDifference:
    words = f"{name} is called {here} times on one side and {there} on the other"
    return StageDifference(kind="calls", stage=stage, place=name, words=words)


def compare_gradients(
    loss: float, gradient: Sequence[Entry], other_loss: float, other: Sequence[Entry]
) -> GradientAgreement:
    """Return how far two losses and gradients are apart; the gradients by the samples of what both sides have."""
    others = {entry.key: entry for entry in other}
    pairs = [(entry.sample, others[entry.key].sample) for entry in gradient if entry.key in others]
    alike = [(a, b) for a, b in pairs if a is not None and b is not None and a.size == b.size]
    before, after = (np.concatenate([np.empty(0), *each]) for each in (zip(*alike, strict=True) if alike else ((), ())))
    lengths = float(np.linalg.norm(before)) * float(np.linalg.norm(after))
    finite = bool(np.isfinite(before).all() and np.isfinite(after).all())
    cosine = float(before @ after) / lengths if finite and lengths > 0 else 0.0
    error = float(np.linalg.norm(before - after) / np.linalg.norm(before)) if finite and lengths > 0 else None
    known = bool(np.isfinite(loss) and np.isfinite(other_loss))
    return GradientAgreement(
        loss=other_loss if np.isfinite(other_loss) else None,
        baseline_loss=loss if np.isfinite(loss) else None,
        loss_error=abs(other_loss - loss) / abs(loss) if known and loss else None,
        cosine=min(max(cosine, -1.0), 1.0),
        error=error,
        note="Gradients are compared by a sample of each parameter's.",
    )


def settings(first: Mapping[str, str], second: Mapping[str, str]) -> list[StageDifference]:
    """Return the settings that both sides have and that differ."""
    return [
        StageDifference(
            kind="setting",
            stage="settings",
            place=name,
            words=f"{name} is {value} on one side and {second[name]} on the other",
        )
        for name, value in first.items()
        if name in second and second[name] != value
    ]


def stage_name(key: Key, calls: int, steps: int | None) -> str:
    """Return the stage of an entry in words.

    Args:
        calls: of its module in the pass.
        steps: the policy's denoising steps; None for a policy without.
    """
    group, name, _, call = key
    if group != POLICY:
        return group
    if _VISION.search(name):
        return "vision"
    if steps and steps > 1 and calls >= steps and calls % steps == 0:
        return f"denoising step {(call - 1) * steps // calls + 1}"
    if steps and _LANGUAGE.search(name):
        return "prefix"
    parts = [part for part in name.split(".") if part != "model"]
    return parts[0].replace("_", " ") if parts and parts[0] else "actions before postprocessing"


def distance(first: Entry, second: Entry) -> float | None:
    """Return the length of the difference over the length of the first; None for what is no list of numbers."""
    if first.sample is None or second.sample is None or first.sample.size != second.sample.size:
        return None
    before, after = (_unmask_values(entry.sample) for entry in (first, second) if entry.sample is not None)
    if not np.array_equal(np.isfinite(before), np.isfinite(after)):
        return float("inf")
    same = np.isfinite(before)
    length = float(np.linalg.norm(before[same]))
    apart = float(np.linalg.norm(before[same] - after[same]))
    apart = max(apart, length if not np.array_equal(before[~same], after[~same], equal_nan=True) else 0.0)
    return apart / length if length > 0 else (0.0 if apart == 0 else float("inf"))


def _unmask_values(values: np.ndarray) -> np.ndarray:
    wide = values.astype(np.float64)
    return np.where(np.abs(wide) >= _MASKED, np.copysign(np.inf, wide), wide)


def _difference(entry: Entry, other: Entry, own: Entry | None, stage: str) -> StageDifference | None:
    place = _place(entry.key)
    if entry.key[0] == "weights" and entry.dtype != other.dtype:
        words = f"{place} is {entry.dtype} on one side and {other.dtype} on the other"
        return StageDifference(kind="type", stage=stage, place=place, words=words)
    if entry.shape != other.shape and sorted(entry.shape) == sorted(other.shape):
        return None  # the same numbers with their dimensions in another order: what they lead to is compared
    if entry.shape != other.shape:
        shapes = f"{_shape_text(entry.shape)} on one side and {_shape_text(other.shape)} on the other"
        return StageDifference(kind="shape", stage=stage, place=place, words=f"{place} is {shapes}")
    if "text" in (entry.dtype, other.dtype) or not _floating(entry) or not _floating(other):
        if entry.dtype != other.dtype or (entry.text == other.text and entry.digest == other.digest):
            return None  # another kind of number for the same thing is no difference of values
        return StageDifference(kind="values", stage=stage, place=place, words=f"{place} differs")
    apart = distance(entry, other)
    if apart is None:
        return None
    moved = distance(entry, own) if own is not None and own.shape == entry.shape else None
    floor = max(FLOORS.get(entry.dtype, 1e-5), FLOORS.get(other.dtype, 1e-5))
    if apart <= max(floor, MARGIN * (moved or 0.0)):
        return None
    by = "by its own length" if not np.isfinite(apart) else f"by {apart:.2g} of its length"
    against = f"; sums in another order move it by {moved:.2g}" if moved is not None and np.isfinite(moved) else ""
    return StageDifference(
        kind="weights" if entry.key[0] == "weights" else "values",
        stage=stage,
        place=place,
        distance=apart if np.isfinite(apart) else None,
        rounding=moved if moved is not None and np.isfinite(moved) else None,
        words=f"{place} differs {by}{against}",
    )


def _unread(first: Sequence[Entry], second: Sequence[Entry]) -> StageDifference | None:
    """Return the weights of the first side that the second has under no name; None if it has all.

    A module that was renamed has the same values under another name. If it has not, LeRobot did not read them there:
    its policies are read without complaint about names that are missing.
    """
    here, there = ({e.key: e for e in entries if e.key[0] == "weights"} for entries in (first, second))
    values = {_values(entry) for key, entry in there.items() if key not in here}
    lost = [entry for key, entry in here.items() if key not in there and _values(entry) not in values]
    if not lost:
        return None
    more = f" and {len(lost) - 1} more are" if len(lost) > 1 else " is"
    words = f"{lost[0].key[2]}{more} not on the other side, under no name: it was not read there, or is another module"
    return StageDifference(kind="weights", stage="weights", place=lost[0].key[2], words=words)


def _values(entry: Entry) -> tuple[tuple[int, ...], bytes]:
    return entry.shape, b"" if entry.sample is None else entry.sample.tobytes()


def _floating(entry: Entry) -> bool:
    return entry.dtype in FLOORS or "float" in entry.dtype


def _place(key: Key) -> str:
    _, name, what, call = key
    return " ".join(filter(None, (name, what, f"(call {call})" if call > 1 else "")))


def _shape_text(shape: Iterable[int]) -> str:
    return "×".join(map(str, shape)) or "one number"


def _calls(entries: Sequence[Entry]) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for entry in entries:
        group, name, _, call = entry.key
        counts[group, name] = max(counts[group, name], call)
    return counts


def _unmatched_names(first: Mapping[tuple[str, str], int], second: Mapping[tuple[str, str], int]) -> list[str]:
    alone = sorted(name for group, name in {*first} ^ {*second} if group == POLICY and name)
    return [name for name in alone if not any(name.startswith(f"{other}.") for other in alone)]
