"""A rate is samples over time, its interval holds the truth about as often as it says, and bursts do not fool it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.checks.approval import approve_cases
from support.checks.renderings import whole
from support.examples.loader import starving_loader

from strobe.dataloader.throughput import block_rate, merge_rates

times = st.lists(st.floats(1e-4, 1e3), min_size=1, max_size=200)


@given(st.integers(1, 1000), times)
def test_the_rate_is_all_samples_over_all_time_and_lies_in_its_interval(samples: int, blocks: list[float]) -> None:
    rate = block_rate(samples, blocks)
    assert rate.samples_per_s == pytest.approx(samples * len(blocks) / sum(blocks))
    assert rate.low <= rate.samples_per_s <= rate.high
    assert (rate.interval is None) == (len(blocks) < 3)
    assert rate.blocks_s == blocks


@given(times, times)
def test_two_looks_are_one_longer_look(first: list[float], second: list[float]) -> None:
    assert merge_rates(block_rate(8, first), block_rate(8, second)) == block_rate(8, [*first, *second])
    assert merge_rates(None, block_rate(8, second)) == block_rate(8, second)


def test_the_interval_covers_the_truth_even_where_neighbours_hang_together() -> None:
    random = np.random.default_rng(0)
    covered = 0
    for _ in range(300):
        noise = random.normal(0, 0.05, 241)
        blocks = 1 + noise[1:] - 0.6 * noise[:-1]  # a late block shortens the next
        rate = block_rate(10, blocks.tolist())
        covered += rate.low <= 10 <= rate.high
    assert covered / 300 >= 0.9


def test_what_is_no_time_is_refused() -> None:
    for blocks in ([], [0.0], [-1.0], [float("nan")]):
        with pytest.raises(ValueError, match="blocks"):
            block_rate(8, blocks)
    with pytest.raises(ValueError, match="not alike"):
        merge_rates(block_rate(8, [1.0]), block_rate(16, [1.0]))


def test_it_is_shown_as_it_was_approved() -> None:
    refused = starving_loader()
    refused.rows[-1].status, refused.rows[-1].reason, refused.rows[-1].rate = (
        "refused",
        "too little shared memory",
        None,
    )
    approve_cases(
        "dataloader", {"starved": whole(starving_loader(), ""), "a row that was refused": whole(refused, "loaders")}
    )
