"""A cell's end in words: what ran out of memory is told apart from what crashed."""

from __future__ import annotations

import pytest

from strobe.sweep import cell_command as cell


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB", "out of memory"),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "out of memory"),
        ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", "out of memory"),
        ("cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`", "out of memory"),
        ("could not create a primitive: not enough memory", "out of memory"),
        ("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`", "crashed"),
        ("CUDA error: an illegal memory access was encountered", "crashed"),
    ],
)
def test_a_library_that_gets_no_memory_is_no_crash(monkeypatch, tmp_path, message, status):
    def fails(*_):
        raise RuntimeError(message)

    monkeypatch.setattr(cell, "keep", fails)
    assert cell.attempt(tmp_path, "breakdown", [])[0] == status
