"""The parts that several measurements have in common."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

import pytest

from strobe.core.measure.components import common_parts, components, iterations, share, shares
from strobe.core.measure.statistics import summarise
from strobe.core.results.data import Samples
from strobe.core.results.measurement import Component, Measurement
from strobe.core.timeline import Timeline, section


def make_measurement(parts: Mapping[str, tuple[float, float]], total: float = 100.0) -> Measurement:
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
    assert common_parts([make_measurement(POLICY)]) == [{"preprocessing": 2, "vision": 30, "denoise step": 60}]


def test_a_backbones_blocks_are_taken_together():
    model = {"model": (98, 1), "model/encoder": (96, 1), "model/encoder/patch embedding": (6, 1),
             "model/encoder/block 0": (40, 1), "model/encoder/block 1": (50, 1)}  # fmt: skip
    assert common_parts([make_measurement(model)]) == [{"patch embedding": 6, "blocks": 90}]
    assert shares(make_measurement(model))["blocks"] == 0.9


def test_what_cannot_be_seen_into_stays_whole():
    compiled = {"preprocessing": (2, 1), "policy": (40, 1), "other": (1, 1)}
    assert common_parts([make_measurement(POLICY), make_measurement(compiled, 43)])[1] == {
        "preprocessing": 2,
        "policy": 40,
    }


def test_a_share_is_that_of_the_name_wherever_it_is():
    nested = POLICY | {"policy/denoise step/vision": (5, 10), "policy/vision/vision": (29, 2)}
    assert share(make_measurement(nested), "vision") == 0.35
    assert share(make_measurement(nested), "nowhere") == 0


def test_shares_add_up_where_coroutines_take_turns():
    """While a coroutine waits, what runs is not its own."""

    async def request(name: str) -> None:
        with section(name):
            for _ in range(2):
                with section("packs"):
                    time.sleep(0.001)
                await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(request("first"), request("second"))

    with Timeline() as timeline, section("whole"):
        asyncio.run(both())
    rows = {tuple(row.path): row for row in components(iterations(timeline.sections(), "whole"))}
    assert min(row.share for row in rows.values()) >= 0
    assert sum(row.share for row in rows.values() if row.depth == 1) == pytest.approx(1)
    assert all(rows[path].values[0] >= 2 for path in (("first", "packs"), ("second", "packs")))
