"""Kernel time and page faults of this process."""

from __future__ import annotations

import mmap

import pytest

from strobe.core.measure.memory import KernelUse, kernel_use, median_use


def test_touching_fresh_memory_faults_a_page_at_a_time():
    pytest.importorskip("resource")
    before = kernel_use()
    with mmap.mmap(-1, 4096 * 2000) as fresh:
        for page in range(2000):
            fresh[page * 4096] = 1
    used = kernel_use() - before
    assert 1000 <= used.faults < 100_000  # huge pages make them fewer, the interpreter's own make them more
    assert used.ms >= 0


def test_the_median_is_per_iteration_and_silent_where_nothing_is_known():
    assert median_use([KernelUse(1.0, 10), KernelUse(9.0, 30), KernelUse(2.0, 20)]) == KernelUse(2.0, 20)
    assert median_use([]) is None
    assert median_use([KernelUse(0.0, 0)]) is None
