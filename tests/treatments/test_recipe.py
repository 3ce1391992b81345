"""A recipe goes on a subject in the right order, tells which rung does not fit, and leaves no trace when taken off."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from lerobot.policies.rtc.configuration_rtc import RTCConfig
from support.builders.checkpoints import tiny_recipe as recipe
from support.builders.tiny_policies import load_tiny_subject
from support.suite.matrix import matrix

from strobe.core.errors import UserError
from strobe.core.measure.guard import ROUNDING, Guard
from strobe.core.measure.host import versions
from strobe.core.results.agreement import Agreement
from strobe.core.results.recipe import Recipe
from strobe.core.runs.recipe_file import dump
from strobe.core.treatments.recipe import (
    PACKAGES,
    RecipeTreatment,
    differences,
    load,
    make_treatments,
    merge_specs,
    recipe_guard,
    require_kind,
)
from strobe.core.treatments.treated import Treated
from strobe.core.treatments.treatment import Treatment, Undo, Variant
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.treatments.flow.rtc import RealTimeChunking, switch


@cache
def subject(kind: str) -> PolicySubject:
    return load_tiny_subject(kind)


def apply_recipe(act: PolicySubject, made: Recipe, name: str = "recipe") -> Undo:
    require_kind(act.info.kind, made, name)
    return Treated(act, Variant(name, make_treatments(made, name))).revert


def test_it_goes_on_and_comes_off_again() -> None:
    act = subject("act")
    baseline = act.chunk()
    undo = apply_recipe(act, recipe("act", {"channels_last": True}, {"precision": "bf16"}))
    assert {parameter.dtype for parameter in act.policy.parameters()} == {torch.bfloat16}
    treated = act.chunk()
    undo()
    assert {parameter.dtype for parameter in act.policy.parameters()} == {torch.float32}
    assert torch.equal(act.chunk(), baseline)
    assert not torch.equal(treated, baseline)
    assert torch.cosine_similarity(treated.flatten(), baseline.flatten(), dim=0) > 0.999


def test_the_rungs_are_put_on_by_their_ranks_not_as_written() -> None:
    written = recipe(
        "act", {"compile": True}, {"channels_last": True}, {"policy.n_action_steps": 5}, {"precision": "bf16"}
    )
    rungs = make_treatments(written, "fast.yaml")
    assert [rung.label.split("(")[1] for rung in rungs] == [
        "policy.n_action_steps=5)",
        "precision=bf16)",
        "channels_last=true)",
        "compile=true)",
    ]
    assert [rung.label.split(" (")[0] for rung in rungs][-1] == "fast.yaml: step 1"
    woven = merge_specs(
        make_treatments(recipe("act", {"compile": True}, {"precision": "bf16"})), [{"channels_last": True}]
    )
    assert [(one.recipe, one.traits().key, one.traits().value) for one in woven] == [
        ("recipe", "precision", "bf16"),
        (None, "channels_last", True),
        ("recipe", "compile", "default"),
    ]


@pytest.mark.parametrize(
    ("treatments", "words"),
    [
        (
            [{"channels_last": True}, {"policy.chunk_size": 5}, {"precision": "bf16"}],
            r"^x.yaml: step 2 \(policy.chunk_size=5\): .*cannot be changed on a built policy",
        ),
        (
            [{"channels_last": True}, {"precision": "bf16", "precision.part": "model.backbon"}],
            r"^x.yaml: step 2 \(precision=bf16, precision.part=model.backbon\): no part .*'model.backbone'",
        ),
        (
            [{"precision": "bf16"}, {"guidance": "closed form"}],
            r"^x.yaml: step 2 \(guidance=closed form\): .*no Real-Time",
        ),
        ([{"precision": "bf16"}, {"presicion": "bf16"}], r"^x.yaml: step 2 \(presicion=bf16\): .*'precision'"),
        ([{"precision": "bf8"}], r"^x.yaml: step 1 \(precision=bf8\): unknown precision 'bf8'"),
    ],
)
def test_a_rung_that_does_not_fit_is_named_and_nothing_stays(treatments: list[Any], words: str) -> None:
    act = subject("act")
    baseline, state = act.chunk(), {name: value.data_ptr() for name, value in act.policy.state_dict().items()}
    with pytest.raises(UserError, match=words) as caught:
        apply_recipe(act, recipe("act", *treatments), "x.yaml")
    assert "\n" not in str(caught.value)
    assert {name: value.data_ptr() for name, value in act.policy.state_dict().items()} == state
    assert torch.equal(act.chunk(), baseline)


def test_other_versions_are_told_in_one_line() -> None:
    here = versions(PACKAGES)
    assert set(here) == set(PACKAGES)
    assert differences(recipe("act", {"precision": "bf16"}, versions=here)) == []
    assert differences(recipe("act", {"precision": "bf16"})) == []
    told = differences(
        recipe("act", {"precision": "bf16"}, versions=here | {"torch": "1.0", "lerobot": "0.1"}), "x.yaml"
    )
    assert told == [
        f"x.yaml was made with lerobot 0.1 (here {here['lerobot']}), torch 1.0 (here {here['torch']}): "
        "its times and its agreement may not hold"
    ]


@pytest.mark.parametrize("kind", matrix(["smolvla", "pi05"]))
def test_closed_form_guidance_takes_hold_whenever_rtc_comes(kind: str) -> None:
    flow: Any = subject(kind)
    policy = flow.policy
    rtc = RealTimeChunking(RTCConfig(enabled=True, execution_horizon=6), 2)
    undo = Variant("rtc", (rtc,)).apply(flow)
    theirs = flow.chunk()
    undo()
    undo = apply_recipe(flow, recipe(kind, {"guidance": "closed form"}))
    try:
        assert policy.rtc_processor is None
        assert flow.chunk().isfinite().all()  # no RTC yet is no error
        for _ in range(2):  # as lerobot-rollout turns it on, and once more
            policy.config.rtc_config = RTCConfig(enabled=True, execution_horizon=6)
            policy.init_rtc_processor()
            assert "denoise_step" in vars(policy.model.rtc_processor)
        switch(policy, None)
        undo_rtc = rtc.apply(flow)
        assert torch.equal(flow.chunk(), theirs)
        processor = policy.rtc_processor
        assert "denoise_step" in vars(processor)
        undo_rtc()
    finally:
        undo()
        switch(policy, None)
    assert "init_rtc_processor" not in vars(policy)
    policy.config.rtc_config = RTCConfig(enabled=True)
    policy.init_rtc_processor()
    assert "denoise_step" not in vars(policy.rtc_processor)
    switch(policy, None)


def test_taking_it_off_frees_the_processor_that_came_later() -> None:
    flow: Any = subject("smolvla")
    undo = apply_recipe(flow, recipe("smolvla", {"guidance": "closed form"}))
    flow.policy.config.rtc_config = RTCConfig(enabled=True)
    flow.policy.init_rtc_processor()
    processor = flow.policy.rtc_processor
    undo()
    assert "denoise_step" not in vars(processor)
    switch(flow.policy, None)


def agreement(cosine: float) -> Agreement:
    return Agreement(cosine=cosine, largest_error=0.01, mean_error=0.001, observations=1)


def test_the_guard_is_the_recipes_or_what_it_recorded() -> None:
    spec = {"precision": "bf16"}
    asked = recipe_guard(recipe("act", spec, guard="cosine>=0.98", agreement=agreement(0.9999)))
    assert asked.judge(agreement(0.98)).outcome == "held"
    assert asked.judge(agreement(0.97999)).broken_limit
    recorded = recipe_guard(recipe("act", spec, agreement=agreement(0.99)))
    assert recorded.judge(agreement(0.985)).outcome == "held"
    assert recorded.judge(agreement(0.97)).broken_limit
    assert recipe_guard(recipe("act", spec, agreement=agreement(1.0))).judge(agreement(1 - 5e-7)).outcome == "held"
    assert str(recipe_guard(recipe("act", spec))) == ROUNDING
    episodes = recipe_guard(recipe("act", spec, guard="success_drop<=0.1", agreement=agreement(0.99)))
    assert episodes == recorded, "loading plays no episodes, and must not let any actions pass for it"


def test_the_guard_knows_the_effect_of_the_treatments() -> None:
    spec = {"precision": "bf16"}
    moved = agreement(0.9999).model_copy(update={"rms": 0.05, "worst": 0.1, "flips": 0.0})
    assert recipe_guard(recipe("act", spec), ["exact"]) == Guard(exact=True)
    assert recipe_guard(recipe("act", spec, agreement=moved), ["exact", "exact"]).exact
    assert str(recipe_guard(recipe("act", spec, agreement=moved), ["exact", "lossy"])) == ROUNDING, "as verify has it"
    by_episodes = recipe("act", spec, guard="success_drop<=0.1", agreement=moved)
    assert str(recipe_guard(by_episodes, ["exact", "lossy"])) == "rms<=0.1, worst<=0.2, flips<=0"
    asked = recipe_guard(recipe("act", spec, guard="rms<=0.5"), ["exact"])
    assert asked.exact
    assert asked.limits == {"rms": 0.5}
    old = recipe_guard(recipe("act", spec, guard="cosine>=0.999"), ["exact"])
    assert not old.exact
    assert old.blind_spots


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"treatments": [{"precision": "bf16"}, {"presicion": "bf16"}]}, "treatments.2: no treatment 'presicion'"),
        ({"treatments": [{"precision": "bf16", "precision.prat": "x"}]}, "treatments.1: 'precision.prat' is no option"),
        ({"treatments": [{"forloop": True}]}, "treatments.1: 'forloop' is of training, and a recipe is for inference"),
        ({"treatments": [{"fused": True}]}, "treatments.1: 'fused' is of training, and a recipe is for inference"),
        ({"treatments": [{"channels_last": 1}]}, "treatments.1: channels_last=1: channels_last takes no value"),
        ({"treatments": [{"precision": "bf16"}], "guard": "good"}, "guard: 'good': write FIGURE"),
    ],
)
def test_a_file_with_what_is_not_known_is_refused_with_its_field(fields: Any, words: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    dump(Recipe(policy="act", **fields), path)
    with pytest.raises(UserError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: {words}")
    assert "\n" not in str(caught.value)


def test_a_rung_has_the_traits_of_the_treatment_in_it() -> None:
    class Everything(Treatment):
        effect = "lossy"
        key = "everything"
        phases = frozenset({"inference"})
        because = "it is"
        builds = "captured"
        dtypes = ("int8",)
        arithmetic = 0.5
        copies_weights = changes_input = changes_execution = fixed_inputs = guided = True
        micro_batches = 3

        def apply(self, subject: Any) -> Any:
            return lambda: None

    inner = Everything()
    rung = RecipeTreatment(inner, 0, "step 1", "everything=true", "x.yaml")
    for trait in Treatment.__annotations__.keys() - {"recipe", "effect"}:
        assert getattr(inner, trait) != getattr(Treatment, trait), f"this test must set {trait}"
    for member in {*Treatment.__annotations__, *vars(Treatment)} - {"recipe", "apply"}:
        assert member.startswith("_") or getattr(rung, member) == getattr(inner, member), member
    inner.effect = "exact"  # as a precision finds when it is applied
    assert rung.effect == "exact"
