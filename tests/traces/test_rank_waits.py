"""Who waits for whom: by the lengths of the same collectives of all ranks, whatever their clocks say."""

from __future__ import annotations

from typing import Any

import pytest
from support.examples.made_trace import operator, training, work

from strobe.traces.device_time import rank_waits
from strobe.traces.operator_table import operator_profile
from strobe.traces.profiler_events import parse_rows
from strobe.traces.results import RankWaits, short_kernel


def test_the_rank_with_the_shortest_collectives_came_last():
    waits = rank_waits({"0": parse_rows(training(160)), "1": parse_rows(training(60)), "2": parse_rows(training(90))})
    assert isinstance(waits, RankWaits)
    assert waits.collectives == 4
    assert {rank.name: (pytest.approx(rank.waiting_ms), rank.last) for rank in waits.ranks} == {
        "0": (0.4, 0),
        "1": (0.0, 4),
        "2": (0.12, 0),
    }


def test_streams_are_laid_side_by_side_one_by_one():
    def rank(first: float, second: float):
        a = work(1, 0, first, 10, "ncclKernel_A", stream=1)
        return parse_rows([*work(9, 0, 0, 1), *a, *work(2, 0, second, 20, "ncclKernel_B", stream=2)])

    waits = rank_waits({"0": rank(10, 50), "1": rank(10, 15)})
    assert isinstance(waits, RankWaits)
    assert waits.collectives == 2


@pytest.mark.parametrize(
    ("others", "why"),
    [
        ([], "there is one rank"),
        ([training(100, steps=3)], "did not run the same collectives"),
        ([work(1, 0, 5, 10)], "1: no collectives in the trace"),
    ],
)
def test_what_cannot_be_compared_is_not_judged(others, why: str):
    ranks = {str(place): parse_rows(events) for place, events in enumerate([training(), *others])}
    waits = rank_waits(ranks)
    assert isinstance(waits, str)
    assert why in waits


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::(anonymous namespace)::CatArray<float, 2>(float*)", "CatArray<float, 2>(float*)"),
        ("void cutlass::Kernel<cutlass_80_gemm>(cutlass_80_gemm::Params)", "Kernel<cutlass_80_gemm>(Params)"),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)"),
        ("aten::mm", "aten::mm"),
        ("ampere_sgemm_32x32_sliced1x4_tn", "ampere_sgemm_32x32_sliced1x4_tn"),
        ("autograd::engine::evaluate_function: MulBackward0", "autograd::engine::evaluate_function: MulBackward0"),
    ],
)  # fmt: skip
def test_a_kernels_name_loses_its_namespaces(name: str, short: str):
    assert short_kernel(name) == short


def test_a_live_run_and_a_file_share_the_causes_of_gaps():
    mark: dict[str, Any] = {**operator("strobe: one iteration", 0, 400), "cat": "user_annotation"}
    seen = operator_profile([mark, *work(1, 0, 5, 50), *work(2, 200, 210, 50)], "inference")
    assert seen.device is not None
    assert [(cause.kind, cause.gaps) for cause in seen.device.causes] == [("idle", 1), ("end", 1)]
