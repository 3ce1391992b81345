"""Traits: what an older document said in texts is kept in fields, and shown in the same words."""

from __future__ import annotations

from hypothesis import given, settings
from support.examples import any_result

from strobe.core.results.traits import Traits, TreatmentTraits


def test_what_a_run_finds_by_itself_makes_no_difference() -> None:
    def make_traits(seconds: float) -> Traits:
        engine = TreatmentTraits(key="engine", value="openvino", build_s=seconds, from_cache=seconds < 1)
        return Traits(treatments=[engine], build_s=seconds)

    assert make_traits(0.1) != make_traits(9.0)
    assert make_traits(0.1).drop_treatments() == make_traits(9.0).drop_treatments()


@given(any_result.model_strategy(Traits))
@settings(deadline=None)
def test_json_leaves_out_defaults_and_loses_nothing(traits: Traits) -> None:
    assert Traits.model_validate_json(traits.model_dump_json()) == traits
