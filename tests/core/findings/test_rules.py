"""The rules as a whole: their order, their thresholds, those of other packages, and any valid result."""

import math
from typing import Any, get_args

import draccus
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from support.examples.findings_results import (
    make_applied_treatment,
    make_comparison,
    make_measurement,
    make_treated_traits,
    result,
    summary,
)
from support.suite.example_count import scale_count

from strobe.core.findings import Thresholds
from strobe.core.kinds import advise
from strobe.core.results.answer import BreakdownResult, CompareResult, Result
from strobe.core.results.comparison import Verdict
from strobe.core.results.data import Samples
from strobe.core.results.measurement import Component, Measurement
from strobe.core.results.traits import PolicyTraits, RealTimeChunking, TreatmentTraits
from strobe.lerobot.flags.lazy_flags import kinds
from strobe.lerobot.schema.registries import POLICY


def test_a_healthy_result_has_no_warnings():
    inference = make_measurement(
        {"preprocessing": 8.0, "policy": 90.0, "policy/backbone": 60.0, "policy/encoder": 29.0}
    )
    parts = {"forward": 98.0, "forward/backbone": 80.0, "forward/encoder": 17.0}
    training = make_measurement(parts, name="training forward", phase="training forward")
    found = advise(result(inference, training))
    assert found
    assert not [finding for finding in found if finding.level == "warning"]


def test_warnings_come_first_then_the_larger_gain():
    slow = make_measurement({"preprocessing": 40.0, "policy": 60.0, "policy/encoder": 55.0, "other": 6.0})
    found = advise(result(slow, make_measurement({"policy": 100.0}, name="again")))
    assert [finding.rule for finding in found][:2] == ["preprocessing-heavy", "other-large"]
    levels = [finding.level for finding in found]
    assert levels == sorted(levels, key=["warning", "info", "good"].index)
    gains = [float(f.evidence.get("gain_share") or 0) for f in found if f.level == "info"]
    assert gains == sorted(gains, reverse=True)


def test_of_a_comparison_only_the_baseline_is_cut_into_parts():
    found = advise(
        result(make_measurement({"policy": 90.0}), make_measurement({"policy": 80.0}, name="with"), of=CompareResult)
    )
    assert [finding.rule for finding in found].count("biggest-part") == 1


def test_thresholds_can_be_set_on_the_command_line():
    assert draccus.parse(Thresholds, args=["--backbone_dominates=0.9", "--delays=4"]).backbone_dominates == 0.9


NAMES = ["policy", "preprocessing", "postprocessing", "forward", "backward", "backbone", "encoder", "other"]
NAMES += ["denoise step", "RTC step", "autograd correction", "vision tower"]
numbers = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(0, 1000),
    st.sampled_from([0.0, 1e-300, 1e-6, 1.0, 30.0, 1e12, 1e300]),
)
maybe = st.none() | numbers
# Not what a number that is none looks like: the test takes it for one.
words = st.text(min_size=1, max_size=3).filter(lambda text: text.strip() not in ("nan", "inf"))
summaries = numbers.map(abs).map(summary)


@st.composite
def components(draw: Any, n: int) -> Component:
    path = draw(st.lists(st.sampled_from(NAMES), max_size=3))
    return Component(
        path=path,
        other=draw(st.booleans()),
        calls=draw(numbers),
        values=draw(st.lists(numbers, min_size=n, max_size=n) | st.lists(numbers, max_size=3)),
        summary=draw(summaries),
        share=draw(numbers),
        host_ms=draw(maybe),
        gflop=draw(maybe),
        ceiling_share=draw(maybe),
    )


@st.composite
def measurements(draw: Any) -> Measurement:
    values = draw(st.lists(numbers.map(lambda value: min(abs(value), 1e100)), max_size=3))
    whole = st.none() | st.integers() | st.integers(0, 50)
    guidance = st.builds(RealTimeChunking, execution_horizon=whole, inference_delay=whole)
    treatments = [
        *draw(st.lists(st.builds(TreatmentTraits, key=st.just("rtc"), value=st.just(True), rtc=guidance), max_size=1)),
        *draw(
            st.lists(
                st.sampled_from(
                    [make_applied_treatment("precision", "fp32"), make_applied_treatment("precision", "fp16")]
                ),
                max_size=1,
            )
        ),
        *draw(st.lists(st.just(make_applied_treatment("compile", builds="compiled")), max_size=1)),
    ]
    policy = draw(st.none() | st.builds(PolicyTraits, trainable_tensors=whole, denoising_steps=whole))
    return Measurement(
        name=draw(st.sampled_from(["without RTC", "with RTC", "inference"])),
        phase=draw(st.sampled_from(["inference", "training forward", "training step"])),
        clock=draw(st.sampled_from(["host", "device"])),
        samples=Samples(values=values, summary=draw(summaries), notes=draw(st.lists(words, max_size=2))),
        components=draw(st.lists(components(len(values)), max_size=8)),
        traits=make_treated_traits(*treatments, policy=policy, batch_size=draw(whole)),
        unseen=draw(st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2)),
    )


@st.composite
def results(draw: Any) -> Result:
    made = result(
        *draw(st.lists(measurements(), max_size=4)),
        device=draw(st.sampled_from(["cpu", "cuda:0", "mps"])),
        compilable=draw(st.booleans()),
        of=draw(st.sampled_from([BreakdownResult, CompareResult])),
        gflops=draw(st.dictionaries(st.sampled_from(["float32", "bfloat16", "float16"]), numbers)),
        dtypes=draw(st.dictionaries(st.sampled_from(["float32", "bfloat16", "float16"]), st.integers())),
        stand_ins=draw(st.lists(words, max_size=2)),
    )
    kinds = get_args(Verdict.model_fields["kind"].annotation)
    if not isinstance(made, CompareResult):
        return made
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=2)):
        made.comparisons.append(make_comparison(kind))
    return made


def test_a_time_whose_sum_would_overflow_is_no_sample():
    with pytest.raises(ValidationError, match="1e"):
        Samples(values=[1e300], summary=summary(1.0))


@pytest.mark.slow("drawn results by the hundred", each_change=True)
@given(results())
@settings(
    max_examples=scale_count(200),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_advice_on_any_valid_result_is_whole_and_finite(made: Result):
    before = made.model_dump_json()
    for finding in advise(made):
        assert finding.rule != "rule-failed", finding.found
        assert finding.title
        assert finding.found
        assert all(math.isfinite(v) for v in finding.evidence.values() if isinstance(v, int | float))
        assert "nan" not in finding.found.split()
        assert "inf" not in finding.found.split()
        assert 0 <= float(finding.evidence.get("gain_share") or 0) <= 1
    assert made.model_dump_json() == before


@pytest.mark.parametrize("share", [0.3, 0.6, 0.8])
def test_no_finding_names_a_type_that_is_not_the_subject_s(share: float):
    """What was measured on ACT, or in a kit for V-JEPA 2, is no advice to name them to somebody else's policy."""
    types = [kind for kind in kinds(POLICY) if kind not in ("act", "small_flow")]
    parts = {"forward": 100.0, "forward/backbone": 100 * share, "forward/head": 99 * (1 - share)}
    forward = make_measurement(parts, name="training forward", phase="training forward")
    inference = make_measurement({"preprocessing": 40.0, "policy": 60.0, "policy/denoise step": 59.0})
    for finding in advise(result(inference, forward, kind="small_flow", device="mps")):
        said = " ".join((finding.title, finding.found, finding.why, finding.do, finding.gain))
        named = [kind for kind in (*types, "type=act", "pi0", "V-JEPA") if kind in said]
        assert not named, said
