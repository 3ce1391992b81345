"""Treatments on a tiny policy: do they apply and capture, and are the actions the same?"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from strobe.core.families.capabilities import LiveFields
from strobe.core.measure.guard import Guards, strongest
from strobe.core.results.agreement import Agreement
from strobe.core.sameness.check import PolicyCallError, Sameness, make_guidance
from strobe.core.studies.shared.action_check import plan_visits
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Spec, Treatment, Variant
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import InputOptions, PolicyOptions
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.treatments.graphs.graph import CudaGraph

sys.path.append(str(Path(__file__).parents[2] / "tests"))

from support.devices.replayed_graph import Replayed

STEPS = 3  # denoising steps: a loop, and short
IMAGE = (64, 64)  # height and width of the cameras: what is tried does not depend on them
OBSERVATIONS = 6  # observations, two of which have the same shapes, and so meet in one graph
GUIDANCE: Spec = {"guidance": "closed form"}


@dataclass(frozen=True)
class Attempt:
    """Treatments to try together, on the CPU.

    Args:
        kind: type of the policy.
        specs: as they are written; their order does not matter.
        rtc: whether Real-Time Chunking is on, for the treated policy and the baseline.
        played: whether graphs are played on the CPU.
    """

    kind: str
    specs: tuple[Spec, ...]
    rtc: bool = False
    played: bool = False


@dataclass(frozen=True)
class Tried:
    """The outcome of an attempt.

    Args:
        broken: why the policy does not act the same, in words; '' if it does.
        captured: graphs that were captured; None without graphs.
    """

    broken: str
    captured: int | None = None


def try_attempt(attempt: Attempt) -> Tried:
    """Try ``attempt``.

    Raises:
        UserError: it does not apply here.
        Exception: whatever a treatment raises that should not.
    """
    subject = _subject(attempt.kind)
    captures: list[Replayed] = []
    guidance = make_guidance(subject) if attempt.rtc else None
    base = (guidance,) if guidance is not None else ()
    treatments = [_make_treatment(spec, attempt.played, captures) for spec in catalogue.sort_specs(attempt.specs)]
    variant = Variant("tried", (*base, *treatments))
    effect = strongest([treatment.effect for treatment in treatments])
    variant.apply(subject)()  # where it does not apply, that is another matter than a call that fails
    same = Sameness(subject, base, OBSERVATIONS)
    try:
        agreement = same.check(variant, plan_visits(same, variant))
    except PolicyCallError as error:
        return Tried(str(error))
    captured = sum(capture.recorded for capture in captures) if captures else None
    reordered = same.yardstick("reordered sums", 2) if effect == "exact" else None
    if captured == 0:
        broken = "no graph was captured"
    elif effect == "lossy":
        broken = _explain_lossy_failure(agreement)
    else:
        # A limit that was not judged is not trusted either.
        broken = Guards().strictest_guard([effect]).judge(agreement, reordered).words or ""
    return Tried(broken, captured)


def _subject(kind: str) -> PolicySubject:
    made = load_subject(PolicyOptions(type=kind, size="tiny"), InputOptions(image_size=IMAGE))
    if steps := LiveFields.from_family(made.family).steps:
        setattr(made.policy.config, steps, STEPS)
    return made


def _make_treatment(spec: Spec, played: bool, captures: list[Replayed]) -> Treatment:
    if not (played and "graph" in spec):
        return catalogue.make(spec)
    captures.append(Replayed(warmups=2))
    return CudaGraph(str(spec["graph"]), captures[-1])


def _explain_lossy_failure(agreement: Agreement) -> str:
    return f"{agreement.not_finite:,} numbers are infinite or not a number" if agreement.not_finite else ""
