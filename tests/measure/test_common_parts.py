"""The parts that several measurements have in common."""

from __future__ import annotations

from collections.abc import Mapping

from strobe.measure.components import common_parts, share, shares
from strobe.measure.statistics import summarise
from strobe.results.data import Samples
from strobe.results.measurement import Component, Measurement


def measured(parts: Mapping[str, tuple[float, float]], total: float = 100.0) -> Measurement:
    """``parts``: path with '/' → (milliseconds, calls)."""
    rows = [
        Component(
            path=path.split("/"), other=path.endswith("other"), calls=calls, values=[ms], summary=summarise([ms]),
            share=ms / total,
        )
        for path, (ms, calls) in parts.items()
    ]  # fmt: skip
    return Measurement(
        name="a", phase="inference", samples=Samples(values=[total], summary=summarise([total])), components=rows
    )


POLICY = {"preprocessing": (2, 1), "policy": (97, 1), "policy/vision": (30, 2), "policy/denoise step": (60, 10),
          "policy/denoise step/expert": (55, 10), "policy/other": (7, 1), "other": (1, 1)}  # fmt: skip


def test_a_policy_is_shown_by_what_is_in_it():
    assert common_parts([measured(POLICY)]) == [{"preprocessing": 2, "vision": 30, "denoise step": 60}]


def test_a_backbones_blocks_are_taken_together():
    model = {"model": (98, 1), "model/encoder": (96, 1), "model/encoder/patch embedding": (6, 1),
             "model/encoder/block 0": (40, 1), "model/encoder/block 1": (50, 1)}  # fmt: skip
    assert common_parts([measured(model)]) == [{"patch embedding": 6, "blocks": 90}]
    assert shares(measured(model))["blocks"] == 0.9


def test_what_cannot_be_seen_into_stays_whole():
    compiled = {"preprocessing": (2, 1), "policy": (40, 1), "other": (1, 1)}
    assert common_parts([measured(POLICY), measured(compiled, 43)])[1] == {"preprocessing": 2, "policy": 40}


def test_a_share_is_that_of_the_name_wherever_it_is():
    nested = POLICY | {"policy/denoise step/vision": (5, 10), "policy/vision/vision": (29, 2)}
    assert share(measured(nested), "vision") == 0.35
    assert share(measured(nested), "nowhere") == 0
