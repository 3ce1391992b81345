"""Comparing actions: how far two variants' chunks differ on the same observations with the same noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Union

import numpy as np

from strobe.core.results.agreement import ActionScale, Agreement, DimensionAgreement
from strobe.core.torch_there import is_tensor

if TYPE_CHECKING:
    from torch import Tensor

Values = Union["Tensor", np.ndarray]  # of an output: a tensor on any device, or an array
V = TypeVar("V", bound=Values)

# A decision counts as made where the baseline action is further from the middle than this share of the way from one
# decision to the other. One that sits in the middle can fall to either side by rounding, and says nothing.
UNDECIDED = 0.05


def agree(
    baseline: Sequence[Values],
    candidate: Sequence[Values],
    scale: ActionScale | None = None,
    *,
    executed: int | None = None,
    calls: Sequence[str] = (),
) -> Agreement:
    """Compare action chunks of equal shape, pair by pair.

    Values that are not finite in one of a pair are left out of the errors and counted; the cosine is then 0. Those
    that are the same in both, as the −inf of a mask is, are no error.

    Args:
        baseline, candidate: chunks, (…, chunk, action dim) where there is a ``scale``, else of any shape.
        scale: the spread of each dimension; None for errors in the action's own units alone.
        executed: actions of a chunk that are executed, from its first on; None if that is not known.
        calls: of each pair, what the call was, to say where the largest error is.

    Raises:
        ValueError: no pairs, pairs of unequal shape, or a ``scale`` of other dimensions than the actions have.
    """
    if not baseline or len(baseline) != len(candidate):
        raise ValueError(f"need as many candidate chunks as baseline chunks, got {len(baseline)} and {len(candidate)}")
    product = left = right = largest = total = 0.0
    compared = broken = shared = 0
    for a, b in zip(baseline, candidate, strict=True):
        if a.shape != b.shape:
            raise ValueError(f"chunks of unequal shape: {tuple(a.shape)} and {tuple(b.shape)}")
        a, b = doubles(a).ravel(), doubles(b).ravel()
        finite = np.isfinite(a) & np.isfinite(b)
        if not finite.all():
            alike = int(((np.isnan(a) & np.isnan(b)) | (np.isinf(a) & (a == b))).sum())
            shared, broken = shared + alike, broken + int((~finite).sum()) - alike
            a, b = a[finite], b[finite]
        error = np.abs(a - b)
        product, left, right = product + float(a @ b), left + float(a @ a), right + float(b @ b)
        largest, total = max(largest, float(error.max()) if error.size else 0.0), total + float(error.sum())
        compared += error.size
    lengths = (left * right) ** 0.5
    # What is not finite has no direction: no cosine of the rest may vouch for it. Zeros on both sides are the same.
    cosine = 0.0 if broken else product / lengths if lengths > 0 else float(left == right)
    agreement = Agreement(
        cosine=min(max(cosine, -1.0), 1.0),
        largest_error=largest,
        mean_error=total / max(compared, 1),
        observations=len(baseline),
        note=f"{_describe_non_finite(broken, compared + broken + shared)}, so the cosine is given as 0"
        if broken
        else "",
        not_finite=broken,
    )
    if shared:
        add_note(agreement, f"{_describe_non_finite(shared, compared + broken + shared)}, the same in both")
        agreement.unjudged = None if compared else "no number of either side is finite"
    if scale is not None:
        _fill_dimensions(agreement, baseline, candidate, scale, executed, calls)
    return agreement


def crop_to_common_actions(baseline: Sequence[V], candidate: Sequence[V]) -> tuple[list[V], list[V]]:
    """Cut chunks, (…, chunk, action dim), to the actions that both of a pair have."""
    first: Sequence[Any] = baseline
    second: Sequence[Any] = candidate
    lengths = [min(a.shape[-2], b.shape[-2]) for a, b in zip(first, second, strict=True)]
    return (
        [chunk[..., :length, :] for chunk, length in zip(first, lengths, strict=True)],
        [chunk[..., :length, :] for chunk, length in zip(second, lengths, strict=True)],
    )


def add_note(agreement: Agreement, note: str | None) -> None:
    """Append ``note`` to the agreement's notes."""
    agreement.note = "; ".join(filter(None, (agreement.note, note)))


