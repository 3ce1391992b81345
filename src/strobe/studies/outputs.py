"""The outputs of a measurement's variants, round by round, kept to be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


class Outputs:
    """Outputs of every variant in every round, as much of them as fits: features can be millions of numbers."""

    PER_OUTPUT = 2**20  # elements kept of one output: whole rows, drawn anew in each round
    TOGETHER = 2**26  # elements kept of all outputs: 256 MiB

    def __init__(self, names: Sequence[str]) -> None:
        self.rounds = dict.fromkeys(names, 0)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._kept: dict[str, list[Tensor]] = {name: [] for name in names}
        self._pooled: dict[str, list[Tensor]] = {name: [] for name in names}
        self._rows: tuple[int, int] | None = None  # of an output: those compared, and all, where not all are
        self._most: int | None = None

    def add(self, name: str, output: Tensor, pooled: Tensor | None = None) -> None:
        """Keep the output of ``name``, or some of it, and its ``pooled`` form where it has one."""
        number = self.rounds[name]
        self.rounds[name] += 1
        self.shapes[name] = tuple(output.shape)
        if self._most is None:
            elements = min(output.numel(), self.PER_OUTPUT)
            self._most = max(1, self.TOGETHER // max(1, elements * len(self._kept)))
        if len(self._kept[name]) < self._most:
            self._kept[name].append(self._sample(output.detach(), number).float().cpu())
            if pooled is not None:
                self._pooled[name].append(pooled.detach().float().cpu())

    def first(self, name: str) -> list[Tensor]:
        """Outputs of ``name`` in rounds 0, 1, 2 …, warm-up included, as far as they were kept."""
        return list(self._kept[name])

    def aligned(self, warmup: int) -> dict[str, list[Tensor]]:
        """The outputs of complete rounds after ``warmup``, or of those too where nothing else was kept."""
        return _aligned(self._kept, warmup)

    def pooled(self, warmup: int) -> dict[str, list[Tensor]]:
        """The pooled outputs of the same rounds; none where the subject has none."""
        return _aligned(self._pooled, warmup)

    @property
    def whole(self) -> bool:
        """Whether all outputs were kept whole, in the shape that they had."""
        return self._rows is None

    @property
    def note(self) -> str:
        """In words how much of each output was left out; empty where it was kept whole."""
        if self._rows is None:
            return ""
        drawn, of = self._rows
        return f"compared on {drawn:,} of {of:,} rows of each output, others in each round"

    def _sample(self, output: Tensor, number: int) -> Tensor:
        """Some rows of the output of round ``number``, the same of all variants: whole, to compare them by channel."""
        if output.numel() <= self.PER_OUTPUT:
            return output
        rows = output.reshape(-1, output.shape[-1])
        count = max(1, self.PER_OUTPUT // rows.shape[-1])
        # Others in each round, so that no row is never seen.
        drawn = torch.randperm(len(rows), generator=torch.Generator().manual_seed(number))[:count].sort().values
        self._rows = (count, len(rows))
        return rows[drawn.to(output.device), : self.PER_OUTPUT]


def _aligned(kept: Mapping[str, list[Tensor]], warmup: int) -> dict[str, list[Tensor]]:
    rounds = min(map(len, kept.values()), default=0)
    start = warmup if warmup < rounds else 0
    return {name: values[start:rounds] for name, values in kept.items()}
