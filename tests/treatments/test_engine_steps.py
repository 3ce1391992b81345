"""All denoising steps in one engine: the same noise, the same actions, and torch where anything has changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.builders.tiny_policies import load_tiny_subject
from support.checks.treatment_block import treat
from torch import Tensor

from strobe.core.errors import UserError
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Variant
from strobe.ladder.candidates import is_slot_covered, make_candidate, together

STEP = {"engine": "openvino", "engine.part": "diffusion.unet", "engine.precision": "fp32"}
ALL = {**STEP, "engine.steps": "all"}


@pytest.fixture(scope="module")
def diffusion() -> Any:
    return load_tiny_subject("diffusion", "--num_inference_steps=2", cameras=1)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.getbasetemp() / "engines of all steps"
    monkeypatch.setenv("STROBE_CACHE", str(folder))
    return folder


def calls_of_the_network(subject: Any, index: int) -> tuple[Tensor, int, Tensor]:
    """Return the chunk, how often the network was called, and the number that torch draws next."""
    seen: list[object] = []
    hook = subject.module.diffusion.unet.register_forward_pre_hook(lambda *_: seen.append(None))
    try:
        return subject.call("inference")(index), len(seen), torch.rand(1)
    finally:
        hook.remove()


@pytest.mark.parametrize("_", ["built", "from the cache"])
def test_the_same_noise_gives_the_same_actions_in_one_call(diffusion: Any, _: str) -> None:
    before = [calls_of_the_network(diffusion, index) for index in (0, 1)]
    with treat(diffusion, Variant("all", (catalogue.make(ALL),))):
        after = [calls_of_the_network(diffusion, index) for index in (0, 1)]
    for (chunk, steps, drawn), (treated, left, drawn_after) in zip(before, after, strict=True):
        assert (steps, left) == (2, 0)
        assert torch.allclose(chunk, treated, atol=1e-3 * float(chunk.std()))
        assert torch.equal(drawn, drawn_after), "it draws as often as the policy does"
    assert not torch.allclose(before[0][0], before[1][0], atol=1e-2 * float(before[0][0].std()))


@pytest.mark.slow("two engines are built")
def test_with_another_number_of_steps_torch_computes_until_it_is_applied_again(diffusion: Any) -> None:
    treatment, model = catalogue.make(ALL), diffusion.module.diffusion
    try:
        with treat(diffusion, Variant("all", (treatment,))):
            model.num_inference_steps = 1
            changed, steps, _ = calls_of_the_network(diffusion, 0)
        wanted = diffusion.call("inference")(0)
        with treat(diffusion, Variant("all", (treatment,))):
            again, left, _ = calls_of_the_network(diffusion, 0)
    finally:
        model.num_inference_steps = 2
    assert (steps, left) == (1, 0)
    assert torch.equal(changed, wanted)
    assert torch.allclose(again, wanted, atol=1e-3 * float(wanted.std()))


def test_another_part_is_refused_in_one_line(diffusion: Any) -> None:
    other = catalogue.make({**ALL, "engine.part": "diffusion.rgb_encoder"})
    with pytest.raises(UserError, match=r"use engine\.part=diffusion\.unet"), treat(diffusion, Variant("v", (other,))):
        pass


def test_the_ladder_tries_it_first_and_may_put_it_in_the_place_of_an_engine_of_each_step(diffusion: Any) -> None:
    assert {**catalogue.find_entry("engine").candidates(diffusion)[0], "engine.precision": "fp32"} == ALL
    assert not is_slot_covered(ALL, [STEP])
    assert together([STEP], [ALL]) == (ALL,)
    assert is_slot_covered(STEP, [ALL])
    assert make_candidate(diffusion, [ALL]).build_s == 0, "two steps"
    many = load_tiny_subject("diffusion", "--num_inference_steps=21", cameras=1)
    assert make_candidate(many, [ALL]).build_s > 60 > make_candidate(many, [STEP]).build_s, "it takes minutes"


def test_a_narrower_dtype_may_take_the_place_of_a_wider_one_and_never_the_other_way_round() -> None:
    narrow = {**STEP, "engine.precision": "bf16"}
    assert not is_slot_covered(narrow, [STEP])
    assert is_slot_covered(STEP, [narrow])
    assert is_slot_covered(narrow, [ALL]), "it would be called in each step again"
    assert is_slot_covered(narrow, [{"int8_engine": "openvino", "int8_engine.part": "diffusion.unet"}])
