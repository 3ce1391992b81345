"""Comparing a backbone's features: channel by channel and token by token, each channel in its own spread.

One cosine over all features sees neither a factor nor what happens beside a channel of large numbers, which many
vision transformers have ("Massive Activations in Large Language Models", Sun et al., COLM 2024, section 5).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from strobe.measure.agreement import agree
from strobe.results.agreement import Agreement, DimensionAgreement

SHOWN = 8  # channels that are listed, by their RMS
# A channel's own standard deviation, as a share of its magnitude, below which no float32 could carry what it says.
STILL = 1e-6
SPREAD = "each channel's own standard deviation over the untouched tokens"
FEWEST = 8  # tokens whose standard deviation says something


def agree_features(baseline: Sequence[Tensor], candidate: Sequence[Tensor]) -> Agreement:
    """Compare features of equal shape, pair by pair: (…, tokens, channels).

    Errors of a channel are in units of its spread σ: its standard deviation over all untouched tokens. A channel that
    does not move is judged by its own magnitude, and one that is 0 throughout by the others' least magnitude. Fewer
    than `FEWEST` tokens have no spread, and no figures in σ.

    Raises:
        ValueError: no pairs, or pairs of unequal shape.
    """
    found = agree(baseline, candidate)
    found.of = "features"
    found.distinct = len(baseline)
    width = baseline[0].shape[-1] if baseline[0].dim() else 1
    before, after = (torch.cat([one.double().reshape(-1, width) for one in rows]) for rows in (baseline, candidate))
    if len(before) < FEWEST or found.not_finite:
        return found
    spread = _spread(before)
    errors = (after - before) / spread
    sizes = errors.abs()
    channels = errors.square().mean(0).sqrt()
    tokens = errors.square().mean(1).sqrt()
    found.rms, found.worst, found.token = float(channels.max()), float(sizes.max()), float(tokens.max())
    found.p99 = float(np.quantile(sizes.numpy(), 0.99))
    found.spread = SPREAD
    found.worst_dimension = f"channel {int(sizes.max(0).values.argmax())}"
    found.worst_at = f"token {int(tokens.argmax()) + 1:,} of {len(tokens):,}"
    found.dimensions = [
        DimensionAgreement(
            name=f"channel {at}",
            spread=float(spread[at]),
            rms=float(channels[at]),
            p99=float(sizes[:, at].quantile(0.99)),
            worst=float(sizes[:, at].max()),
            offset=float(errors[:, at].mean()),
        )
        for at in channels.topk(min(SHOWN, width)).indices.tolist()
    ]
    return found


def _spread(features: Tensor) -> Tensor:
    deviation, magnitude = features.std(0), features.square().mean(0).sqrt()
    spread = torch.where(deviation > STILL * magnitude, deviation, magnitude)
    moving = spread[spread > 0]
    return torch.where(spread > 0, spread, moving.min() if len(moving) else torch.ones((), dtype=spread.dtype))
