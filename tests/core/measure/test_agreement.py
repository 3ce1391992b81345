"""How far actions differ, and what an agreement says of numbers that are none."""

from __future__ import annotations

import pytest
import torch

from strobe.core.measure.agreement import add_note, agree, agree_features, describe_agreement
from strobe.core.measure.guard import Guards


def test_equal_actions_agree_fully():
    chunks = [torch.randn(1, 5, 2) for _ in range(3)]
    seen = agree(chunks, [chunk.clone() for chunk in chunks])
    assert seen.cosine == pytest.approx(1)
    assert seen.largest_error == seen.mean_error == 0
    assert seen.observations == 3


def test_errors_are_in_the_actions_own_units():
    a = [torch.zeros(1, 2, 2) + 1]
    b = [torch.tensor([[[1.0, 1.0], [1.0, 3.0]]])]
    seen = agree(a, b)
    assert seen.largest_error == 2
    assert seen.mean_error == 0.5
    assert seen.cosine == pytest.approx(6 / (2 * 12**0.5))


def test_chunks_that_do_not_pair_are_refused():
    with pytest.raises(ValueError, match="as many"):
        agree([torch.zeros(1)], [])
    with pytest.raises(ValueError, match="unequal"):
        agree([torch.zeros(2)], [torch.zeros(3)])


def test_features_that_are_0_throughout_are_the_same():
    zeros = [torch.zeros(1, 16, 4)] * 2
    same = agree_features(zeros, zeros)
    assert (same.cosine, same.rms, same.token) == (1, 0, 0)
    assert Guards(kind="features").strictest_guard(["rounding"]).judge(same).outcome == "held"
    assert agree_features(zeros, [torch.ones(1, 16, 4)] * 2).cosine == 0


def test_float32_s_rounding_of_a_channel_that_rests_is_no_fault():
    """Its jitter is a few steps of float32, and no unit."""
    features = torch.randn(1, 64, 3)
    features[..., 1] = 0.5 + 2e-6 * torch.randn(1, 64)
    found = agree_features([features], [features + 1e-7 * torch.randn(1, 64, 3)])
    assert Guards(kind="features").strictest_guard(["rounding"]).judge(found).outcome == "held"
    assert found.rms < 1e-4


def test_notes_are_added_one_after_the_other():
    seen = agree([torch.ones(2)], [torch.ones(2)])
    add_note(seen, "")
    assert seen.note == ""
    add_note(seen, "drawn at random")
    add_note(seen, "guided")
    assert seen.note == "drawn at random; guided"
    assert describe_agreement(seen) == (
        "cosine 1.000000, largest difference 0 in the actions' own units; drawn at random; guided"
    )
