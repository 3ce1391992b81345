"""The page of any reading of traces is written, and names of kernels are shown without what they all have."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given, settings
from rich.console import Console
from support.any_result import traces
from support.examples import scaled
from support.health import EVERY_CHECK
from support.made_trace import operator, work

from strobe.kinds import advise, document, figures
from strobe.measure.operators import operator_profile
from strobe.report import console, markdown
from strobe.results.any_answer import any_answer
from strobe.results.profiles import short_kernel
from strobe.results.trace import TraceAnswer


@settings(max_examples=scaled(40), deadline=None, suppress_health_check=EVERY_CHECK)
@given(answer=traces)
def test_any_answer_is_shown_judged_and_read_again(answer: TraceAnswer):
    outlined = document(answer)
    assert outlined.answers
    console.render(outlined, Console(file=io.StringIO(), width=200))
    assert markdown.render(outlined)
    figures(answer)
    assert not [finding for finding in advise(answer) if finding.rule == "rule-failed"]
    assert any_answer.validate_json(answer.model_dump_json()) == answer


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
