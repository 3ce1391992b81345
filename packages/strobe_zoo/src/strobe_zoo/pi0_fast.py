"""pi0-FAST (Pertsch et al. 2025, LeRobot's ``policies/pi0_fast``): PaliGemma that writes actions as tokens.

The prefix pass ends with the first token. Each further token is a pass of its own, until "|" or ``max_decoding_steps``
tokens. Random weights hardly ever write "|", so they show the longest chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, partial
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from strobe.core.families.capabilities import Calls, Construction, HubNeed, InputFacts, LiveFields, Parts
from strobe.core.families.family import Family, Tiny, always, transformer
from strobe.core.timeline.probe import Probe
from strobe.lerobot.families import flow_parts, pi
from strobe.lerobot.families.pi import JOINT, LANGUAGE, PALIGEMMA, VISION
from strobe.lerobot.policies.standins import TOKENIZERS, tokenizer

if TYPE_CHECKING:
    from lerobot.policies.pretrained import PreTrainedPolicy

_FIRST = 0x100  # the character of the lowest coefficient: from here on all of them are letters


class FastTokens:
    """A placeholder for the FAST action tokenizer (Pertsch et al. 2025), with the attributes that LeRobot reads.

    As in FAST a chunk goes through a discrete cosine transform along time, its coefficients are rounded to whole
    numbers, each number is a character, and pairs of characters are joined by byte-pair encoding. The real merges are
    learnt; these join numbers near zero, which are the most frequent ones of any actions.

    Args:
        size: tokens in its vocabulary.
        most: the largest coefficient, either way, in steps of ``1 / scale``; larger ones are cut.
        scale: coefficients are multiplied by it before they are rounded.
    """

    def __init__(self, size: int, most: int, scale: float) -> None:
        self.vocab_size, self.scale = size, scale
        self.min_token = -most - _FIRST
        self.bpe_tokenizer = Pairs(size, most)

    def __call__(self, actions: object) -> list[list[int]]:
        """Return the tokens of ``actions``, (B, chunk, action dim), each sample's in a list."""
        from scipy.fftpack import dct

        coefficients = np.around(dct(np.asarray(actions), axis=1, norm="ortho") * self.scale).astype(int)
        return [self.bpe_tokenizer.encode(sample.ravel() - self.min_token) for sample in coefficients]


class Pairs:
    """Characters, each a coefficient, and the pairs of those near zero: ``size`` tokens together."""

    def __init__(self, size: int, most: int) -> None:
        from tokenizers import Tokenizer, decoders, models

        self.size, self._most = size, most
        near_zero = sorted(range(-most, most + 1), key=abs)
        side = int((size - len(near_zero)) ** 0.5) + 1
        pairs = sorted(product(near_zero[:side], repeat=2), key=lambda pair: max(map(abs, pair)))
        letters = [self._letter(value) for value in near_zero]
        merges = [(self._letter(a), self._letter(b)) for a, b in pairs[: size - len(letters)]]
        texts = [*letters, *(a + b for a, b in merges)]
        self._tokens = Tokenizer(models.BPE(vocab={text: i for i, text in enumerate(texts)}, merges=merges))
        self._tokens.decoder = decoders.Fuse()

    def _letter(self, value: int) -> str:
        return chr(value + self._most + _FIRST)

    def encode(self, codes: Iterable[int]) -> list[int]:
        """Return the tokens of characters with these codes; a code out of range counts as the nearest."""
        text = "".join(chr(min(max(int(code), _FIRST), _FIRST + 2 * self._most)) for code in codes)
        return self._tokens.encode(text).ids

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the characters of ``tokens``.

        Random weights write any token of the language model's, hardly ever one that stands for actions. Each is taken
        modulo the size of this vocabulary, so that other tokens are other actions.
        """
        return self._tokens.decode([int(token) % self.size for token in tokens])


@cache
def fast_tokens(tiny: bool) -> FastTokens:
    """Return a tokenizer as large as the published one (2048 tokens), or one that fits into a tiny vocabulary."""
    return FastTokens(320, 40, 4.0) if tiny else FastTokens(2048, 120, 10.0)


HEAD = f"{JOINT}.paligemma.lm_head"
FAST = "lerobot/fast-action-tokenizer"

TOKEN, TOKEN_HEAD = "token", "token head"


def _first(*_: object, use_cache: bool = False, past_key_values: object = None, **__: object) -> bool:
    return bool(use_cache) and past_key_values is None


def probes(_: PreTrainedPolicy) -> Sequence[Probe]:
    """The vision tower runs once a camera, the head once a token: it is as wide as the whole vocabulary."""
    layers = f"{VISION}.vision_model.encoder.layers"
    return [
        Probe.method("", "_preprocess_images", "image resize"),
        Probe.method(JOINT, "embed_image", flow_parts.VISION),
        *transformer(layers, "block"),
        Probe.module(f"{JOINT}.paligemma.model.multi_modal_projector", "projector", level=2),
        Probe.method(JOINT, "embed_language_tokens", "language embedding"),
        *transformer(f"{LANGUAGE}.layers", "layer"),
        Probe.module(HEAD, TOKEN_HEAD),
    ]


inference = always(
    # One section for the prefix and one for each token; without a cache every token runs the whole sequence.
    Probe.method(JOINT, "forward", flow_parts.PREFIX, when=_first, optional=True),
    Probe.method(JOINT, "forward", TOKEN, when=lambda *given, **named: not _first(*given, **named)),
    Probe.method("", "detokenize_actions", "detokenise"),
)


training = always(
    # Prompt and action tokens go through the language model together.
    Probe.method(JOINT, "forward", "language model"),
)


_MODELING = "lerobot.policies.pi0_fast.modeling_pi0_fast"

FAMILY = Family(
    "pi0_fast",
    ("pi0_fast",),
    probes,
    training=training,
    inference=inference,
    compiled=((JOINT, "embed_image"), ("model", "forward")),
    costly=(LANGUAGE, HEAD, VISION),
    tiny=Tiny({"image_resolution": (28, 28)}),
    capabilities=(
        Parts(
            seeing={flow_parts.VISION: VISION},
            working={
                "vision_tower": (flow_parts.VISION,),
                "multi_modal_projector": (flow_parts.VISION,),
                "language_model": (TOKEN, flow_parts.PREFIX),
                "lm_head": (TOKEN_HEAD,),
            },
        ),
        LiveFields(live=("max_decoding_steps", "temperature", "use_kv_cache")),
        Construction(
            flags=("--validate_action_token_prefix=false",),  # random weights do not begin with "Action:"
            building=pi.backbones,
            hub=(
                HubNeed(PALIGEMMA, "tokenizer", *TOKENIZERS, partial(tokenizer, pi.VOCABULARY)),
                HubNeed(PALIGEMMA, "tokenizer", _MODELING, "AutoTokenizer", partial(tokenizer, pi.VOCABULARY)),
                HubNeed(FAST, "processor", _MODELING, "AutoProcessor", fast_tokens),
                HubNeed(FAST, "processor", TOKENIZERS[0], "AutoProcessor", fast_tokens),
            ),
        ),
        InputFacts(fills_cameras=True, image_size="image_resolution"),
        Calls(seldom_looks=True),
    ),
)
