"""Findings on Real-Time Chunking: its overhead, its autograd, its chunk, its horizon, and training for its delays."""

from typing import Any

from support.examples.findings_results import (
    approve_findings,
    make_applied_treatment,
    make_comparison,
    make_measurement,
    make_treated_traits,
    result,
)

from strobe.core.findings import Thresholds
from strobe.core.results.answer import CompareResult
from strobe.core.results.data import Interval
from strobe.core.results.measurement import Measurement
from strobe.core.results.traits import DelayTraining, PolicyTraits, RealTimeChunking, Traits

COMPILED = make_treated_traits(
    make_applied_treatment("rtc", rtc=RealTimeChunking()),
    make_applied_treatment("compile", "default", builds="compiled"),
)


def pair(base: float = 80.0, correction: float = 16.0, autograd: float = 8.0, *, whole: float = 120.0,
         horizon: int = 10, delay: int = 4, grad: int = 0, steps: int | None = None, **fields: Any) -> Any:  # fmt: skip
    """Without RTC, where denoising takes 80 ms, and with it; ``steps`` are those of the policy without it alone."""
    step = "policy/RTC step"
    parts = {"policy": whole - 2, step: base + correction, f"{step}/denoise step": base,
             f"{step}/autograd correction": autograd}  # fmt: skip
    guidance = RealTimeChunking(execution_horizon=horizon, inference_delay=delay)
    policy = PolicyTraits(trainable_tensors=grad) if grad else None
    other = PolicyTraits(denoising_steps=steps) if steps else policy
    plain = {"policy": 98.0, "policy/denoise step": 40.0 if steps else 80.0}
    return result(
        make_measurement(plain, name="without RTC",
                         traits=make_treated_traits(make_applied_treatment("rtc", False), policy=other)),
        make_measurement(parts, name="with RTC", whole=whole,
                         traits=make_treated_traits(make_applied_treatment("rtc", rtc=guidance), policy=policy)),
        of=CompareResult, **fields,
    )  # fmt: skip


def make_compiled_result(*others: Any, **fields: Any) -> Any:
    last = make_measurement({"policy": 90.0}, name="with RTC, compiled", traits=COMPILED)
    return result(*others, last, of=CompareResult, **fields)


def test_what_real_time_chunking_was_measured_to_cost() -> None:
    approve_findings("rtc", {
        "rtc-overhead": {  # guidance over base denoising
            "guidance 30 %": ("rtc-overhead", pair(80.0, 24.0)),
            "guidance 30.1 %": ("rtc-overhead", pair(80.0, 24.1)),
            "guidance 50 %": ("rtc-overhead", pair(80.0, 40.0)),
            "guidance 50.1 %": ("rtc-overhead", pair(80.0, 40.1)),
            "base denoising grew too": ("rtc-overhead", pair(100.0)),
            "nothing without RTC": ("rtc-overhead", result(pair().measurements[1])),
            "without RTC and with other steps": ("rtc-overhead", pair(steps=5)),
            "compiled without parts": ("", make_compiled_result(pair().measurements[0])),
        },
        "rtc-autograd": {
            "autograd 15 %": ("rtc-autograd", pair(80.0, 16.0, 12.0)),
            "autograd 15.1 %": ("rtc-autograd", pair(80.0, 16.0, 12.1)),
        },
        "rtc-records-graph": {  # needs parameters and a slower base
            "base 4.9 % slower": ("", pair(83.9, grad=100)),
            "base 5.1 % slower": ("rtc-records-graph", pair(84.1, grad=100)),
            "slower without parameters": ("", pair(84.1)),
            "base faster": ("", pair(70.0, grad=100)),
        },
        "rtc-in-time|rtc-too-late": {
            "9 ticks of 10": ("rtc-in-time", pair(whole=299.0)),
            "10 ticks of 10": ("rtc-too-late", pair(whole=301.0)),
            "4 ticks of 10": ("rtc-in-time", pair(whole=301.0), Thresholds(control_hz=10)),
        },
        "rtc-delay-short": {
            "a delay as long as the chunk": ("", pair(delay=4)),
            "a delay shorter than the chunk": ("rtc-delay-short", pair(delay=3)),
        },
    })  # fmt: skip


PARTS = {"forward": 40.0, "forward/backbone": 26.0, "forward/encoder": 10.0, "backward": 55.0}


def way(name: str, attention: str, **settings: Any) -> Measurement:
    trained = DelayTraining(way="sampled", prefix_attention=attention, delays=11)  # type: ignore[arg-type]
    treatments = [make_applied_treatment("policy", None, settings=settings)] if settings else []
    traits = make_treated_traits(*treatments, policy=PolicyTraits(delay_training=trained))
    return make_measurement(PARTS, name=name, phase="training step", traits=traits)


def make_way(name: str, ratio: float, kind: Any = "slower", attention: str = "one_way", **settings: Any) -> Any:
    """A way to train, called like it, against the policy's own, which is sampled."""
    judged = make_comparison(kind, candidate=name, baseline="baseline")
    judged.verdict.ratio, judged.verdict.interval = ratio, Interval(low=ratio - 0.02, high=ratio + 0.02, level=0.99)
    ways = way("baseline", attention), way(name, attention, delay_training=name, **settings)
    return result(*ways, of=CompareResult, comparisons=[judged])


def make_way_lacking_delays() -> Any:
    made = make_way("packed", 1.1)
    for each in made.measurements:
        each.traits = Traits()
    return made


def test_what_training_over_delays_was_measured_to_cost() -> None:
    own = Traits(policy=PolicyTraits(delay_training=DelayTraining(delays=6)))
    forward = make_measurement(
        {"forward": 100.0, "forward/backbone": 65.0}, phase="training forward", name="t", traits=own
    )
    approve_findings("delays", {
        "delays-.*": {
            "packing that costs little": ("delays-packed", make_way("packed", 1.09)),
            "expanding that is dear": ("delays-expanded", make_way("expanded", 5.4)),
            "unlike attention": (
                "delays-packed", make_way("packed", 1.1, attention="two_way", prefix_attention="one_way")),
            "noise": ("", make_way("packed", 1.1, "inconclusive")),
            "a policy without delays": ("", make_way_lacking_delays()),
        },
        "backbone-.*": {"the policy's own delays": ("backbone-undecided", result(forward))},
    })  # fmt: skip
