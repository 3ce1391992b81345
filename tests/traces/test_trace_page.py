"""The page of any reading of traces is written, and names of kernels are shown without what they all have."""

from __future__ import annotations

from typing import Any

import pytest
from support.examples.made_trace import operator, work

from strobe.traces.operator_table import operator_profile
from strobe.traces.results import short_kernel


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
