"""Where two passes first differ: records of two environments compared with each other."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from strobe.environments.first_difference import Entry, compare, compare_gradients, read, settings, stage_name


def entry(
    name: str, values: object, *, group: str = "policy", what: str = "gives", call: int = 1, dtype: str = "float32"
):
    sample = np.asarray(values, dtype=np.float32 if "float" in dtype else np.int64)
    digest = "" if "float" in dtype else sample.tobytes().hex()
    return Entry((group, name, what, call), sample.shape, dtype, digest=digest, sample=sample.reshape(-1))


def text(name: str, words: str) -> Entry:
    return Entry(("preprocessing", name, "task", 1), (), "text", text=words)


VALUES = np.linspace(-1.0, 1.0, 64)
PASS = [
    entry("NormalizerProcessorStep", VALUES, group="preprocessing"),
    entry("model.vision_tower", VALUES * 2),
    entry("model.language_model.layers.0", VALUES * 3),
    *(entry("model.action_head", VALUES * step, call=step) for step in (1, 2, 3, 4)),
    entry("UnnormalizerProcessorStep", VALUES * 7, group="postprocessing"),
]


def change_pass(place: int, factor: float) -> list[Entry]:
    """Return the pass with all that comes from ``place`` on multiplied."""
    return [
        dataclasses.replace(one, sample=one.sample * np.float32(factor))
        if at >= place and one.sample is not None
        else one
        for at, one in enumerate(PASS)
    ]


def test_a_pass_does_not_differ_from_itself():
    found = compare(PASS, PASS, steps=4)
    assert found.stages == []
    assert (found.count, found.unmatched) == (len(PASS), [])


@pytest.mark.parametrize(
    ("place", "stage"),
    [
        (0, "preprocessing"),
        (1, "vision"),
        (2, "prefix"),
        (3, "denoising step 1"),
        (5, "denoising step 3"),
        (7, "postprocessing"),
    ],
)
def test_the_first_stage_that_differs_comes_first(place: int, stage: str):
    found = compare(PASS, change_pass(place, 1.01), steps=4).stages
    assert found[0].stage == stage
    assert found[0].distance == pytest.approx(0.01, rel=0.01)


def test_what_rounding_moves_as_far_is_no_difference():
    apart = change_pass(1, 1.0001)
    assert compare(PASS, apart, steps=4).stages
    assert not compare(PASS, apart, reordered=change_pass(1, 1.00005), steps=4).stages


def test_half_precision_has_a_wider_floor():
    before = [entry("model.vision_tower", VALUES, dtype="bfloat16")]
    near, far = ([entry("model.vision_tower", VALUES * factor, dtype="bfloat16")] for factor in (1.005, 1.1))
    assert not compare(before, near).stages
    assert compare(before, far).stages


def test_another_shape_is_named_with_both():
    longer = [entry("TokenizerProcessorStep", np.arange(9), group="preprocessing", dtype="int64")]
    shorter = [entry("TokenizerProcessorStep", np.arange(8), group="preprocessing", dtype="int64")]
    (found,) = compare(shorter, longer).stages
    assert found.kind == "shape"
    assert "8 on one side and 9 on the other" in found.words


def test_dimensions_in_another_order_are_not_judged():
    before = [entry("model.visual", VALUES.reshape(16, 4))]
    after = [entry("model.visual", VALUES.reshape(16, 4).T)]
    assert compare(before, after).stages == []


@pytest.mark.parametrize("count", [3, 5])
def test_a_step_less_or_more_is_named(count: int):
    before = [entry("model.action_head", VALUES, call=step) for step in (1, 2, 3, 4)]
    after = [entry("model.action_head", VALUES, call=step) for step in range(1, count + 1)]
    (found,) = compare(before, after, steps=4).stages
    assert found.kind == "calls"
    assert f"4 times on one side and {count} on the other" in found.words


def test_tokens_and_texts_differ_by_a_single_one():
    before = [text("step", "pick up the cube"), entry("tokens", [1, 2, 3], dtype="int64")]
    after = [text("step", "pick up the cube"), entry("tokens", [1, 2, 4], dtype="int64")]
    assert [found.place for found in compare(before, after).stages] == ["tokens gives"]
    after = [text("step", "pick up a cube"), before[1]]
    assert compare(before, after).stages[0].kind == "values"


def test_the_same_mask_by_another_lowest_number_is_no_difference():
    minus = np.finfo(np.float32).min
    before = [entry("model.language_model", [0.0, -np.inf, 0.0], what="given attention_mask")]
    after = [entry("model.language_model", [0.0, minus, 0.0], what="given attention_mask")]
    inverted = [entry("model.language_model", [minus, 0.0, minus], what="given attention_mask")]
    assert not compare(before, after).stages
    assert compare(before, inverted).stages


def test_a_mask_of_another_kind_of_number_is_not_judged():
    before = [entry("model.language_model", [1, 0, 1], what="given attention_mask", dtype="bool")]
    after = [entry("model.language_model", [0.0, -1e38, 0.0], what="given attention_mask")]
    assert not compare(before, after).stages


def test_a_number_that_is_not_finite_on_one_side_differs():
    broken = VALUES.copy()
    broken[3] = np.nan
    (found,) = compare([entry("model.vision_tower", VALUES)], [entry("model.vision_tower", broken)]).stages
    assert found.distance is None
    json.dumps(found.model_dump())


def test_weights_of_another_dtype_are_named():
    before = [entry("", VALUES, group="weights", what="model.q_proj.weight")]
    after = [entry("", VALUES, group="weights", what="model.q_proj.weight", dtype="bfloat16")]
    (found,) = compare(before, after).stages
    assert (found.kind, found.stage) == ("type", "weights")


ACTIONS = entry("", VALUES, what="normalised actions")


def test_another_way_to_the_same_actions_is_inside():
    found = compare([*PASS, ACTIONS], [*change_pass(1, 1.5)[:3], *PASS[3:], ACTIONS], steps=4)
    assert found.stages == []
    assert [one.stage for one in found.inside] == ["vision", "prefix"]
    other = entry("", VALUES * 2, what="normalised actions")
    found = compare([*PASS, ACTIONS], [*change_pass(1, 1.5), other], steps=4)
    assert found.stages[0].stage == "vision"
    assert found.inside == []


def test_what_a_module_is_given_in_another_shape_counts_if_what_it_gives_differs():
    given = [entry("model.rotary", 1, what="given 0"), entry("model.rotary", np.ones((2, 3)), what="given 0")]
    gives = [entry("model.rotary", VALUES), entry("model.rotary", VALUES * 2)]
    assert compare([given[0], gives[0]], [given[1], gives[0]]).stages == []
    assert compare([given[0], gives[0]], [given[1], gives[1]]).stages[0].kind == "shape"


def weight(name: str, values: object) -> Entry:
    return entry("", values, group="weights", what=name)


def test_weights_that_were_renamed_and_read_are_no_difference():
    before, after = [weight("model.vision_model.proj", VALUES)], [weight("model.proj", VALUES)]
    assert compare(before, after).stages == []


def test_weights_that_were_renamed_and_not_read_are_the_first_difference():
    before = [weight("model.vision_model.proj", VALUES), weight("model.head", VALUES * 2), *PASS]
    after = [weight("model.proj", VALUES[::-1]), weight("model.head", VALUES * 2), *change_pass(1, 2.0)]
    found = compare(before, after, steps=4).stages
    assert (found[0].stage, found[0].place) == ("weights", "model.vision_model.proj")
    assert found[1].stage == "vision"


def test_modules_that_only_one_side_has_are_named_once():
    before = [entry("model.vision_tower.encoder", VALUES), entry("model.vision_tower.encoder.layer", VALUES)]
    after = [entry("model.vision_tower.blocks", VALUES)]
    found = compare(before, after)
    assert found.stages == []
    assert found.unmatched == ["model.vision_tower.blocks", "model.vision_tower.encoder"]


def test_stages_of_a_policy_without_denoising_are_its_modules():
    assert stage_name(("policy", "model.encoder.layers.3", "gives", 1), 1, None) == "encoder"
    assert stage_name(("policy", "model.backbone.layer1", "gives", 1), 1, None) == "vision"


def test_settings_that_only_one_side_has_do_not_differ():
    before, after = {"policy.a": "1", "policy.b": "2"}, {"policy.a": "1", "policy.b": "3", "policy.c": "4"}
    assert [found.place for found in settings(before, after)] == ["policy.b"]


def test_gradients_are_compared_by_what_both_sides_have():
    before = [entry("", VALUES, group="gradient", what="w"), entry("", VALUES, group="gradient", what="only here")]
    same = compare_gradients(2.0, before, 2.0, before[:1])
    assert (same.cosine, same.error, same.loss_error) == (pytest.approx(1.0), 0.0, 0.0)
    doubled = [entry("", 2 * VALUES, group="gradient", what="w")]
    apart = compare_gradients(2.0, before, 2.2, doubled)
    assert (apart.error, apart.loss_error) == (pytest.approx(1.0), pytest.approx(0.1))
    assert compare_gradients(2.0, before, float("nan"), []).cosine == 0


def test_a_record_is_read_as_it_was_written(tmp_path: Path):
    entries = [
        {
            "group": "policy",
            "name": "a",
            "what": "gives",
            "call": 1,
            "shape": [2],
            "dtype": "float32",
            "sample": 0,
            "rms": 1.0,
        },
        {"group": "preprocessing", "name": "b", "what": "task", "call": 1, "shape": [], "dtype": "text", "text": "go"},
    ]
    np.savez(tmp_path / "record.npz", allow_pickle=False, **{"0": np.array([1.0, -1.0])})
    (tmp_path / "record.json").write_text(json.dumps(entries))
    first, second = read(tmp_path / "record.npz")
    assert first.sample is not None
    assert first.sample.tolist() == [1.0, -1.0]
    assert (second.text, second.sample) == ("go", None)
