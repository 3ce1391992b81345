"""ACT's transformer (Zhao et al. 2023: post-norm, positions added to queries and keys) over sequences with blocks.

A sequence is ``[shared tokens | block 0 | … | block N-1]``. The shared tokens see each other; a block's tokens see the
shared tokens and their own block. This is how one sequence holds the action prefixes of several delays around one
observation (VLASH's idea). Keys and values of the shared tokens exist once, whatever N is.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention


@dataclass(frozen=True)
class Blocks:
    """How a sequence is divided: ``shared`` tokens, then ``count`` blocks of ``size`` tokens each."""

    shared: int
    count: int
    size: int

    def mask(self, rows: int, device: torch.device) -> Tensor | None:
        """Return which keys ``count`` blocks of ``rows`` queries each may see.

        Boolean, (count·rows, shared + count·size), True where a query may see the key. None where there is one block:
        it may see everything.
        """
        if self.count == 1:
            return None
        own = torch.eye(self.count, dtype=torch.bool, device=device)
        own = own.repeat_interleave(rows, 0).repeat_interleave(self.size, 1)
        return torch.cat([own.new_ones(self.count * rows, self.shared), own], dim=1)


class Attention(nn.Module):
    """Multi-head attention of (B, L, C) to (B, S, C)."""

    def __init__(self, dim: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.dropout = dropout
        self.query, self.key, self.value, self.out = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, shared: int = 0) -> Tensor:
        """``mask`` is True where a query may see a key, (…, L, S).

        The first ``shared`` queries see exactly the first ``shared`` keys. The other queries see all keys that the
        mask, if any, allows. These two calls cost less than one over the whole sequence under a mask.
        """
        q, k, v = (self._heads(layer(x)) for layer, x in ((self.query, query), (self.key, key), (self.value, value)))
        if shared:
            first = self._attend(q[:, :, :shared], k[:, :, :shared], v[:, :, :shared], None)
            attended = torch.cat([first, self._attend(q[:, :, shared:], k, v, mask)], dim=2)
        else:
            attended = self._attend(q, k, v, mask)
        return self.out(attended.transpose(1, 2).flatten(2))

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=self.dropout if self.training else 0.0)


class FeedForward(nn.Sequential):
    """Two linear layers on each token."""

    def __init__(self, dim: int, hidden: int, dropout: float) -> None:
        super().__init__(nn.Linear(dim, hidden), nn.ReLU(inplace=True), nn.Dropout(dropout), nn.Linear(hidden, dim))


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward."""

    def __init__(self, dim: int, n_heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(dim, n_heads, dropout)
        self.feed_forward = FeedForward(dim, hidden, dropout)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(2))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, position: Tensor, mask: Tensor | None, shared: int) -> Tensor:
        placed = x + position
        x = self.norms[0](x + self.dropout(self.attention(placed, placed, x, mask, shared)))
        return self.norms[1](x + self.dropout(self.feed_forward(x)))


class Encoder(nn.Module):
    """``n_layers`` encoder layers."""

    def __init__(self, n_layers: int, dim: int, n_heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(dim, n_heads, hidden, dropout) for _ in range(n_layers))

    def forward(
        self, x: Tensor, position: Tensor, blocks: Blocks | None = None, visible: Tensor | None = None
    ) -> Tensor:
        """(B, L, C) with positions (1, L, C) → (B, L, C).

        With ``blocks`` as the module says; else every token sees every token that is ``visible``, (B, L).
        """
        if blocks is not None:
            mask, shared = blocks.mask(blocks.size, x.device), blocks.shared
        else:
            mask, shared = None if visible is None else visible[:, None, None], 0
        for layer in self.layers:
            x = layer(x, position, mask, shared)
        return x


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention and feed-forward."""

    def __init__(self, dim: int, n_heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.self_attention = Attention(dim, n_heads, dropout)
        self.cross_attention = Attention(dim, n_heads, dropout)
        self.feed_forward = FeedForward(dim, hidden, dropout)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(3))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, position: Tensor, keys: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
        """Takes x (B, N, T, C), position (T, C), keys and memory (B, S, C), mask (N·T, S) → (B, N, T, C)."""
        batch, count = x.shape[:2]
        flat = x.flatten(0, 1)  # each block's queries see only each other
        placed = flat + position
        x = self.norms[0](flat + self.dropout(self.self_attention(placed, placed, flat))).unflatten(0, (batch, count))
        query = (x + position).flatten(1, 2)
        x = x.flatten(1, 2)
        x = self.norms[1](x + self.dropout(self.cross_attention(query, keys, memory, mask)))
        return self.norms[2](x + self.dropout(self.feed_forward(x))).unflatten(1, (count, -1))


class Decoder(nn.Module):
    """``n_layers`` decoder layers and a norm; the queries start as zeros with learned positions."""

    def __init__(self, n_layers: int, dim: int, n_heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(dim, n_heads, hidden, dropout) for _ in range(n_layers))
        self.norm = nn.LayerNorm(dim)

    def forward(self, position: Tensor, memory: Tensor, memory_position: Tensor, blocks: Blocks | None) -> Tensor:
        """Query positions (T, C), memory (B, S, C) with positions (1, S, C) → (B, N, T, C), N being 1 without blocks.

        With blocks, N sets of queries: set n sees the memory's shared tokens and its block n.
        """
        count = 1 if blocks is None else blocks.count
        x = memory.new_zeros(len(memory), count, *position.shape)
        mask = None if blocks is None else blocks.mask(len(position), memory.device)
        keys = memory + memory_position
        for layer in self.layers:
            x = layer(x, position, keys, memory, mask)
        return self.norm(x)