def describe_agreement(agreement: Agreement) -> str:
    """Describe an agreement in a line."""
    if agreement.rms is None or agreement.worst is None:
        cosine, largest = agreement.cosine, agreement.largest_error
        figures = f"cosine {cosine:.6f}, largest difference {largest:.4g} in the {agreement.of}' own units"
    else:
        figures = f"{agreement.of} move by {agreement.rms:.2g} σ (RMS), {agreement.worst:.2g} σ at most"
        where = ", ".join(filter(None, (agreement.worst_dimension, agreement.worst_at)))
        figures += f" ({where})" if where and agreement.worst else ""
        if agreement.flips:
            figures += f", {100 * agreement.flips:.3g} % of decisions flip"
    return f"{figures}; {agreement.note}" if agreement.note else figures


def doubles(numbers: Values) -> np.ndarray:
    """Return ``numbers``, of whatever dtype and device, in float64 and in their shape."""
    if is_tensor(numbers):
        numbers = numbers.detach().double().cpu().numpy()
    return np.asarray(numbers, np.float64)


def _rows(outputs: Sequence[Values], width: int) -> np.ndarray:
    return np.concatenate([doubles(each).reshape(-1, width) for each in outputs])


def _describe_non_finite(broken: int, of: int) -> str:
    return f"{broken:,} of {of:,} numbers {'is' if broken == 1 else 'are'} infinite or not a number"


def _fill_dimensions(
    agreement: Agreement,
    baseline: Sequence[Values],
    candidate: Sequence[Values],
    scale: ActionScale,
    executed: int | None,
    calls: Sequence[str],
) -> None:
    """Fill in the figures in units of the spread."""
    width = len(scale.spread)
    if any(chunk.shape[-1] != width for chunk in baseline):
        raise ValueError(f"the spread has {width} dimensions, the actions {baseline[0].shape[-1]}")
    before, after = (np.stack([doubles(c).reshape(-1, width) for c in chunks]) for chunks in (baseline, candidate))
    finite = np.isfinite(before) & np.isfinite(after)
    with np.errstate(invalid="ignore"):
        errors = np.where(finite, after - before, 0.0) / np.asarray(scale.spread)
    sizes = np.abs(errors)
    flips = [
        _flips(before[..., d], after[..., d], scale.middle[d], scale.width[d]) if scale.decides[d] else None
        for d in range(width)
    ]
    agreement.spread = scale.source
    add_note(agreement, scale.note)
    agreement.dimensions = [
        DimensionAgreement(
            name=scale.names[d],
            spread=scale.spread[d],
            judged_by=scale.judged_by[d] if scale.judged_by else "statistics",
            rms=_rms(errors[..., d]),
            p99=float(np.quantile(sizes[..., d], 0.99)),
            worst=float(sizes[..., d].max()),
            offset=float(errors[..., d].mean()),
            flips=flips[d],
            along=[_rms(errors[:, step, d]) for step in range(errors.shape[1])],
        )
        for d in range(width)
    ]
    dimensions = agreement.dimensions
    agreement.rms = max(one.rms for one in dimensions)
    agreement.p99 = max(one.p99 for one in dimensions)
    agreement.worst = max(one.worst for one in dimensions)
    call, step, dimension = (int(i) for i in np.unravel_index(sizes.argmax(), sizes.shape))
    agreement.worst_dimension = scale.names[dimension]
    agreement.worst_at = ", ".join(
        filter(None, (calls[call] if calls else f"call {call + 1}", f"action {step + 1} of {errors.shape[1]}"))
    )
    made = [share for share in flips if share is not None]
    agreement.flips = max(made) if made else None
    agreement.predicted = errors.shape[1]
    if executed is not None:
        agreement.executed = count = min(executed, errors.shape[1])
        run, made = errors[:, :count], [d for d in range(width) if scale.decides[d]]
        agreement.executed_rms = max(_rms(run[..., d]) for d in range(width))
        agreement.executed_p99 = max(float(np.quantile(np.abs(run[..., d]), 0.99)) for d in range(width))
        agreement.executed_worst = float(np.abs(run).max())
        shares = [_flips(before[:, :count, d], after[:, :count, d], scale.middle[d], scale.width[d]) for d in made]
        agreement.executed_flips = max((share for share in shares if share is not None), default=None)


