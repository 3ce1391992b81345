"""Stand-ins for tokenizers on the Hub: real tokenizers with vocabularies of the same size."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

TINY_VOCABULARY = 512
# Module and attribute by which LeRobot's processors load a tokenizer.
TOKENIZERS = ("lerobot.processor.tokenizer_processor", "AutoTokenizer")

_IMAGE_TOKENS = ("<fake_token_around_image>", "<global-img>", "<image>")
_PHRASES = (
    "pick up the red cube and place it in the box, then put the bowl on the plate",
    "push the T-shaped block onto the green target; open the top drawer and close it",
    "grasp the handle, turn the tap, press the button, insert the peg, fold the towel, stack the blocks",
    "Task: move the left arm to the right, State: -1 0 127 255;\nAction: User: Assistant:",
)


@dataclass(frozen=True)
class Vocabulary:
    """The facts of a tokenizer that matter to LeRobot.

    Args:
        size: tokens in its vocabulary.
        special: the names of special tokens (``pad_token`` …) with their texts.
        begins: whether every text begins with the ``bos_token``, and ``ends``, whether it ends with the ``eos_token``.
        more: further texts that are one token each, such as those around images, with the ids that configs give them.
    """

    size: int
    special: tuple[tuple[str, str], ...]
    begins: bool = False
    ends: bool = False
    more: tuple[tuple[str, int], ...] = ()


@cache
def tokenizer(vocabulary: Vocabulary, tiny: bool = False) -> Any:
    """Return a fast tokenizer that stands in for the one with ``vocabulary``: byte-level BPE over words of robot tasks.

    Digits are split one by one and unknown words fall back to bytes, as in the real ones; ids lie below the
    real vocabulary's size (below TINY_VOCABULARY if ``tiny``), which ``len`` returns.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    size, special = TINY_VOCABULARY if tiny else vocabulary.size, dict(vocabulary.special)
    more = [text for text, _ in vocabulary.more]
    reserved = list(dict.fromkeys([*special.values(), *more, *_IMAGE_TOKENS]))
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=alphabet, special_tokens=reserved, show_progress=False
    )
    bpe.train_from_iterator(_PHRASES, trainer)
    learned = json.loads(bpe.to_str())["model"]
    ids = learned["vocab"] | {f"<unused{i}>": i for i in range(len(learned["vocab"]), size)}
    if not tiny:
        for text, number in vocabulary.more:
            ids[text], ids[f"<unused{number}>"] = number, ids[text]
    split = bpe.pre_tokenizer
    bpe = Tokenizer(models.BPE(vocab=ids, merges=[tuple(pair) for pair in learned["merges"]]))
    bpe.pre_tokenizer, bpe.decoder = split, decoders.ByteLevel()
    bpe.add_special_tokens(reserved)
    before = [special["bos_token"]] if vocabulary.begins else []
    after = [special["eos_token"]] if vocabulary.ends else []
    if around := [*before, *after]:
        bpe.post_processor = processors.TemplateProcessing(
            single=[*before, "$A", *after], special_tokens=[(text, ids[text]) for text in around]
        )
    fast = PreTrainedTokenizerFast(tokenizer_object=bpe, **special)
    fast.fake_image_token_id = ids["<fake_token_around_image>"]
    fast.global_image_token_id = ids["<global-img>"]
    return fast
