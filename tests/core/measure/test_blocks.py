"""Blocks are said to differ where the samples show it, and not where they do not."""

from __future__ import annotations

import numpy as np
import pytest

from strobe.core.measure.components import blocks
from strobe.core.measure.statistics import summarise
from strobe.core.results.measurement import Component


def parts(values: np.ndarray, parent: tuple[str, ...] = ("model", "encoder")) -> list[Component]:
    """(blocks, iterations) of milliseconds as components, of a whole of 100 ms."""
    return [
        Component(path=[*parent, f"block {index}"], calls=1, values=list(row), summary=summarise(row),
                  share=float(row.mean()) / 100)
        for index, row in enumerate(values)
    ]  # fmt: skip


def noise(blocks: int, iterations: int, seed: int, relative: float = 0.05) -> np.ndarray:
    """Alike blocks under a load that moves all blocks of an iteration together."""
    random = np.random.default_rng(seed)
    load = 1 + np.abs(random.normal(0, 0.2, iterations))
    return 5 * load * (1 + random.normal(0, relative, (blocks, iterations)))


@pytest.mark.long
def test_alike_blocks_are_rarely_said_to_differ():
    said = sum(blocks(parts(noise(24, 30, seed)))[0].differ for seed in range(100))
    assert said <= 2


def test_a_slowed_block_is_found_under_load():
    for seed in range(20):
        values = noise(24, 30, seed)
        values[7] *= 1.3
        (found,) = blocks(parts(values))
        assert found.differ
        assert found.names[int(np.argmax(found.medians))] == "block 7"


def test_a_sure_but_trifling_difference_is_not_one():
    values = noise(12, 200, 0, relative=0.01)
    values[3] *= 1.01
    (found,) = blocks(parts(values))
    assert found.p < 0.01
    assert not found.differ


def test_the_figures():
    values = np.array([[1.0] * 10, [2.0] * 10, [3.0] * 10])
    (found,) = blocks(parts(values))
    assert found.path == ["model", "encoder"]
    assert found.total.median == pytest.approx(6)
    assert found.average == pytest.approx(2)
    assert found.spread == pytest.approx(1)
    assert found.share == pytest.approx(0.06)


def test_too_few_iterations_show_nothing_and_each_part_has_its_own_blocks():
    few = blocks(parts(np.array([[1.0] * 3, [9.0] * 3, [1.0] * 3])))
    assert few[0].p is None
    assert not few[0].differ
    both = parts(noise(3, 10, 0)) + parts(noise(2, 10, 0), ("model", "predictor"))
    assert [one.path[-1] for one in blocks(both)] == ["encoder", "predictor"]
    assert blocks(parts(noise(1, 10, 0))) == []
    assert blocks(parts(np.ones((4, 10))))[0].p is None
