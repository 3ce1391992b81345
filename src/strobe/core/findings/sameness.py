"""Rules on how alike treated and untouched actions are: defects, broken guards, and what the figures cannot show."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Sequence

from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import number_in_words, sigma
from strobe.core.results.agreement import Agreement, DimensionAgreement, Yardstick, yardstick
from strobe.core.results.answer import Guarded, Held, VerifyResult
from strobe.core.results.finding import Finding

OFFSET_SHARE = 0.5  # mean error over RMS: from here on errors mostly point one way
MIN_OFFSET_RMS = 0.01  # σ: an offset of smaller errors moves no robot
DROWNED_SHARE = 0.5  # share of another observation's effect on the actions: more is as large as that
MIN_INPUT_RMS = 0.001  # σ by which another observation moves the actions of a policy that looks at it

_SHOWN = 3  # dimensions that a finding names
UNSEEN = (
    "A cosine over all action numbers cannot see three faults: an inverted gripper among joints in degrees, a joint "
    "that is always 3° off, and a policy that returns its mean action. Large numbers and their means hide them."
)

UNSEEN_OF_FEATURES = (
    "A cosine over all features does not see a common factor. If one channel has large numbers, as in many vision "
    "transformers, the cosine sees no other channel either."
)
# What is written after --guard, as an example: the usual limits.
ROUNDING, OF_FEATURES = "rms<=0.02, worst<=0.2, flips<=0", "cosine>=0.999, rms<=0.1, token<=0.2"
OF_OUTPUTS = "cosine>=0.999, largest_error<=0.001"  # guard of Python outputs; the second in the output's own units


def exact_broken(result: Guarded, _: Thresholds) -> Iterator[Finding]:
    """A treatment that should change nothing, and does: a defect, of it or of what it stands on."""
    defects = [treated for treated in result.held() if treated.broken and treated.effect == "exact"]
    reordered = yardstick(result.yardsticks, "reordered sums")
    # Of a ladder, each rung holds those below it: the first that breaks is to blame.
    for treated in [*(defects[:1] if result.stacked else defects), *result.refused()]:
        yield Finding(
            rule="exact-treatment-broken",
            level="warning",
            title=f"Defect: {treated.treatment or treated.name} must not change the actions, and does",
            seen=f"Broken: {treated.broken}.{_how_far(treated.agreement, reordered)}",
            why="An exact treatment does the same arithmetic. Its actions may differ by no more than another order "
            "of sums causes. A larger difference is a fault of the treatment, of Strobe, or of a library that "
            "they use, and the robot would act on it.",
            do=f"{_way_round(result, treated)} Report it with {_to_report(result, treated)}.",
            evidence=_evidence(treated),
        )


def guard_broken(result: Guarded, _: Thresholds) -> Iterator[Finding]:
    """Treatments that may change the actions somewhat, and changed them more than the guard allows."""
    broken = [treated for treated in result.held() if treated.broken and treated.effect != "exact"]
    for treated in broken[:1] if result.stacked else broken:
        limit = f" Allowed is {treated.guard}." if treated.guard else ""
        far = f"The actions are {_figures(treated.agreement)}" if treated.agreement is not None else treated.broken
        yield Finding(
            rule="guard-broken",
            level="warning",
            title=f"'{treated.name}' breaks its guard: {treated.broken}",
            seen=f"{far}.{limit}",
            why="The robot gets other actions than those of the untreated policy. This run did not measure whether "
            "the policy still succeeds at its task.",
            do="Do not use it, or apply it to one part only. Or show with paired episodes that it does no harm "
            "(strobe optimize --env.type=…), and then set the limits with --guard.",
            evidence=_evidence(treated),
        )


def not_judged(result: Guarded, _: Thresholds) -> Iterator[Finding]:
    """Treatments whose guard could not be judged: nothing says that the policy acts the same with them."""
    for treated in result.held():
        if treated.unjudged and not treated.broken:
            yield Finding(
                rule="guard-not-judged",
                level="warning",
                title=f"Nothing shows that '{treated.name}' holds its guard",
                seen=f"Not judged: {treated.unjudged}. Guard: {treated.guard}.",
                why="A limit that was not checked is not held. The other figures show how far those actions moved "
                "that could be compared. They say nothing about the rest.",
                do="Give the missing input, or a guard whose figures can be measured here: "
                f"--guard='{_example(treated.agreement)}'.",
                evidence={"unjudged": treated.unjudged, "guard": treated.guard},
            )


def decisions_flip(result: Guarded, _: Thresholds) -> Iterator[Finding]:
    """Dimensions that stand for one of two things, and now and then stand for the other."""
    for treated in _looked_at(result):
        flipped = [(d, d.flips) for d in _dimensions(treated) if d.flips]
        if not flipped:
            continue
        flipped.sort(key=lambda pair: -pair[1])
        shares = ", ".join(f"{d.name} in {_share(share)} of its decisions" for d, share in flipped[:_SHOWN])
        dimension, share = flipped[0]
        allowed = "flips" in treated.guard and not treated.broken
        yield Finding(
            rule="decisions-flip",
            level="info" if allowed else "warning",
            title=f"'{treated.name}' flips {_share(share)} of the decisions of {dimension.name}",
            seen=f"Flipped: {shares}{_more(flipped)}; guard: {treated.guard or 'none'}.",
            why="A dimension that is open or shut has no small error. One flip drops the object in the gripper, or "
            "grasps too early.",
            do="Keep the layers before this dimension in their own precision, or do not use the treatment.",
            evidence={"flips": share, "dimension": dimension.name},
        )


def offset(result: Guarded, _: Thresholds) -> Iterator[Finding]:
    """Dimensions whose errors mostly point one way."""
    for treated in _looked_at(result):
        off = [d for d in _dimensions(treated) if _is_off(d)]
        if not off:
            continue
        off.sort(key=lambda d: -abs(d.offset))
        first = off[0]
        shifts = "; ".join(
            f"{d.name} by {_signed(d.offset * d.spread)} in its own units "
            f"({_signed(d.offset)} σ, of {sigma(d.rms)} RMS)" for d in off[:_SHOWN]
        )  # fmt: skip
        yield Finding(
            rule="offset",
            level="warning",
            title=f"'{treated.name}' shifts {first.name} by {_signed(first.offset * first.spread)}, always in the "
            "same direction",
            seen=f"Mean errors: {shifts}{_more(off)}.",
            why="Random errors average out over a motion. An error that always has the same direction moves the "
            "whole path, and the next chunk does not correct it.",
            do="Look for a constant: a mean or a scale that was rounded, or calibrated on other data. Quantise "
            "another part or lower its precision instead, or calibrate on frames of this robot.",
            evidence={"offset": first.offset, "own_units": first.offset * first.spread, "dimension": first.name},
        )


def guard_blind(result: Guarded, _: Thresholds) -> Iterator[Finding]:
    """Actions that were held against a cosine and nothing else."""
    cosine_only = next((guard for guard in _guards(result) if _cosine_alone(guard)), None)
    if cosine_only is None:
        return
    features = any(treated.agreement is not None and treated.agreement.of == "features" for treated in result.held())
    outputs = next((t.agreement for t in result.held() if t.agreement and t.agreement.of == "outputs"), None)
    known = [
        treated.agreement
        for treated in result.held()
        if treated.agreement is not None and treated.agreement.rms is not None
    ]
    worst = max(known, key=lambda same: same.rms or 0.0, default=None)
    at_cosine = f" At cosine {worst.cosine:.6f} the actions are {_figures(worst)}." if worst is not None else ""
    yield Finding(
        rule="guard-blind",
        level="info",
        title="The guard checks only a cosine, which misses an error in a single dimension",
        seen=f"Guard: {cosine_only}.{at_cosine}",
        why=UNSEEN_OF_FEATURES if features else UNSEEN,
        do=f"Limit what a single number may do as well: --guard='{OF_OUTPUTS}'."
        if outputs is not None
        else f"Do not give --guard, or limit each {'channel and token' if features else 'dimension'}: "
        f"--guard='{OF_FEATURES if features else ROUNDING}'.",
        evidence={"guard": cosine_only, "rms": worst.rms if worst is not None else None},
    )


def drowned(result: Guarded, _: Thresholds) -> Iterator[Finding]:
    """Treatments that move the actions about as much as what the policy sees does."""
    other = yardstick(result.yardsticks, "another observation")
    if other is None or other.rms < MIN_INPUT_RMS:
        return
    for treated in _looked_at(result):
        moved = treated.agreement.rms if treated.agreement is not None else None
        if moved is None or treated.effect == "exact" or moved <= DROWNED_SHARE * other.rms:
            continue
        nearly = "nearly as much" if moved < other.rms else "as much"
        yield Finding(
            rule="drowned",
            level="warning",
            title=f"'{treated.name}' moves the actions {nearly} as another observation",
            seen=f"'{treated.name}' moves them by {sigma(moved)}, another observation by {sigma(other.rms)} "
            "(RMS of the worst dimension).",
            why="The treatment's effect hides the effect of the input, so these figures cannot show whether the "
            "policy still reacts to its input. Random weights hardly react at all.",
            do="Check a trained checkpoint (--policy.path) on frames of its own task (--dataset.root or --env.type). "
            "If this checkpoint is trained, the treatment is too coarse.",
            evidence={"rms": moved, "another_observation": other.rms},
        )


def input_ignored(result: Guarded, _: Thresholds) -> Iterator[Finding]:
    """A policy whose actions hardly depend on what it is shown, so that faults of its input are not seen."""
    other = yardstick(result.yardsticks, "another observation")
    if other is None or other.rms >= MIN_INPUT_RMS:
        return
    yield Finding(
        rule="policy-ignores-its-input",
        level="info",
        title="The policy hardly reacts to its input",
        seen=f"Another observation moves its actions by {sigma(other.rms)} (RMS of the worst dimension, "
        f"{other.observations} observations).",
        why="A treatment that spoils the images, the prompt or a cache would move the actions as little, and would "
        "pass. Random weights act like this, and so does a policy that returns its mean action.",
        do="Check a trained checkpoint, with --policy.path, on frames of its own task.",
        evidence={"another_observation": other.rms},
    )


def _looked_at(result: Guarded) -> list[Held]:
    """Those whose figures are looked at: of a ladder the chosen rung, which holds all below it."""
    held = [treated for treated in result.held() if treated.agreement is None or not treated.agreement.on_purpose]
    return held if result.chosen is None else [treated for treated in held if treated.name == result.chosen]


def _example(agreement: Agreement | None) -> str:
    """Return a guard whose figures can be measured of such outputs."""
    return OF_OUTPUTS if agreement is not None and agreement.of == "outputs" else ROUNDING


def _guards(result: Guarded) -> list[str]:
    return [*(treated.guard for treated in result.held()), *result.guards()]


def _cosine_alone(guard: str) -> bool:
    figures = set(re.findall(r"([a-z_0-9]+)\s*[<>]=", guard)) - {"success_drop"}
    return figures == {"cosine"} and "exact" not in guard


def _dimensions(treated: Held) -> list[DimensionAgreement]:
    return treated.agreement.dimensions if treated.agreement is not None else []


def _is_off(dimension: DimensionAgreement) -> bool:
    mostly = dimension.rms > MIN_OFFSET_RMS and abs(dimension.offset) >= OFFSET_SHARE * dimension.rms
    return mostly and math.isfinite(dimension.offset * dimension.spread)


def _figures(same: Agreement) -> str:
    if same.rms is None or same.worst is None:
        return f"cosine {same.cosine:.6f}, largest error {same.largest_error:.3g}"
    where = ", ".join(filter(None, (same.worst_dimension, same.worst_at)))
    flips = f", {_share(same.flips)} of decisions flipped" if same.flips else ""
    return f"apart by {sigma(same.rms)} (RMS of the worst dimension), {sigma(same.worst)} at most" + (
        f" in {where}{flips}" if where else flips
    )


def _how_far(same: Agreement | None, reordered: Yardstick | None) -> str:
    if same is None or same.rms is None or same.worst is None:
        return ""
    text = f" The actions are {_figures(same)}."
    if reordered is None:
        return text
    times = same.rms / reordered.rms if reordered.rms > 0 else math.inf
    further = f", so it moves them {number_in_words(times)} × as far" if math.isfinite(times) else ""
    return f"{text} Reordered sums move them by {sigma(reordered.rms)}, {sigma(reordered.worst)} at most{further}."


def _way_round(result: Guarded, treated: Held) -> str:
    key = treated.treatment.partition("=")[0].strip()
    if result.stacked and key:
        return f"Run the command without it: --skip={key}."
    if key == "exported":
        return "Do not use it: export the policy again, and verify that."
    where = "the recipe" if isinstance(result, VerifyResult) else "the variant"
    keys = [pair.partition("=")[0].strip() for pair in treated.treatment.split(",")] if treated.treatment else []
    skip = ",".join(dict.fromkeys(key for key in keys if key and "." not in key))
    climb = f" (strobe optimize --skip={skip} makes one without)" if skip and where == "the recipe" else ""
    return f"Take it out of {where}{climb}."


def _to_report(result: Guarded, treated: Held) -> str:
    versions = {"strobe": result.strobe_version, **result.machine.versions}
    packages = [f"{name} {version}" for name, version in versions.items() if name in ("strobe", "torch", "lerobot")]
    parts = [f"the command ({shlex.join(result.command)})" if result.command else "the command", ", ".join(packages)]
    parts.append(f"the device ({result.machine.device_name or result.machine.device})")
    agreement = treated.agreement
    if agreement is not None and (agreement.worst_dimension or agreement.worst_at):
        parts.append(f"the place ({', '.join(filter(None, (agreement.worst_dimension, agreement.worst_at)))})")
    return f"{'; '.join(parts)}; and this run's result.json"


def _evidence(treated: Held) -> dict[str, float | str | None]:
    agreement = treated.agreement
    if agreement is None:
        return {"broken": treated.broken}
    return {
        "broken": treated.broken,
        "rms": agreement.rms,
        "worst": agreement.worst,
        "flips": agreement.flips,
        "cosine": agreement.cosine,
    }


def _share(share: float) -> str:
    return f"{number_in_words(100 * share)} %"


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else '−' if value < 0 else ''}{number_in_words(abs(value))}"


def _more(named: Sequence[object]) -> str:
    return f"; and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""


RULES = (exact_broken, guard_broken, not_judged, decisions_flip, offset, guard_blind, drowned, input_ignored)
