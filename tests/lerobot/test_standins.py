"""The stand-in tokenizers are real ones of the right size, and stand in only where they may."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.core.errors import UserError
from strobe.lerobot.families import pi, smolvla
from strobe.lerobot.families.pi import PALIGEMMA
from strobe.lerobot.policies.standins import TINY_VOCABULARY, Vocabulary, stand_ins, tokenizer
from strobe_zoo import multi_task_dit

KNOWN = [pi.VOCABULARY, smolvla.VOCABULARY, multi_task_dit.VOCABULARY]


@pytest.mark.parametrize(("known", "size"), zip(KNOWN, (257152, 49280, 49408), strict=True))
def test_the_vocabulary_is_as_large_as_the_real_one(known: Vocabulary, size: int) -> None:
    assert len(tokenizer(known)) == size
    assert len(tokenizer(known, tiny=True)) == TINY_VOCABULARY


@given(text=st.text(max_size=60), length=st.integers(4, 24), known=st.sampled_from(KNOWN))
@settings(max_examples=50, deadline=None)
def test_ids_are_in_the_vocabulary_cut_and_padded(text: str, length: int, known: Vocabulary) -> None:
    stand_in = tokenizer(known, tiny=True)
    coded = stand_in(
        [text], max_length=length, truncation=True, padding="max_length", padding_side="right", return_tensors="pt"
    )
    ids: Any = coded["input_ids"]
    mask: Any = coded["attention_mask"]
    assert ids.shape == mask.shape == (1, length)
    assert 0 <= int(ids.min()) <= int(ids.max()) < TINY_VOCABULARY
    assert bool((ids[mask == 0] == stand_in.pad_token_id).all())
    plain: Any = stand_in(text)["input_ids"]
    assert int(mask.sum()) == min(len(plain), length)


@given(text=st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=40))
@settings(max_examples=30, deadline=None)
def test_nothing_is_lost(text: str) -> None:
    stand_in = tokenizer(smolvla.VOCABULARY)
    ids: Any = stand_in(text)["input_ids"]
    assert stand_in.decode(ids, clean_up_tokenization_spaces=False) == text


def test_digits_and_known_words_are_one_token_each() -> None:
    assert len(tokenizer(smolvla.VOCABULARY).tokenize("push the block 42")) == 6


def test_the_smolvlm_config_has_the_real_sizes() -> None:
    config: Any = smolvla.backbone_config()
    text, vision = config.text_config, config.vision_config
    assert (text.hidden_size, text.num_hidden_layers, text.vocab_size, text.head_dim) == (960, 32, 49280, 64)
    assert (vision.hidden_size, vision.image_size, config.scale_factor) == (768, 512, 4)


def test_random_weights_get_a_stand_in_and_a_note() -> None:
    from lerobot.processor import TokenizerProcessorStep, tokenizer_processor

    real = tokenizer_processor.AutoTokenizer
    with stand_ins("pi05", random_weights=True) as notes:
        step = TokenizerProcessorStep(tokenizer_name=PALIGEMMA)
    assert len(step.input_tokenizer) == 257152
    assert len(notes) == 1
    assert PALIGEMMA in notes[0]
    assert tokenizer_processor.AutoTokenizer is real


@pytest.mark.parametrize(("name", "random_weights"), [(PALIGEMMA, False), ("some/unknown", True)])
def test_no_stand_in_for_real_weights_or_an_unknown_name(name: str, random_weights: bool) -> None:
    from lerobot.processor import TokenizerProcessorStep

    with stand_ins("pi05", random_weights=random_weights) as notes, pytest.raises(UserError, match=name):
        TokenizerProcessorStep(tokenizer_name=name)
    assert notes == []


@pytest.mark.parametrize("random_weights", [True, False])
def test_a_plug_ins_backbone_of_timm_reads_weights_only_where_they_are_asked_for(
    random_weights: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    timm = pytest.importorskip("timm")
    read = []
    monkeypatch.setattr(timm.models._builder, "load_pretrained", lambda *_, **__: read.append(True))
    with stand_ins("a_plug_in", random_weights=random_weights):
        assert timm.create_model("resnet10t", pretrained=True).num_features == 512
    assert read == [True] * (not random_weights)
    assert ("ResNet were not loaded: all weights are random" in caplog.text) == random_weights
