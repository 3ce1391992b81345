"""Advice on agreement: defects, broken guards, flips, offsets, and figures that show nothing."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from support.examples.any_result import with_checks
from support.examples.findings_results import (
    approve_findings,
    make_applied_treatment,
    make_comparison,
    make_measurement,
    make_treated_traits,
    result,
)
from support.examples.ladder import make_climb
from support.examples.sameness import (
    GUARD,
    YARDSTICKS,
    check,
    dimension,
    exact,
    joints,
    make_agreement,
    make_verification,
    yardstick,
)
from support.suite.example_count import scale_count

from strobe.core.findings import sameness
from strobe.core.findings.rules import run
from strobe.core.results.agreement import Agreement
from strobe.core.results.answer import CompareResult
from strobe.ladder.results import OptimizeResult, Try

OURS = "exact-treatment-broken|guard-broken|decisions-flip|offset|guard-blind|drowned|policy-ignores-its-input"
NONE = Agreement(cosine=1, largest_error=0, mean_error=0, observations=4)
FEATURES = Agreement(of="features", cosine=0.9995, largest_error=1, mean_error=1, observations=4, rms=2.0, worst=9.0)


def variant(agreement: Agreement, names: Any = (), **more: Any) -> CompareResult:
    """A comparison of 'bf16' with the baseline; ``names`` are those of two precisions."""
    judged = make_comparison("faster", candidate="bf16", baseline="baseline")
    judged = judged.model_copy(update={"agreement": agreement, "effect": "rounding", "guard": GUARD} | more)
    made = result(
        make_measurement({"policy": 100.0}, name="baseline"),
        make_measurement({"policy": 50.0}, name="bf16", whole=50.0),
        of=CompareResult, comparisons=[judged], yardsticks=YARDSTICKS,
    )  # fmt: skip
    for measurement, name in zip(made.measurements, names, strict=False):
        measurement.traits = make_treated_traits(make_applied_treatment("precision", name))
    return made


def make_moved_result(rms: float = 0.004, *, gripper: float = 0.0, **more: Any) -> CompareResult:
    return variant(make_agreement(joints(rms, gripper=gripper)), **more)


def make_shifted_result(rms: float, offset: float) -> CompareResult:
    return variant(make_agreement([dimension("x", rms, offset=offset), dimension("y", 0.001)]))


def ladder(rms: float = 0.004, guard: str = "cosine>=0.999", tried: Any = None, refused: Any = None,
           **more: Any) -> OptimizeResult:  # fmt: skip
    """A ladder whose rungs all moved the actions so far; ``refused`` is how far its third try moved them."""
    made = make_climb()
    made.yardsticks = YARDSTICKS
    for one in made.comparisons:
        one.agreement, one.guard, one.effect = make_agreement(joints(rms)), GUARD, "rounding"
        for name, value in more.items():
            setattr(one, name, value)
    assert made.ladder is not None
    made.ladder.guard = guard
    made.ladder.tries += [tried] if tried else []
    made.ladder.tries[2].agreement = refused or made.ladder.tries[2].agreement
    return made


def test_what_is_found() -> None:
    defect, broken, beyond = "exact-treatment-broken", "guard-broken", "RMS 0.05 σ, limit 0.02 σ"
    inexact: dict[str, Any] = {"effect": "exact", "guard": "exact", "broken": "it is not exact"}
    moves = exact(3e-4, broken="RMS 0.0003 σ, floating-point noise 3e-07 σ: it is not exact")
    cache = Try(treatment="prefix_cache=static, prefix_cache.part=x", rung=3, before_ms=120, outcome="guard",
                effect="exact", agreement=make_agreement(joints(0.3)),
                reason="guard: RMS 0.3 σ, floating-point noise 3e-07 σ: it is not exact")  # fmt: skip
    fails = check(agreement=None, broken="the call fails (with RTC): no such thing")
    on_purpose = make_agreement([dimension("x", 0.9, offset=-0.9)], on_purpose=True)
    cosine, precisions = "cosine>=0.999", {"names": ("fp32", "bf16")}
    blind = {
        cosine: "guard-blind", f"{cosine}, success_drop<=0.1": "guard-blind", f"{cosine}, worst<=0.2": "",
        GUARD: "", "exact": "", "exact, cosine>=0.9": "", "": "",
    }  # fmt: skip
    guards = {}
    for guard, found in blind.items():
        guards[f"a variant with {guard!r}"] = (found, make_moved_result(guard=guard))
        guards[f"a verification with {guard!r}"] = (found, make_verification(exact(), guard=guard))
        guards[f"a ladder with {guard!r}"] = (found, ladder(guard=guard))
    approve_findings("sameness", {
        OURS: {
            "a variant that agrees": ("", make_moved_result()),
            "a recipe that agrees": ("", make_verification()),
            "a ladder that agrees": ("", ladder(guard=GUARD)),
            "an exact treatment of a recipe": (defect, make_verification(moves, check())),
            "an exact treatment of a variant": (defect, make_moved_result(3e-4, **inexact)),
        },
        defect: {
            "a try that is not exact": (defect, ladder(tried=cache)),
            "the first rung that breaks is to blame": (defect, ladder(0.3, **inexact)),
        },
        f"{defect}|{broken}|call-fails": {
            "a variant": (broken, make_moved_result(0.05, broken=beyond)),
            "a call that fails": ("call-fails", make_verification(fails)),
            "a ladder": (broken, ladder(0.05, broken=beyond)),
        },
        "decisions-flip": {
            "flips beyond the guard": ("decisions-flip", make_moved_result(gripper=0.0312, broken="flips 0.0312 > 0")),
            "flips within the guard": ("decisions-flip", make_moved_result(gripper=0.03, guard="flips<=0.1")),
        },
        "offset|drowned": {
            "always off": ("offset", make_shifted_result(0.04, -0.03)),
            "off by less than half": ("", make_shifted_result(0.04, -0.01)),
            "off by little": ("", make_shifted_result(0.005, -0.005)),
            "on purpose": ("", variant(on_purpose, guard="")),
            "0.41 σ of 0.8": ("drowned", make_moved_result(0.41, effect="lossy")),
            "0.39 σ of 0.8": ("", make_moved_result(0.39, effect="lossy")),
            "0.9 σ of 0.8": ("drowned", make_moved_result(0.9)),
            "0.9 σ of what must be exact": ("", make_moved_result(0.9, effect="exact")),
        },
        "guard-blind": guards | {
            "a backbone's cosine alone": ("guard-blind", variant(FEATURES, guard=cosine)),
            "a backbone's cosine and length": ("", variant(FEATURES, guard=f"{cosine}, rms<=0.1")),
        },
        "guard-not-judged": {"without episodes": ("guard-not-judged", variant(
            NONE, guard="success_drop<=0.1", unjudged="success_drop is seen in paired episodes alone"))},
        "policy-ignores-its-input|drowned": {  # there is nothing to drown
            "another observation hardly matters": (
                "policy-ignores-its-input", make_verification(yardsticks=[yardstick("another observation", 9e-4)])),
        },
        "policy-ignores-its-input": {
            "another observation matters": ("", make_verification(yardsticks=[yardstick("another observation", 2e-3)])),
        },
        "guard-refused": {"in spreads": ("guard-refused", ladder(refused=make_agreement(joints(0.05, gripper=0.1))))},
        "precision-bf16-inaccurate": {  # by spreads where there are some
            "0.021 σ": ("precision-bf16-inaccurate",
                        variant(make_agreement(joints(0.021), cosine=0.99999), **precisions)),
            "0.019 σ": ("", variant(make_agreement(joints(0.019), cosine=0.9), **precisions)),
            "numbers that are none": (
                "precision-bf16-inaccurate",
                variant(make_agreement(joints(0.001), cosine=0.0, not_finite=3), **precisions)),
        },
    })  # fmt: skip


@given(with_checks)
@settings(
    max_examples=scale_count(60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_no_rule_fails_on_any_agreement(made: Any) -> None:
    for finding in run(sameness.RULES, made):
        assert finding.rule != "rule-failed", finding.found
