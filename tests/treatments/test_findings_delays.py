"""What the ways to train over delays were measured to cost, beside the rule of thumb that does not know them all."""

from __future__ import annotations

from typing import Any

from support.examples.findings_results import (
    approve_findings,
    make_applied_treatment,
    make_comparison,
    make_measurement,
    make_treated_traits,
    result,
)

from strobe.core.results.answer import CompareResult
from strobe.core.results.data import Interval
from strobe.core.results.measurement import Measurement
from strobe.core.results.traits import DelayTraining, PolicyTraits, Traits

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


def test_what_is_found() -> None:
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