def _rms(errors: np.ndarray) -> float:
    return float(np.sqrt(np.square(errors).mean()))


def _flips(before: np.ndarray, after: np.ndarray, middle: float, width: float) -> float | None:
    """Share of the decisions made that are the other one after; None if none was made."""
    made = np.abs(before - middle) > UNDECIDED * width
    flipped = made & ((before > middle) != (after > middle))
    return float(flipped.sum()) / int(made.sum()) if made.any() else None


# Comparing a backbone's features: channel by channel and token by token, each channel in its own spread.
#
# One cosine over all features sees neither a factor nor changes next to a channel of large numbers, which many
# vision transformers have ("Massive Activations in Large Language Models", Sun et al., COLM 2024, section 5).

SHOWN_CHANNELS = 8  # channels that are listed, by their RMS
# A channel rests whose own standard deviation is less than this share of its magnitude: 0.02 σ, which rounding may do,
# would be three steps of float32, which no sum can go below.
STILL_CHANNEL = 1e-5
CHANNEL_SPREAD = "each channel's own standard deviation over the baseline tokens"
FEWEST_TOKENS = 8  # tokens whose standard deviation says something


def agree_features(baseline: Sequence[Values], candidate: Sequence[Values]) -> Agreement:
    """Compare features of equal shape, pair by pair: (…, tokens, channels).

    Errors of a channel are in units of its spread σ: its standard deviation over all baseline tokens. A channel that
    does not move is judged by its own magnitude, and one that is 0 throughout by the others' least magnitude. Fewer
    than `FEWEST_TOKENS` tokens have no spread, and no figures in σ.

    Raises:
        ValueError: no pairs, or pairs of unequal shape.
    """
    agreement = agree(baseline, candidate)
    agreement.of = "features"
    agreement.distinct = len(baseline)
    width = baseline[0].shape[-1] if baseline[0].shape else 1
    before, after = _rows(baseline, width), _rows(candidate, width)
    if len(before) < FEWEST_TOKENS or not (np.isfinite(before) & np.isfinite(after)).all():
        return agreement
    spread = _spread(before)
    errors = (after - before) / spread
    sizes = np.abs(errors)
    channels, tokens = (np.sqrt(np.square(errors).mean(axis)) for axis in (0, 1))
    agreement.rms, agreement.worst, agreement.token = float(channels.max()), float(sizes.max()), float(tokens.max())
    agreement.p99 = float(np.quantile(sizes, 0.99))
    agreement.spread = CHANNEL_SPREAD
    agreement.worst_dimension = f"channel {int(sizes.max(0).argmax())}"
    agreement.worst_at = f"token {int(tokens.argmax()) + 1:,} of {len(tokens):,}"
    agreement.dimensions = _columns(errors, spread, "channel")
    return agreement


def _spread(features: np.ndarray) -> np.ndarray:
    deviation, magnitude = features.std(0, ddof=1), np.sqrt(np.square(features).mean(0))
    spread = np.where(deviation > STILL_CHANNEL * magnitude, deviation, magnitude)
    return np.where(spread > 0, spread, min(spread[spread > 0], default=1.0))


# Comparing the outputs of an object in Python: column by column, each in its own spread.

COLUMN_SPREAD = "each column's own standard deviation over the baseline outputs"


