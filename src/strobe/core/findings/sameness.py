"""Rules on how far treatments change the actions: defects, exceeded limits, and faults that figures cannot show."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Sequence

from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import distance, number_in_words, sigma
from strobe.core.results import units
from strobe.core.results.agreement import Agreement, DimensionAgreement, Yardstick, yardstick
from strobe.core.results.answer import Guarded, Held, VerifyResult
from strobe.core.results.finding import Finding, info, warning

OFFSET_SHARE = 0.5  # mean error over RMS: from here on errors mostly point one way
MIN_OFFSET_RMS = 0.01  # σ: smaller offsets do not matter to a robot
DROWNED_SHARE = 0.5  # share of another observation's effect on the actions: more is as large as that
MIN_INPUT_RMS = 0.001  # σ: a policy that reacts to its input changes its actions by more than that

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


def call_fails(result: Guarded, _: Thresholds) -> Iterator[Finding]:
    failing = [treated for treated in result.guarded_actions() if treated.broken and treated.agreement is None]
    for treated in failing[:1] if result.stacked else failing:
        name = units.quote(treated.name)
        yield warning(
            rule="call-fails",
            title=f"A call with {name} gives no actions to compare: {treated.broken}",
            found=f"Without {name}, the same observation gives a chunk of actions.",
            why="The robot would get no action, or another number of actions, at this observation.",
            do=f"{_way_round(result, treated)} If memory ran out, close other programs, or take a machine with more. "
            f"Otherwise report it with {_to_report(result, treated)}.",
        )


def exact_broken(result: Guarded, _: Thresholds) -> Iterator[Finding]:
    exact = [treated for treated in result.guarded_actions() if treated.effect == "exact"]
    defects = [treated for treated in exact if treated.broken and treated.agreement is not None]
    reordered = yardstick(result.yardsticks, "reordered sums")
    # Of a ladder, each rung holds those below it: the first that breaks is to blame.
    for treated in [*(defects[:1] if result.stacked else defects), *result.rejected_treatments()]:
        yield warning(
            rule="exact-treatment-broken",
            title=f"Defect: {units.quote(treated.treatment or treated.name)} must not change the actions, but does",
            found=f"{units.capital(treated.broken or '')}.{_describe_distance(treated.agreement, reordered)}",
            why="An exact treatment does the same arithmetic. Its actions may differ by floating-point noise, as much "
            "as sums in another order cause. A larger difference is a fault of the treatment, of Strobe, or of a "
            "library that they use. The robot would execute it.",
            do=f"{_way_round(result, treated)} Report it with {_to_report(result, treated)}.",
        )


def guard_broken(result: Guarded, _: Thresholds) -> Iterator[Finding]:
    inexact = [(treated, treated.agreement) for treated in result.guarded_actions() if treated.effect != "exact"]
    broken = [(treated, same) for treated, same in inexact if treated.broken and same is not None]
    for treated, same in broken[:1] if result.stacked else broken:
        name, limit = units.quote(treated.name), f" Limits: {treated.guard}." if treated.guard else ""
        yield warning(
            rule="guard-broken",
            title=f"{name} changes the {same.of} beyond its limit: {treated.broken}",
            found=f"The {same.of} are {distance(same)}.{limit}",
            why=f"The {same.of} differ from those of the baseline. This run did not measure whether the policy still "
            "succeeds at its task.",
            do=f"Do not use {name}, or apply it to one part only. Or show with paired episodes that it does no harm "
            "(strobe optimize --env.type=…), and then set the limits with --guard.",
        )


def unjudged_guard(result: Guarded, _: Thresholds) -> Iterator[Finding]:
    for treated in result.guarded_actions():
        if treated.unjudged and not treated.broken:
            of_outputs = treated.agreement is not None and treated.agreement.of == "outputs"
            yield warning(
                rule="guard-not-judged",
                title=f"Nothing shows that {units.quote(treated.name)} stays within its limits",
                found=f"Not checked: {treated.unjudged}. Limits: {treated.guard}.",
                why="A limit that was not checked counts as not held. The other figures cover only the actions that "
                "could be compared.",
                do="Give the missing input, or a guard whose figures can be measured here: "
                f"--guard='{OF_OUTPUTS if of_outputs else ROUNDING}'.",
            )


def decisions_flip(result: Guarded, _: Thresholds) -> Iterator[Finding]:
    for treated in _examined_actions(result):
        flipped = sorted(((d, d.flips) for d in _dimensions(treated) if d.flips), key=lambda pair: -pair[1])
        if flipped:
            shares = ", ".join(f"{d.name} in {_share(share)} of its decisions" for d, share in flipped[:_SHOWN])
            first, flips = flipped[0]
            yield Finding(
                rule="decisions-flip",
                level="info" if "flips" in (treated.guard or "") and not treated.broken else "warning",
                title=f"{units.quote(treated.name)} flips {_share(flips)} of the decisions of {first.name}",
                found=f"Flipped: {shares}{_more(flipped)}; limits: {treated.guard or 'none'}.",
                why="A dimension that is open or shut has no small error. One flip drops the object in the gripper, "
                "or grasps too early.",
                do=f"Keep the layers before {first.name} in their own precision, or do not use "
                f"{units.quote(treated.name)}.",
            )


def offset(result: Guarded, _: Thresholds) -> Iterator[Finding]:
    for treated in _examined_actions(result):
        off = sorted((d for d in _dimensions(treated) if _is_offset(d)), key=lambda d: -abs(d.offset))
        if off:
            first, moved = off[0], off[0].offset * off[0].spread
            shifts = "; ".join(
                f"{d.name} by {_format_signed(d.offset * d.spread)} in its own units "
                f"({_format_signed(d.offset)} σ, of {sigma(d.rms)} RMS)" for d in off[:_SHOWN]
            )  # fmt: skip
            yield warning(
                rule="offset",
                title=f"{units.quote(treated.name)} shifts {first.name} by {_format_signed(moved)} in its own units, "
                "always in the same direction",
                found=f"Mean errors: {shifts}{_more(off)}.",
                why="Random errors average out over a motion. An error that always has the same direction moves the "
                "whole path, and the next chunk does not correct it.",
                do="Look for a constant: a mean or a scale that was rounded, or calibrated on other data. Quantise "
                "another part, or calibrate on frames of this robot.",
            )


def guard_blind(result: Guarded, _: Thresholds) -> Iterator[Finding]:
    guards = [*(treated.guard for treated in result.guarded_actions() if treated.guard), *result.guards()]
    figures = {guard: {*re.findall(r"([a-z_0-9]+)\s*[<>]=", guard)} - {"success_drop"} for guard in guards}
    cosine_only = next((guard for guard, each in figures.items() if each == {"cosine"} and "exact" not in guard), None)
    if cosine_only is None:
        return
    agreements = [treated.agreement for treated in result.guarded_actions() if treated.agreement is not None]
    worst = max((same for same in agreements if same.rms is not None), key=lambda same: same.rms or 0.0, default=None)
    at_cosine = f" At cosine {worst.cosine:.6f} the {worst.of} are {distance(worst)}." if worst is not None else ""
    why, do = UNSEEN, f"Do not give --guard, or limit each dimension: --guard='{ROUNDING}'."
    if any(same.of == "features" for same in agreements):
        why, do = UNSEEN_OF_FEATURES, f"Do not give --guard, or limit each channel and token: --guard='{OF_FEATURES}'."
    if any(same.of == "outputs" for same in agreements):
        do = f"Limit single numbers too: --guard='{OF_OUTPUTS}'."
    yield info(
        rule="guard-blind",
        title="The guard checks only a cosine, which misses an error in a single dimension",
        found=f"Limits: {cosine_only}.{at_cosine}",
        why=why,
        do=do,
    )


def observation_sized_error(result: Guarded, _: Thresholds) -> Iterator[Finding]:
    other = yardstick(result.yardsticks, "another observation")
    if other is None or other.rms < MIN_INPUT_RMS:
        return
    for treated in _examined_actions(result):
        moved = treated.agreement.rms if treated.agreement is not None else None
        if moved is not None and treated.effect != "exact" and moved > DROWNED_SHARE * other.rms:
            name, as_much = units.quote(treated.name), "nearly as much" if moved < other.rms else "as much"
            yield warning(
                rule="drowned",
                title=f"{name} changes the actions {as_much} as another observation does",
                found=f"{name} changes the actions by {sigma(moved)}, another observation by {sigma(other.rms)} (RMS "
                "of the worst dimension).",
                why="So large an effect hides the effect of the input, and these figures cannot show whether the "
                "policy still reacts to its input. Random weights hardly react at all.",
                do="Check a trained checkpoint (--policy.path) on frames of its own task (--dataset.root or "
                f"--env.type). If this checkpoint is trained, {name} is too coarse.",
            )


def input_ignored(result: Guarded, _: Thresholds) -> Iterator[Finding]:
    other = yardstick(result.yardsticks, "another observation")
    if other is not None and other.rms < MIN_INPUT_RMS:
        yield info(
            rule="policy-ignores-its-input",
            title="The policy hardly reacts to its input",
            found=f"Another observation changes the actions by {sigma(other.rms)} (RMS of the worst dimension, "
            f"{other.observations} observations).",
            why="A treatment that spoils the images, the prompt or a cache would change the actions as little, and "
            "would pass. Random weights do this, and so does a policy that returns its mean action.",
            do="Check a trained checkpoint, with --policy.path, on frames of its own task.",
        )


def _examined_actions(result: Guarded) -> list[Held]:
    held = [
        treated for treated in result.guarded_actions() if treated.agreement is None or not treated.agreement.on_purpose
    ]
    return (
        held
        if result.chosen_candidate is None
        else [treated for treated in held if treated.name == result.chosen_candidate]
    )


def _dimensions(treated: Held) -> list[DimensionAgreement]:
    return treated.agreement.dimensions if treated.agreement is not None else []


def _is_offset(dimension: DimensionAgreement) -> bool:
    mostly = dimension.rms > MIN_OFFSET_RMS and abs(dimension.offset) >= OFFSET_SHARE * dimension.rms
    return mostly and math.isfinite(dimension.offset * dimension.spread)


def _describe_distance(same: Agreement | None, reordered: Yardstick | None) -> str:
    if same is None or same.rms is None or same.worst is None:
        return ""
    text = f" The actions are {distance(same)}."
    if reordered is None:
        return text
    times = same.rms / reordered.rms if reordered.rms > 0 else math.inf
    further = f", {number_in_words(times)} × less" if math.isfinite(times) else ""
    return f"{text} Floating-point noise is {sigma(reordered.rms)}, {sigma(reordered.worst)} at most{further}."


def _way_round(result: Guarded, treated: Held) -> str:
    key = treated.treatment.partition("=")[0].strip()
    if result.stacked and key:
        return f"Repeat with --skip={key}."
    if key == "exported":
        return "Do not use this export. Export the policy again, and verify the new export."
    where = "the recipe" if isinstance(result, VerifyResult) else "the variant"
    keys = [pair.partition("=")[0].strip() for pair in treated.treatment.split(",")] if treated.treatment else []
    skip = ",".join(dict.fromkeys(key for key in keys if key and "." not in key))
    climb = f" (strobe optimize --skip={skip} writes a recipe without it)" if skip and where == "the recipe" else ""
    return f"Remove the treatment from {where}{climb}."


def _to_report(result: Guarded, treated: Held) -> str:
    versions = {"strobe": result.strobe_version, **result.machine.versions}
    packages = [f"{name} {version}" for name, version in versions.items() if name in ("strobe", "torch", "lerobot")]
    parts = [f"the command ({shlex.join(result.command)})" if result.command else "the command", ", ".join(packages)]
    parts.append(f"the device ({result.machine.device_name or result.machine.device})")
    agreement = treated.agreement
    if agreement is not None and (agreement.worst_dimension or agreement.worst_at):
        parts.append(f"the place ({', '.join(filter(None, (agreement.worst_dimension, agreement.worst_at)))})")
    return f"{'; '.join(parts)}; and this run's result.json"


def _share(share: float) -> str:
    return f"{number_in_words(100 * share)} %"


def _format_signed(value: float) -> str:
    return f"{'+' if value > 0 else '−' if value < 0 else ''}{number_in_words(abs(value))}"


def _more(named: Sequence[object]) -> str:
    return f"; and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""


RULES = (
    call_fails,
    exact_broken,
    guard_broken,
    unjudged_guard,
    decisions_flip,
    offset,
    guard_blind,
    observation_sized_error,
    input_ignored,
)
