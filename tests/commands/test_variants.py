"""Variants are composed from what is asked for; a treatment in a phase that it is not for is told in a line."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from lerobot.policies.rtc.configuration_rtc import RTCConfig
from support.builders.tiny_policies import load_tiny_subject
from support.fakes.sleeper import Clock, Sleeper

from strobe.commands import compare as command
from strobe.commands.compare_config import CompareConfig, list_recipes
from strobe.commands.variant_text import split_variant
from strobe.commands.variants import check, compose
from strobe.core.errors import UserError
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.results.recipe import Recipe
from strobe.core.runs.recipe_file import dump
from strobe.core.studies.compare import compare
from strobe.core.studies.shared.measuring import Options, measure
from strobe.core.subjects.subject import Phase
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Treatment, Variant
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.treatments.training import OptimizerForm


@cache
def subject(kind: str = "act") -> PolicySubject:
    return load_tiny_subject(kind, image_size=(64, 64))


def names(kind: str, **wanted: Any) -> list[str]:
    return [variant.name for variant in compose(subject(kind), request(**wanted))[0]]


def request(**flags: Any) -> CompareConfig:
    return CompareConfig(**{"phase": "inference", **flags})


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "fast.yaml"
    dump(Recipe(policy="act", treatments=[{"channels_last": True}]), path)
    return path


def test_what_is_asked_for_has_a_baseline_before_it(recipe: Path) -> None:
    five = ["five: policy.n_action_steps=5"]
    assert names("act", variant=five) == ["baseline", "five"]
    assert names("act", variant=five, compile=True) == [
        "baseline", "five", "baseline, compiled", "five, compiled",
    ]  # fmt: skip
    assert names("act", precision="bf16") == ["baseline", "bf16"]
    assert names("act", precision="fp32, bf16", variant=five) == ["fp32", "bf16", "five"]
    assert names("act", recipe=recipe) == ["baseline", "recipe"]
    assert names("act", recipe=recipe, variant=five) == ["recipe", "five"]
    assert names("act", phase="training step", levers="amp,fused") == ["baseline", "amp", "fused"]
    assert names("smolvla") == ["without RTC", "with RTC"]
    assert names("smolvla", closed_form=True) == ["without RTC", "with RTC", "RTC in closed form"]
    assert names("smolvla", rtc=RTCConfig(enabled=False), variant=five) == ["baseline", "five"]


def test_every_variant_has_its_own_treatments_in_the_order_of_their_ranks(recipe: Path) -> None:
    config = request(
        variant=[f"both: compile=default, precision=bf16, rtc.execution_horizon=6, recipe={recipe}"], recipe=recipe
    )
    assert list_recipes(config) == [recipe]
    (baseline, both), _ = compose(subject(), config)
    assert [treatment.key for treatment in baseline.treatments] == ["channels_last"]
    assert [treatment.key for treatment in both.treatments] == [
        "rtc", "precision", "channels_last", "channels_last", "compile",
    ]  # fmt: skip
    assert not set(map(id, baseline.treatments)) & set(map(id, both.treatments))


def test_levers_of_their_own_choice_say_what_they_left_out() -> None:
    variants, left_out = compose(subject(), request(phase="training step", levers="auto", batch_size=6))
    assert [variant.name for variant in variants][:2] == ["baseline", "amp"]
    assert [why.split(":")[0] for why in left_out] == ["accumulate=4", "checkpointing"]


# Every treatment, written down, with the phases that it is refused in and what the message says of it.
STEP: Phase = "training step"
FORWARD: Phase = "training forward"
INFERENCE: Phase = "inference"
INFERENCE_ONLY = (
    "policy.num_inference_steps=5", "policy.num_steps=5", "policy.n_action_steps=5", "frames=4", "images=64",
    "int8=dynamic", "fp8=dynamic", "padding=trimmed", "cameras=batched", "prefix_tail=skipped", "prefix_cache=static",
    "preprocessing=device", "timesteps=precomputed", "masks=once", "lm_head=skipped", "word_tables=apart",
    "context_keys=once", "words=once", "unread_half=skipped", "views=present", "prompt=once", "conditioning=once",
    "last_block=read_rows", "prompt_length=bucketed",
    "rotations=once", "guidance=closed form", "engine=openvino, engine.part=model.backbone",
    "int8_engine=openvino, int8_engine.part=model.backbone",
    "graph=loop", "rtc.execution_horizon=6", "weights=packed", "scores=products",
)  # fmt: skip
REFUSED: dict[str, dict[str, str]] = {
    text: dict.fromkeys((FORWARD, STEP), "is of inference: leave out --phase") for text in INFERENCE_ONLY
}
REFUSED |= {
    text: {INFERENCE: "is of training: add --phase='training step'"} for text in ("accumulate=4", "checkpointing=true")
}
REFUSED |= {
    text: dict.fromkeys(
        (FORWARD, STEP),
        f"is of inference (a training step already uses it, as in lerobot-train: {other} shows its gain): "
        "leave out --phase",
    )
    for text, other in (("tf32=true", "tf32=false"), ("cudnn=benchmark", "cudnn=default"))
}
REFUSED |= {
    f"{form}=true": {
        INFERENCE: "is of training step: add --phase='training step'",
        FORWARD: "is of training step: compare 'training step'",
    }
    for form in ("fused", "foreach", "forloop")
}
REFUSED |= {
    "policy.delay_training=packed": {INFERENCE: "is of training: add --phase='training step'"},
    "precision=bf16": {
        STEP: "is of inference and training forward (a training step would train a copy of the "
        "weights in each precision): compare 'training forward'"
    },
}
ANYWHERE = (
    "tf32=false", "cudnn=default", "amp=bf16", "channels_last=true", "projections=fused", "attention=sdpa",
    "compile=default", "memory=kept", "threads=1",
    "policy.use_amp=true", "policy.prefix_attention=one_way",
    "policy.delay_training=packed, policy.num_inference_steps=5",
)  # fmt: skip
REFUSED |= {text: {} for text in ANYWHERE}


def test_the_table_of_phases_has_every_treatment() -> None:
    listed = {catalogue.find_entry(text.split("=")[0]).key for text in REFUSED if not text.startswith("rtc.")}
    assert listed == {entry.key for entry in catalogue.own_entries()}


@pytest.mark.parametrize("text", REFUSED)
def test_a_treatment_is_refused_in_the_phases_it_is_not_for(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strobe.commands.variants.find_device", lambda *_: None)  # so that no device refuses it
    key = text.split(".")[0] if text.startswith("rtc.") else text.split("=")[0]
    for phase in (INFERENCE, FORWARD, STEP):
        wanted = request(phase=phase, variant=[f"a: {text}"])
        if phase not in REFUSED[text]:
            check(wanted)
            continue
        with pytest.raises(UserError) as caught:
            check(wanted)
        assert str(caught.value) == f"'a': {key} {REFUSED[text][phase]}"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--phase=training step", "--variant", "a: graph=loop"], "'a': graph is of inference: leave out --phase"),
        (["--levers=amp", "--variant", "a: padding=trimmed"], "'a': padding is of inference: leave out --levers"),
        (["--rtc.execution_horizon=6", "--phase=training forward"], "'--rtc': rtc is of inference: leave out --phase"),
        (["--precision=auto", "--phase=training step"], "'fp32': precision is of inference and training forward"),
        (
            ["--levers=amp", "--phase=inference"],
            "--levers only applies to training steps, not to 'inference': leave out --phase",
        ),
        (["--levers=auto", "--precision=bf16"], "--levers are about training"),
        (["--levers=accumulate=3"], "'accumulate=3': a batch of 8 cannot be cut into 3: change --batch_size"),
    ],
)
def test_flags_are_held_against_the_phase_too(flags: list[str], words: str) -> None:
    with pytest.raises(UserError) as caught:
        command.read(["--policy.type=pi05", *flags])
    assert str(caught.value).startswith(words)


class Foreign(Treatment):
    effect = "exact"

    def facts(self) -> dict[str, Any]:
        return {"micro-batches": 3, "compiled": True, "captured": True, "precision": "bf16, made up"}

    def apply(self, subject: Any) -> Any:
        return lambda: None


def test_what_another_package_says_is_shown_and_never_decided_by(monkeypatch: pytest.MonkeyPatch) -> None:
    variant = Variant("foreign", (Foreign(),))
    assert (variant.builds, variant.dtypes, variant.weight_dtypes, variant.micro_batches) == ((), (), (), 1)
    sleeper: Any = Sleeper(Clock().wind(monkeypatch))
    variants = [Variant("baseline"), variant, Variant("again", (Foreign(),))]
    result, _ = compare(sleeper, variants, INFERENCE, Options(SamplingBudget(iterations=3), counted=False))
    foreign = result.measurement("foreign")
    assert foreign.traits.labelled_values()["compiled"] is True
    assert not foreign.traits.is_compiled
    assert foreign.traits.build_s is None
    assert [comparison.baseline for comparison in result.comparisons] == ["baseline"] * 2


def test_the_python_api_is_held_against_the_phase_too() -> None:
    class OfInference(Foreign):
        phases = frozenset({"inference"})

    wrong = [Variant("a"), Variant("b", (OfInference(),))]
    options = Options(SamplingBudget(iterations=2))
    with pytest.raises(UserError, match=r"^'b': OfInference is of inference: leave out --phase$"):
        compare(subject(), wrong, STEP, options)
    with pytest.raises(UserError, match=r"^'fused': fused is of training step: add --phase='training step'$"):
        measure(subject(), INFERENCE, [Variant("fused", (OptimizerForm("fused"),))], options)
    with pytest.raises(UserError, match="cannot be cut into 3"):
        check(request(phase=STEP, variant=["a: accumulate=3"]))


def test_a_variant_without_a_name_is_called_as_it_is_written() -> None:
    assert split_variant("memory=kept").name == "memory=kept"
    assert split_variant("memory=kept").treatments == "memory=kept"
    with pytest.raises(UserError, match="write 'NAME: key=value"):
        split_variant("kept")
