"""How far outputs of unknown meaning are apart: column by column, in the column's own spread."""

from __future__ import annotations

import pytest
import torch

from strobe.core.measure.agreement import agree_outputs
from strobe.core.measure.guard import NO_SPREAD, Guard, Guards
from strobe.core.results.agreement import Yardstick

CHUNK = ("actions", (16, 2))
RANDOM = torch.Generator().manual_seed(0)


def chunks(count: int = 3) -> list[torch.Tensor]:
    """Chunks whose columns have a spread of 1 and 100."""
    return [torch.randn(16, 2, generator=RANDOM) * torch.tensor([1.0, 100.0]) for _ in range(count)]


def test_an_error_is_in_the_spread_of_its_own_column():
    before = chunks()
    after = [chunk + torch.tensor([0.01, 0.0]) for chunk in before]
    found = agree_outputs(before, after, [CHUNK])
    assert found.of == "outputs"
    assert found.rms == pytest.approx(0.01, rel=0.3)
    assert found.worst_dimension == "actions 0"
    assert found.dimensions[0].offset == pytest.approx(found.rms)
    assert Guards(kind="outputs").strictest_guard(["rounding"]).judge(found).outcome == "held"
    far = agree_outputs(before, [chunk + torch.tensor([0.05, 0.0]) for chunk in before], [CHUNK])
    assert Guards(kind="outputs").strictest_guard(["rounding"]).judge(far).broken_limit.startswith("RMS 0.0")


def test_a_single_number_that_jumps_is_found():
    before = chunks()
    after = [chunk.clone() for chunk in before]
    after[1][4, 1] += 60.0
    found = agree_outputs(before, after, [CHUNK])
    assert (found.worst_dimension, found.worst_at) == ("actions 1", "call 2, row 5 of 16")
    assert Guards(kind="outputs").strictest_guard(["lossy"]).judge(found).outcome == "broken"


def test_several_arrays_have_columns_of_their_own_and_one_that_stays_needs_no_spread():
    shapes = [CHUNK, ("state", (3,))]
    actions = chunks()
    before = [torch.cat([chunk.flatten(), torch.tensor([5.0, 6.0, 7.0])]) for chunk in actions]
    after = [torch.cat([(chunk * 1.001).flatten(), torch.tensor([5.0, 6.0, 7.0])]) for chunk in actions]
    found = agree_outputs(before, after, shapes)
    assert found.rms is not None
    assert 0 < found.rms < 0.01
    assert {dimension.name for dimension in found.dimensions} == {"actions 0", "actions 1"}
    moved = [each.clone() for each in after]
    for each in moved:
        each[-1] += 1e-6
    unknown = agree_outputs(before, moved, shapes)
    assert unknown.rms is None
    assert unknown.note == "no spread (σ) is known: state has 1 different row, and 8 show one; give more inputs"
    assert Guards(kind="outputs").strictest_guard(["rounding"]).judge(unknown).missing_figures == NO_SPREAD
    assert Guard.parse("largest_error<=0.9").judge(unknown).outcome == "held"


def test_the_same_row_in_each_call_is_no_spread():
    before = [torch.tensor([1.0, 2.0])] * 20
    found = agree_outputs(before, [each + 1e-3 for each in before], [("", (2,))])
    assert found.rms is None
    assert "an output has 1 different row" in found.note


def test_equal_outputs_are_exact_without_a_spread():
    before = [torch.tensor([1.0, 2.0])]
    found = agree_outputs(before, before, [("", (2,))])
    assert (found.rms, found.worst) == (0.0, 0.0)
    reordered = Yardstick(name="reordered sums", rms=0.0, worst=0.0, observations=1)
    assert Guards(kind="outputs").strictest_guard(["exact"]).judge(found, reordered).outcome == "held"


def test_a_column_that_stays_still_is_judged_by_its_size():
    before = [torch.stack([torch.randn(16, generator=RANDOM), torch.full((16,), 4.0)], 1) for _ in range(2)]
    after = [chunk + torch.tensor([0.0, 0.4]) for chunk in before]
    assert agree_outputs(before, after, [CHUNK]).rms == pytest.approx(0.1)
    some_rows = agree_outputs([torch.ones(4, 2)], [torch.zeros(4, 2)], [CHUNK])
    assert some_rows.rms is None, "rows were left out of large outputs"
