"""Outputs that are kept."""

from __future__ import annotations

import numpy as np
import torch

from strobe.core.studies.shared.rounds import Outputs


def test_small_outputs_are_kept_whole_and_without_the_warm_up():
    outputs = Outputs(["a", "b"])
    for index in range(4):
        for name in ("a", "b"):
            outputs.add(name, torch.full((1, 3), float(index)))
    assert [int(chunk[0, 0]) for chunk in outputs.aligned_values(1)["b"]] == [1, 2, 3]
    assert outputs.note is None


def test_large_outputs_are_drawn_from_alike_and_it_is_said(monkeypatch):
    monkeypatch.setattr(Outputs, "PER_OUTPUT", 50)
    monkeypatch.setattr(Outputs, "TOGETHER", 50 * 2 * 3)
    outputs, features = Outputs(["a", "b"]), torch.randn(1, 100, 10)
    for _ in range(5):
        outputs.add("a", features)
        outputs.add("b", features.double())
    kept = outputs.aligned_values(1)
    assert outputs.rounds == {"a": 5, "b": 5}
    assert [tuple(t.shape) for t in kept["a"]] == [(5, 10)] * 2  # of 300 numbers in all, three rounds of both
    assert np.array_equal(kept["a"][0], kept["b"][0]), "the same rows of both in a round"
    assert not np.array_equal(kept["a"][0], kept["a"][1]), "others in the next"
    assert "5 of 100 rows" in (outputs.note or "")
    assert len(outputs.aligned_values(10)["a"]) == 3  # rather the warm-up's than none


def test_a_round_that_was_not_finished_is_left_out():
    outputs = Outputs(["a", "b"])
    for name in ("a", "b", "a"):
        outputs.add(name, torch.zeros(2))
    assert {name: len(kept) for name, kept in outputs.aligned_values(0).items()} == {"a": 1, "b": 1}
