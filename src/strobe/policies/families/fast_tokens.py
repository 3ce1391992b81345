"""A stand-in for the FAST action tokenizer (Pertsch et al. 2025): a chunk of actions as tokens, and back.

As in FAST a chunk goes through a discrete cosine transform along time, its coefficients are rounded to whole numbers,
each number is a character, and pairs of characters are joined by byte-pair encoding. The real merges are learnt; these
join numbers near zero, which are the most frequent ones of any actions.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import product
from typing import Any

import numpy as np

_FIRST = 0x100  # the character of the lowest coefficient: from here on all of them are letters


class FastTokens:
    """Encodes normalised actions and decodes tokens, with the attributes that LeRobot reads.

    Args:
        size: tokens in its vocabulary.
        most: the largest coefficient, either way, in steps of ``1 / scale``; larger ones are cut.
        scale: coefficients are multiplied by it before they are rounded.
    """

    def __init__(self, size: int, most: int, scale: float) -> None:
        self.vocab_size, self.scale = size, scale
        self.min_token = -most - _FIRST
        self.bpe_tokenizer = Pairs(size, most)

    def __call__(self, actions: Any) -> list[list[int]]:
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
