"""Faults that a guard could once not see: no figure for a limit, no yardstick, a figure of the wrong numbers.

Each case gives the judgement that the product makes of a policy or a backbone that is wrong. None may be 'held'.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import torch
from planted.faults import Planted, plant_in_output
from planted.scales import cases
from torch import Tensor

import strobe
from strobe.core.measure.agreement import agree_features
from strobe.core.measure.guard import Guard, Guards, Judgement
from strobe.core.sameness.check import Sameness
from strobe.core.sameness.reordered import features_reordered
from strobe.core.sameness.visits import plan
from strobe.core.subjects.subject import Subject
from strobe.core.treatments.patch import Patches
from strobe.core.treatments.treatment import Effect, Treatment, Undo, Variant
from strobe.lerobot.policies.options import ModelOptions
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.vision.model_subject import ModelSubject, load_model

MASSIVE = 1e4  # of one channel, beside which the others hardly count in a cosine
Case = tuple[str, str, Judgement]  # what is wrong, what it was compared with, and the judgement


def policy_cases(subject: PolicySubject) -> Iterator[Case]:
    """Policies that act wrongly, held as `strobe verify` and `strobe compare` hold them."""
    negated = Planted("every action negated", "lossy", plant_in_output(lambda chunk, _: -chunk))
    same = Sameness(subject, count=4)
    found = same.check(Variant(negated.name, (negated,)), plan(same.count, rtc=False))
    drop = Guards.parse("success_drop<=0.1")
    yield negated.name, str(drop), drop.strictest_guard(["lossy"]).judge(found)
    yield "exact treatment returns zeros, one observation fails", "exact", _judge_baseline_failure(subject)
    yield "the 1 of 50 actions that is executed is off by 0.13 σ", "by effect", _judge_executed_action(subject)
    yield "exact fault of 3 σ in a policy that jumps", "exact", _jumping(subject)


def scale_cases() -> Iterator[Case]:
    """Policies whose statistics hide a fault (`scales.py`), held as `strobe verify` holds them."""
    for name, made, fault in cases():
        same = Sameness(made(), count=4)
        found = same.check(Variant(name, (fault,)), plan(same.count, rtc=False))
        guard = Guards().strictest_guard([fault.effect])
        yield name, str(guard), guard.judge(found)


def object_cases() -> Iterator[Case]:
    """Objects and functions in Python that differ where `strobe.verify` once did not look."""
    deep = functools.reduce(lambda held, _: [held], range(200), 0.0)
    outputs: dict[str, tuple[object, object]] = {
        "a whole number past 2⁵³": (np.array([2**53]), np.array([2**53 + 1])),
        "another mask": (np.ma.array([1.0, 2.0], mask=[0, 1]), np.ma.array([1.0, 2.0], mask=[1, 0])),
        "another decimal": (Decimal("0.1"), Decimal("0.2")),
        "200 levels deep": (deep, [deep]),
        "an object without public fields": (object(), object()),
        "not a number on both sides": (np.full(3, np.nan), np.full(3, np.nan)),
    }
    pairs: dict[str, tuple[object, object]] = {
        name: (functools.partial(_answer, one), functools.partial(_answer, other))
        for name, (one, other) in outputs.items()
    }
    pairs["state that decays by 0.6 in place of 0.5"] = Decaying(0.5), Decaying(0.6)
    inputs = [np.full(3, float(number)) for number in range(3)]
    for name, (before, after) in pairs.items():
        (check,) = strobe.verify(before, after, inputs, guard="largest_error<=1e-6").checks
        yield f"in Python: {name}", check.guard, Judgement(check.outcome, check.broken or check.unjudged)
    (check,) = strobe.verify(np.sin, np.sin, inputs[:1] * 12, guard="largest_error<=1e-6").checks
    yield "in Python: 12 inputs that are one", check.guard, Judgement(check.outcome, check.unjudged)


class Decaying:
    """A policy that keeps a share of what it saw, until it is reset."""

    def __init__(self, share: float) -> None:
        self.share, self.kept = share, np.zeros(3)

    def reset(self) -> None:
        """Begin an episode."""
        self.kept = np.zeros(3)

    def infer(self, x: np.ndarray) -> np.ndarray:
        """Return what is kept."""
        self.kept = self.share * self.kept + x
        return self.kept


def _answer(held: object, x: np.ndarray) -> object:
    return held if isinstance(held, np.ndarray) else {"action": x, "more": held}


def backbone_cases() -> Iterator[Case]:
    """Features that are wrong, compared with the usual guard and against what users write."""
    subject = load_model(ModelOptions(type="vjepa2", size="tiny"))
    baseline = Variant("untouched")
    reordered = features_reordered(subject, baseline, 1)
    features = _features(subject)
    noise = torch.Generator().manual_seed(0)
    wrong: dict[str, tuple[Tensor, Tensor]] = {
        "features × 10": (features, 10 * features),
        "features × 0.01": (features, 0.01 * features),
        "features of noise": (features, torch.randn(features.shape, generator=noise)),
    }
    massive = features.clone()
    massive[..., 0] += MASSIVE
    replaced = torch.randn(features.shape, generator=noise)
    replaced[..., 0] = massive[..., 0]
    wrong["all channels replaced but a massive one"] = (massive, replaced)
    lost = features.clone()
    lost[:, 3] = torch.randn(features.shape[-1], generator=noise)
    wrong["one token replaced"] = (features, lost)
    for name, (before, after) in wrong.items():
        agreement = agree_features([before], [after])
        for text in ("", "rms<=0.02, worst<=0.2, flips<=0", "exact"):
            guards = Guards(Guard.parse(text) if text else None, kind="features")
            yield f"backbone: {name}", text or "usual", guards.strictest_guard(["rounding"]).judge(agreement, reordered)
        yield (
            f"backbone: {name}",
            "usual, of exact ones",
            Guards(kind="features").strictest_guard(["exact"]).judge(agreement, reordered),
        )


def _features(subject: ModelSubject) -> Tensor:
    return subject.call("inference", 1)(0).float()


def _judge_executed_action(subject: PolicySubject) -> Judgement:
    config: Any = subject.policy.config  # of a policy that predicts chunks
    before, config.n_action_steps = config.n_action_steps, 1
    try:
        same = Sameness(subject, count=4)
        spread = torch.tensor(same.scale.spread)

        def offset_first_action(chunk: Tensor, _: Any) -> Tensor:
            chunk[:, 0] += 0.13 * spread
            return chunk

        fault = Planted("executed off", "rounding", plant_in_output(offset_first_action))
        found = same.check(Variant(fault.name, (fault,)), plan(same.count, rtc=False))
        found.flips = found.executed_flips = 0.0  # the fault is in the sizes alone
        return Guards().strictest_guard(["rounding"]).judge(found)
    finally:
        config.n_action_steps = before


@dataclass
class _Jumps(Treatment):
    """The policy's own way to act: it takes the largest of scores that rounding decides, as tokens and codebooks do."""

    by: list[float]
    effect: Effect = "exact"
    more: float = 0.0
    kept: dict[str, Any] = field(default_factory=dict)

    def apply(self, subject: Subject) -> Undo:
        patches = Patches()
        loaded: Any = subject.loaded  # type: ignore[attr-defined]
        made: Callable[[Tensor], Tensor] = loaded.postprocessor
        size = torch.tensor(self.by)

        def call(actions: Tensor) -> Tensor:
            chunk = made(actions)
            odd = (chunk.double() * 2**24 / size).floor() % 2
            return chunk + size * (0.6 * odd + self.more)

        patches.put(loaded, "postprocessor", call)
        return patches.undo


def _jumping(subject: PolicySubject) -> Judgement:
    spread = Sameness(subject, count=4).scale.spread
    own = _Jumps(spread)
    same = Sameness(subject, [own], count=4)
    reordered = same.yardstick("reordered sums", 4)
    fault = Planted("3 σ off", "exact", plant_in_output(lambda chunk, _: chunk + 3 * torch.tensor(spread)))
    found = same.check(Variant(fault.name, (own, fault)), plan(same.count, rtc=False))
    return Guards().strictest_guard(["exact"]).judge(found, reordered)


def _judge_baseline_failure(subject: PolicySubject) -> Judgement:
    """The baseline fails on one of the check's observations."""
    zeros = Planted("zeros", "exact", plant_in_output(lambda chunk, _: torch.zeros_like(chunk)))
    same = Sameness(subject, count=4)
    same.checks.observations[1].pop("observation.state")
    found = same.check(Variant(zeros.name, (zeros,)), plan(same.count, rtc=False))
    assert same.notes, "the failure is said"
    reordered = same.yardstick("reordered sums", 4)
    return Guards().strictest_guard(["exact"]).judge(found, reordered)
