"""Traits: what an older document said in texts is kept in fields, and shown in the same words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import any_result
from support.golden import ALL, name_of

from strobe.core.results.answer import Result
from strobe.core.results.schema_1 import traits_of
from strobe.core.results.traits import Traits, TreatmentTraits
from strobe.core.runs import store

SCHEMA_1 = Path(__file__).with_name("schema_1.json")  # kept as Strobe wrote it before there were traits


@pytest.fixture(scope="module")
def older() -> Result:
    return store.load(SCHEMA_1)


@pytest.mark.parametrize("file", [SCHEMA_1, *ALL], ids=name_of)
def test_all_that_an_older_document_says_is_shown_in_the_same_words_and_order(file: Path) -> None:
    for measurement in json.loads(file.read_bytes()).get("measurements", []):
        facts = measurement.get("facts", {})
        if measurement["name"] != "of another package":  # notes come last
            assert list(traits_of(facts).labelled().items()) == list(facts.items())
        assert traits_of(facts).labelled() == facts


def test_an_older_document_is_kept_as_one_of_today(older: Result, tmp_path: Path) -> None:
    store.save(older, tmp_path)
    assert store.load(tmp_path) == older
    (kept,) = [m for m in json.loads((tmp_path / store.RESULT).read_bytes())["measurements"] if m["name"] == "as it is"]
    assert kept["traits"] == {
        "device": "cpu",
        "batch_size": 1,
        "policy": {"chunk_size": 50, "trainable_tensors": 812, "denoising_steps": 10, "executed_actions": 50},
    }


def test_fields_say_what_the_texts_said(older: Result) -> None:
    traits = {measurement.name: measurement.traits for measurement in older.measurements}
    rtc = traits["with RTC"].rtc
    assert rtc is not None
    assert (rtc.execution_horizon, rtc.inference_delay) == (10, 4)
    assert traits["without RTC"].rtc is None
    assert traits["with RTC"].without("rtc", "guidance") == traits["without RTC"].without("rtc", "guidance")
    engines = [(one.part, one.precision, one.build_s, one.from_cache) for one in traits["two engines"].treatments[1:]]
    assert engines == [("model.encoder", "bf16", 2.71, True), ("model.backbone", "bf16", 3.25, True)]
    assert traits["two engines"].setting("num_inference_steps") == 5
    assert [one.value for one in traits["captured"].treatments if one.builds == "captured"] == ["prefix", "loop"]
    assert [one.key for one in traits["step"].treatments] == ["amp", "fused", "accumulate", "compile"]
    assert traits["step"].compiled
    assert traits["tick"].loop is not None
    assert traits["tick"].loop.compiled is False


def test_what_no_field_takes_is_a_note(older: Result) -> None:
    traits = older.measurement("of another package").traits
    assert traits.notes == {"halved": True, "batch size": "many"}
    assert traits.batch_size is None


def test_what_a_run_finds_by_itself_makes_no_difference() -> None:
    def built(seconds: float) -> Traits:
        engine = TreatmentTraits(key="engine", value="openvino", build_s=seconds, from_cache=seconds < 1)
        return Traits(treatments=[engine], build_s=seconds)

    assert built(0.1) != built(9.0)
    assert built(0.1).without() == built(9.0).without()


SCALAR: Any = any_result.SCALAR
LABELS = st.sampled_from(
    ["batch size", "rtc.enabled", "compiled", "captured", "graph.loop", "engine", "engine.part", "engine build s",
     "fps", "workers", "precision", "precision.part", "policy.num_steps", "optimizer", "frames per clip", "tokens",
     "recipe"]
)  # fmt: skip


@given(st.dictionaries(LABELS | any_result.TEXT, SCALAR, max_size=6))
@settings(deadline=None)
def test_no_text_of_an_older_document_is_refused(facts: dict[str, Any]) -> None:
    traits = traits_of(facts)
    assert Traits.model_validate_json(traits.model_dump_json()) == traits


@given(any_result.any_of(Traits))
@settings(deadline=None)
def test_json_leaves_out_defaults_and_loses_nothing(traits: Traits) -> None:
    assert Traits.model_validate_json(traits.model_dump_json()) == traits
