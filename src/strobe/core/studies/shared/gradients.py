"""Do variants of a training step train the same? Their losses and gradients, from the same batch, weights and seed."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from strobe.core.measure.memory import available_bytes
from strobe.core.measure.time_limit import WorkLimit
from strobe.core.results.comparison import GradientAgreement
from strobe.core.studies.shared.progress import Reporter, Silent, Steps
from strobe.core.subjects.subject import ActingSubject, Observation
from strobe.core.treatments.treatment import Variant

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

OTHER_SEED = 1
LARGEST_SCALE = 2.0**16  # GradScaler's first
OWN_NOISE = (
    "micro-batches, compiled code and, on a GPU, mixed precision draw noise of their own (dropout, VAE, diffusion): "
    "compare their cosine with that of two seeds, which is what other noise alone does to the baseline's gradient"
)
NOT_FINITE = "a gradient that is infinite or not a number has no direction: its cosine is given as 0"

Gradient = list["Tensor | None"]
FEWEST = 3  # passes of a comparison: of the first variant under two seeds, and of another


@dataclass
class GradientCheck:
    """How each variant's gradient compares with the first one's.

    Args:
        agreements: by the variant's name; without those that were not compared.
        note: why nothing was compared.
        interrupted: whether Ctrl-C ended it.
    """

    agreements: dict[str, GradientAgreement] = field(default_factory=dict)
    note: str | None = None
    interrupted: bool = False


def gradients(
    subject: ActingSubject,
    variants: Sequence[Variant],
    batch_size: int,
    reporter: Reporter | None = None,
    limit: WorkLimit | None = None,
    step_s: float = 0.0,
) -> GradientCheck:
    """Compare each variant's gradient with the first one's.

    No optimizer steps are taken, so all variants start from the same weights. The first one's gradient is held in the
    host's memory meanwhile. Ctrl-C keeps the variants that were compared.

    Args:
        limit: of the command's work: variants that there was no time for are noted there.
        step_s: seconds of a training step, by estimate.
    """
    reporter, limit, check = reporter or Silent(), limit or WorkLimit(), GradientCheck()
    baseline, *candidates = variants
    needed = sum(p.numel() * p.element_size() for p in subject.policy.parameters() if p.requires_grad)
    if 2 * needed > available_bytes():
        check.note = f"gradients were not compared: a copy of them takes {needed / 2**30:.1f} GiB, which is not free"
        return check
    if not limit.fits(FEWEST * step_s):
        limit.leave_out("gradients were not compared", len(variants) * step_s + step_s)
        return check
    raw = subject.inputs.batch(batch_size)
    try:
        reporter.stage(f"comparing the gradients of {', '.join(variant.name for variant in variants)}")
        steps = Steps(reporter, "passes")
        of_baseline = _loss_and_gradient(subject, baseline, raw, copied=True)
        reference = of_baseline.gradient
        steps(1, 1 + len(variants))
        _loss_and_gradient(subject, baseline, raw, OTHER_SEED)
        steps(2, 1 + len(variants))
        seeds = _difference(reference, _gradient(subject.policy))
        for number, variant in enumerate(candidates, 3):
            if not limit.fits(step_s):
                limit.leave_out(f"the gradient of {variant.name} was not compared", step_s)
                continue
            began = time.perf_counter()
            agreement = _compare_gradient(subject, variant, raw, of_baseline, seeds)
            agreement.own_noise |= _noise_source(variant) != _noise_source(baseline)
            if agreement.own_noise and seeds.cosine < 1 - 1e-9:
                agreement.note = OWN_NOISE
            if not agreement.cosine and agreement.error is None:
                agreement.note = NOT_FINITE
            check.agreements[variant.name] = agreement
            step_s = max(step_s, time.perf_counter() - began)
            steps(number, 1 + len(variants))
    except KeyboardInterrupt:
        check.interrupted = True
    finally:
        subject.policy.zero_grad()
    return check


def _compare_gradient(
    subject: ActingSubject, variant: Variant, raw: dict[str, Any], of_baseline: _Passed, seeds: _Difference
) -> GradientAgreement:
    reference = of_baseline.gradient
    passed = _loss_and_gradient(subject, variant, raw)
    difference, before, after = _difference(reference, _gradient(subject.policy)), of_baseline.loss, passed.loss
    known = math.isfinite(before) and math.isfinite(after)
    agreement = GradientAgreement(
        loss=after if math.isfinite(after) else None,
        baseline_loss=before if math.isfinite(before) else None,
        loss_error=abs(after - before) / abs(before) if known and before else None,
        cosine=difference.cosine,
        error=difference.error,
        seed_cosine=seeds.cosine,
    )
    # A card draws the masks of dropout in another order for a half dtype: it computes more of them at once.
    agreement.own_noise = subject.device.type != "cpu" and passed.autocast != of_baseline.autocast
    if str(passed.autocast) == "torch.float16":
        _loss_and_gradient(subject, variant, raw, scale=1.0)
        agreement.underflow, agreement.overflow = _gradient_losses(reference, _gradient(subject.policy))
    return agreement


@dataclass
class _Passed:
    """A forward and a backward pass of a variant: ``autocast`` is the dtype that the variant casts to."""

    loss: float
    gradient: Gradient
    autocast: torch.dtype | None


def _loss_and_gradient(
    subject: ActingSubject,
    variant: Variant,
    raw: Observation,
    index: int = 0,
    *,
    copied: bool = False,
    scale: float | None = None,
) -> _Passed:
    """Compute the loss, with the gradient in the parameters, and copy it to the host where ``copied``.

    A variant in float16 gets the largest scale of its loss at which the gradient is finite, which is where a GradScaler
    ends up, unless ``scale`` is given.
    """
    undo = variant.apply(subject)
    try:
        autocast = subject.training.autocast
        scaled = scale if scale is not None else LARGEST_SCALE if subject.training.scaler is not None else 1.0
        while True:
            loss = float(subject.gradient(raw, index, scaled))
            if scale is not None or scaled <= 1:
                break
            if all(bool(g.isfinite().all()) for g in _gradient(subject.policy) if g is not None):
                break
            scaled /= 2
    finally:
        undo()
    copy = [None if g is None else g.cpu().clone() for g in _gradient(subject.policy)] if copied else []
    return _Passed(loss, copy, autocast)


def _gradient(policy: nn.Module) -> Gradient:
    return [parameter.grad for parameter in policy.parameters()]


@dataclass
class _Difference:
    cosine: float
    error: float | None


def _difference(reference: Gradient, other: Gradient) -> _Difference:
    product = reference_square = other_square = distance = 0.0
    for a, b in zip(reference, other, strict=True):
        # One tensor at a time in float64, on the host: not every device has it.
        x = None if a is None else a.double().flatten()
        y = None if b is None else b.cpu().double().flatten()
        if x is not None and y is not None:
            product, distance = product + float(x @ y), distance + float((x - y).square().sum())
        elif (unmatched := x if x is not None else y) is not None:
            distance += float(unmatched.square().sum())
        reference_square += 0.0 if x is None else float(x @ x)
        other_square += 0.0 if y is None else float(y @ y)
    if not (math.isfinite(reference_square) and math.isfinite(other_square)):
        return _Difference(0.0, None)
    lengths = (reference_square * other_square) ** 0.5
    same = 1.0 if reference_square == other_square == 0 else 0.0
    cosine = product / lengths if lengths > 0 else same
    return _Difference(
        min(max(cosine, -1.0), 1.0), (distance / reference_square) ** 0.5 if reference_square > 0 else None
    )


def _gradient_losses(reference: Gradient, other: Gradient) -> tuple[float, int]:
    """Return the share of the reference's non-zero numbers that are 0 in the other, and how many are not finite."""
    count = zero = broken = 0
    for a, b in zip(reference, other, strict=True):
        if a is None or b is None:
            continue
        other_gradient = b.cpu()
        nonzero = a != 0
        count += int(nonzero.sum())
        zero += int((nonzero & (other_gradient == 0)).sum())
        broken += int((~other_gradient.isfinite()).sum())
    return zero / max(count, 1), broken


def _noise_source(variant: Variant) -> tuple[int, bool]:
    return variant.micro_batches, "compiled" in variant.builds