def agree_outputs(
    baseline: Sequence[Values], candidate: Sequence[Values], shapes: Sequence[tuple[str, tuple[int, ...]]]
) -> Agreement:
    """Compare outputs of equal shape, pair by pair. Nothing is known of what their numbers mean.

    A column is a place along the last dimension of an array; its rows are all that the array has there, in all outputs.
    Errors of a column are in units of its spread σ: its standard deviation over its baseline rows. A column that does
    not move among others that do is judged by its magnitude, as a channel of features is. An array with fewer than
    `FEWEST_TOKENS` different rows has no spread. If it differs at all, then there are no figures in σ, and the note
    says so.

    Args:
        baseline, candidate: the numbers of each output: one array in its own shape, or several in a row.
        shapes: path → shape of the arrays of each output.

    Raises:
        ValueError: no pairs, or pairs of unequal shape.
    """
    agreement = agree(baseline, candidate)
    agreement.of = "outputs"
    if agreement.not_finite:
        return agreement
    whole = sum(math.prod(shape) for _, shape in shapes)
    outputs = [[doubles(each).ravel() for each in of] for of in (baseline, candidate)]
    if any(output.size != whole for output in outputs[0]):
        return agreement  # only some rows of each output are held, or they change their shape
    columns: list[DimensionAgreement] = []
    at, largest = 0, -1.0
    for path, shape in shapes:
        width, numbers = shape[-1] if shape else 1, math.prod(shape)
        before, after = (_rows([each[at : at + numbers] for each in of], width) for of in outputs)
        at += numbers
        finite = np.isfinite(before) & np.isfinite(after)
        if np.array_equal(before[finite], after[finite]):
            continue
        if not finite.all():  # the same in both, or `not_finite` would have been counted: their column's mean
            mean = np.where(finite, before, 0.0).sum(0) / np.maximum(finite.sum(0), 1)
            before, after = np.where(finite, before, mean), np.where(finite, after, mean)
        if (different := len(np.unique(before, axis=0))) < FEWEST_TOKENS:
            rows = f"{path or 'an output'} has {different} different row{'s' * (different != 1)}"
            add_note(agreement, f"no spread (σ) is known: {rows}, and {FEWEST_TOKENS} show one; give more inputs")
            return agreement
        spread = _spread(before)
        errors = (after - before) / spread
        sizes = np.abs(errors)
        columns += _columns(errors, spread, path or "column")
        if float(sizes.max()) > largest:
            largest = float(sizes.max())
            row, column = (int(i) for i in np.unravel_index(sizes.argmax(), sizes.shape))
            each = numbers // width
            agreement.worst_dimension = f"{path or 'column'} {column}"
            agreement.worst_at = f"call {row // each + 1}" + (f", row {row % each + 1} of {each}" if each > 1 else "")
        agreement.p99 = max(agreement.p99 or 0.0, float(np.quantile(sizes, 0.99)))
    agreement.spread = COLUMN_SPREAD
    agreement.dimensions = sorted(columns, key=lambda column: -column.rms)[:SHOWN_CHANNELS]
    agreement.rms = max((column.rms for column in columns), default=0.0)
    agreement.p99 = agreement.p99 or 0.0
    agreement.worst = max(largest, 0.0)
    return agreement


def _columns(errors: np.ndarray, spread: np.ndarray, prefix: str) -> list[DimensionAgreement]:
    """Return the columns of an array with the largest RMS; ``errors`` are in σ, (rows, columns)."""
    rms = np.sqrt(np.square(errors).mean(0))
    return [
        DimensionAgreement(
            name=f"{prefix} {at}",
            spread=float(spread[at]),
            rms=float(rms[at]),
            p99=float(np.quantile(np.abs(errors[:, at]), 0.99)),
            worst=float(np.abs(errors[:, at]).max()),
            offset=float(errors[:, at].mean()),
        )
        for at in np.argsort(-rms, kind="stable")[:SHOWN_CHANNELS].tolist()
    ]
