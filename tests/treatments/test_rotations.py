"""V-JEPA 2's rotary positions, computed once: the same bits, in every dtype, size of input and place."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from support.builders.tiny_policies import load_tiny_subject

from strobe.core.errors import UserError
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Undo, Variant
from strobe.lerobot.policies.options import ModelOptions
from strobe.vision.model_subject import load_model

ATTENTION = "encoder.layer.0.attention"


@cache
def subject() -> Any:
    return load_model(ModelOptions(type="vjepa2", size="tiny", num_frames=8, img_size=96))


def apply_treatments(text: str) -> Undo:
    return Variant("v", (*catalogue.compose(catalogue.parse(text)),)).apply(subject())


def features(text: str, index: int = 0) -> torch.Tensor:
    undo = apply_treatments(text) if text else lambda: None
    try:
        return subject().call("inference", 1)(index)
    finally:
        undo()


@pytest.mark.parametrize("beside", ["", "precision=bf16", "frames=4", "images=64"])
def test_the_features_have_the_same_bits(beside: str) -> None:
    both = f"{beside}, rotations=once" if beside else "rotations=once"
    assert torch.equal(features(both), features(beside))


def test_the_angles_are_computed_once_for_all_layers_and_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.vjepa2 import modeling_vjepa2

    counted = list[int]()
    own = modeling_vjepa2.rotate_queries_or_keys

    def counting(*args: Any, **kwargs: Any) -> Any:
        counted.append(1)
        return own(*args, **kwargs)

    monkeypatch.setattr(modeling_vjepa2, "rotate_queries_or_keys", counting)
    undo = apply_treatments("rotations=once")
    try:
        call = subject().call("inference", 1)
        call(0)
        first = len(counted)
        call(1)
        call(0)
    finally:
        undo()
    assert first == 6, "three axes, for each of a pair's two neighbours"
    assert len(counted) == first


def test_tokens_that_a_mask_picks_keep_their_own_angles() -> None:
    attention = subject().module.get_submodule(ATTENTION)
    x = torch.randn(1, 5, attention.hidden_size)
    picked = torch.tensor([[3, 0, 17, 8, 30]])
    with torch.no_grad():
        before = attention(x, position_mask=picked)[0]
        undo = apply_treatments("rotations=once")
        try:
            after = attention(x, position_mask=picked)[0]
        finally:
            undo()
    assert torch.equal(after, before)


def test_gradients_flow_through_the_module_as_it_is() -> None:
    attention = subject().module.get_submodule(ATTENTION)
    x = torch.randn(1, 36, attention.hidden_size, requires_grad=True)
    undo = apply_treatments("rotations=once")
    try:
        attention(x)[0].sum().backward()
    finally:
        undo()
    assert x.grad is not None
    assert x.grad.abs().sum() > 0


def test_what_is_printed_of_the_part_says_so_while_it_is_on() -> None:
    """An engine is kept under the name of its part, as printed: one that was built without is not taken for it."""
    attention = subject().module.get_submodule(ATTENTION)
    before = repr(attention)
    undo = apply_treatments("rotations=once")
    on = repr(attention)
    undo()
    assert "rotations=once" in on
    assert repr(attention) == before


def test_only_v_jepa_2_has_it() -> None:
    assert list(catalogue.find_entry("rotations").candidates(subject())) == [{"rotations": "once"}]
    act = load_tiny_subject("act", cameras=1)
    assert not catalogue.find_entry("rotations").candidates(act)
    with pytest.raises(UserError, match="V-JEPA 2's attention, and it has none"):
        catalogue.make({"rotations": "once"}).apply(act)


def test_an_engine_of_it_gives_the_features(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    pytest.importorskip("openvino")
    monkeypatch.setenv("STROBE_CACHE", str(tmp_path))
    built = features("rotations=once, engine=openvino, engine.part=encoder, engine.precision=fp32")
    torch.testing.assert_close(built, features(""), rtol=1e-3, atol=1e-3)
