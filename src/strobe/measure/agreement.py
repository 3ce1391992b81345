"""Comparing actions: how far two variants' chunks differ on the same observations with the same noise."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from strobe.results.comparison import NOT_FINITE, Agreement


def agree(baseline: Sequence[Tensor], candidate: Sequence[Tensor]) -> Agreement:
    """Compare action chunks of equal shape, pair by pair, in the action's own units.

    Numbers that are not finite are left out of the errors and counted in the note; the cosine is then 0.

    Raises:
        ValueError: no pairs, or pairs of unequal shape.
    """
    if not baseline or len(baseline) != len(candidate):
        raise ValueError(f"need as many candidate chunks as baseline chunks, got {len(baseline)} and {len(candidate)}")
    product = left = right = largest = total = 0.0
    compared = broken = 0
    for a, b in zip(baseline, candidate, strict=True):
        if a.shape != b.shape:
            raise ValueError(f"chunks of unequal shape: {tuple(a.shape)} and {tuple(b.shape)}")
        a, b = a.double().flatten(), b.double().flatten()
        finite = a.isfinite() & b.isfinite()
        if not finite.all():
            broken += int((~finite).sum())
            a, b = a[finite], b[finite]
        error = (a - b).abs()
        product, left, right = product + float(a @ b), left + float(a @ a), right + float(b @ b)
        largest, total = max(largest, float(error.max()) if error.numel() else 0.0), total + float(error.sum())
        compared += error.numel()
    lengths = (left * right) ** 0.5
    # What is not finite has no direction: no cosine of the rest may vouch for it.
    cosine = product / lengths if lengths > 0 and not broken else 0.0
    return Agreement(
        cosine=min(max(cosine, -1.0), 1.0),
        largest_error=largest,
        mean_error=total / max(compared, 1),
        observations=len(baseline),
        note=f"{broken:,} numbers of {compared + broken:,} are {NOT_FINITE}" if broken else "",
    )


def add_note(agreement: Agreement, note: str) -> None:
    """Append ``note`` to the agreement's notes; '' adds nothing."""
    agreement.note = "; ".join(filter(None, (agreement.note, note)))


def in_words(agreement: Agreement) -> str:
    """Describe an agreement in a line."""
    figures = f"cosine {agreement.cosine:.6f}, largest difference {agreement.largest_error:.4g} in the action's units"
    return f"{figures} ({agreement.note})" if agreement.note else figures
