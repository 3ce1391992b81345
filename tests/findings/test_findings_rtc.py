"""Findings on Real-Time Chunking: its overhead, its autograd, its chunk and its horizon."""

from typing import Any

import pytest
from support.findings_results import compared, measured, put_on, result, rules, treated

from strobe.findings import Thresholds
from strobe.results.answer import CompareResult
from strobe.results.measurement import Measurement
from strobe.results.traits import PolicyTraits, RealTimeChunking


def plain(base: float = 80.0, **fields: Any) -> Measurement:
    return measured(
        {"policy": 98.0, "policy/denoise step": base}, name="without RTC", traits=treated(put_on("rtc", False))
    )


def guided(
    base: float = 80.0,
    correction: float = 16.0,
    autograd: float = 8.0,
    *,
    whole: float = 120.0,
    horizon: int = 10,
    delay: int = 4,
    grad: int = 0,
) -> Measurement:
    step = "policy/RTC step"
    parts = {
        "policy": whole - 2,
        step: base + correction,
        f"{step}/denoise step": base,
        f"{step}/autograd correction": autograd,
    }
    guidance = RealTimeChunking(execution_horizon=horizon, inference_delay=delay)
    policy = PolicyTraits(trainable_tensors=grad) if grad else None
    traits = treated(put_on("rtc", rtc=guidance), policy=policy)
    return measured(parts, name="with RTC", whole=whole, traits=traits)


def pair(rtc: Measurement, baseline: Measurement | None = None, **fields: Any) -> CompareResult:
    baseline = baseline or plain()
    if rtc.traits.policy is not None:
        baseline.traits.policy = rtc.traits.policy
    return result(baseline, rtc, of=CompareResult, compilable=fields.pop("compilable", True), **fields)


@pytest.mark.parametrize(("guidance", "level"), [(24.0, "good"), (24.1, "info"), (40.0, "info"), (40.1, "warning")])
def test_overhead_is_guidance_over_base_denoising(guidance: float, level: str):
    found = rules(pair(guided(80.0, guidance)))["rtc-overhead"]
    assert found.level == level
    assert found.evidence["overhead"] == pytest.approx(guidance / 80.0)
    assert found.evidence["base_growth"] == pytest.approx(0.0)


def test_overhead_shows_how_base_denoising_itself_grew():
    found = rules(pair(guided(100.0), plain(80.0)))["rtc-overhead"]
    assert found.evidence["base_growth"] == pytest.approx(0.25)
    assert "25 % slower than without RTC" in found.seen


def test_overhead_needs_no_measurement_without_rtc():
    found = rules(result(guided()))["rtc-overhead"]
    assert found.evidence["base_growth"] is None


def test_a_variant_that_differs_in_more_than_rtc_is_no_baseline():
    other = plain(40.0)
    other.traits.policy = PolicyTraits(denoising_steps=5)
    assert rules(pair(guided(), other))["rtc-overhead"].evidence["base_growth"] is None


def test_compiled_variants_without_parts_say_nothing_of_overhead():
    traits = treated(put_on("rtc", rtc=RealTimeChunking()), put_on("compile", "default", builds="compiled"))
    compiled = measured({"policy": 90.0}, name="with RTC, compiled", traits=traits)
    assert "rtc-overhead" not in rules(result(plain(), compiled, of=CompareResult))


@pytest.mark.parametrize(("autograd", "level"), [(12.0, "good"), (12.1, "warning")])
def test_the_autograd_correction(autograd: float, level: str):
    assert rules(pair(guided(80.0, 16.0, autograd)))["rtc-autograd"].level == level


@pytest.mark.parametrize(
    ("base", "grad", "fires"), [(83.9, 100, False), (84.1, 100, True), (84.1, 0, False), (70.0, 100, False)]
)
def test_a_recorded_graph_needs_parameters_and_a_slower_base(base: float, grad: int, fires: bool):
    assert ("rtc-records-graph" in rules(pair(guided(base, grad=grad)))) == fires


def test_the_recorded_graph_gives_at_most_what_the_base_grew():
    found = rules(pair(guided(100.0, grad=100)))["rtc-records-graph"]
    assert found.evidence["grown_ms"] == pytest.approx(20.0)
    assert found.evidence["without_ms"] == pytest.approx(100.0)


@pytest.mark.parametrize(("whole", "rule", "ticks"), [(299.0, "rtc-in-time", 9), (301.0, "rtc-too-late", 10)])
def test_the_chunk_is_held_against_the_execution_horizon(whole: float, rule: str, ticks: int):
    found = rules(pair(guided(whole=whole, horizon=10)))
    assert {name for name in found if name in ("rtc-in-time", "rtc-too-late")} == {rule}
    assert found[rule].evidence["delay_ticks"] == ticks


def test_the_control_rate_can_be_set():
    found = rules(pair(guided(whole=301.0, horizon=10)), Thresholds(control_hz=10))
    assert found["rtc-in-time"].evidence["delay_ticks"] == 4


@pytest.mark.parametrize(("delay", "fires"), [(4, False), (3, True)])
def test_a_delay_shorter_than_the_chunk(delay: int, fires: bool):
    assert ("rtc-delay-short" in rules(pair(guided(whole=120.0, delay=delay)))) == fires


def test_compilation_is_proposed_where_rtc_is_slower_and_the_policy_supports_it():
    assert "rtc-not-compiled" in rules(pair(guided(), comparisons=[compared("slower")]))
    assert "rtc-not-compiled" not in rules(pair(guided(), comparisons=[compared("no difference shown")]))
    assert "rtc-not-compiled" not in rules(pair(guided(), compilable=False, comparisons=[compared("slower")]))


def test_compilation_is_not_proposed_where_it_was_tried():
    compiled = treated(put_on("compile", "default", builds="compiled"))
    tried = pair(guided(), comparisons=[compared("slower")])
    tried.measurements.append(measured({}, name="with RTC, compiled", traits=compiled))
    assert "rtc-not-compiled" not in rules(tried)


def test_the_gain_of_compilation_is_marked_as_the_seeds():
    found = rules(pair(guided(), comparisons=[compared("slower")]))["rtc-not-compiled"]
    assert "not measured here" in found.gain
