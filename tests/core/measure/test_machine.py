"""The machine's description, its ceiling and its memory."""

import json
import mmap
import subprocess
import time
from pathlib import Path

import psutil
import pytest
import torch

from strobe.core.measure import ceiling, host, machine, memory
from strobe.core.measure.memory import KernelUse, kernel_use, median_use

CPU = torch.device("cpu")


def raise_os_error(*_args, **_kwargs):
    raise OSError("not here")


def test_the_machine_is_described_without_names_or_paths():
    found = machine.describe(CPU)
    assert found.device == "cpu"
    assert found.cores >= 1
    assert found.threads == torch.get_num_threads()
    assert found.memory_bytes > 0
    assert {"python", "torch", "numpy", "lerobot"} <= set(found.versions)
    assert "/home" not in found.model_dump_json()
    json.loads(found.model_dump_json())


def test_a_machine_that_tells_nothing_is_still_described(monkeypatch):
    monkeypatch.setattr(host, "Path", raise_os_error)
    monkeypatch.setattr(psutil, "cpu_freq", raise_os_error)
    monkeypatch.setattr(psutil, "sensors_battery", raise_os_error, raising=False)
    monkeypatch.setattr("os.getloadavg", raise_os_error)
    monkeypatch.setattr(subprocess, "run", raise_os_error)
    assert machine.describe(CPU).power == {}


def test_the_ceiling_has_a_figure_for_each_dtype(monkeypatch):
    monkeypatch.setattr(ceiling, "_SECONDS", 0.01)
    found = ceiling.measure(CPU, ["float32"])
    assert set(found.gflops) == {"float32"}
    assert found.gflops["float32"] > 0
    assert found.memory_gbps is not None
    assert found.memory_gbps > 0


@pytest.mark.parametrize("kernel", [True, False])
def test_the_process_peak_holds_what_was_freed(monkeypatch, tmp_path, kernel):
    if not kernel:
        monkeypatch.setattr(memory, "_CLEAR", tmp_path / "missing" / "clear_refs")
    before = psutil.Process().memory_info().rss
    # Fresh memory, for an allocator may have some of its own left.
    with memory.peak_process() as peak, mmap.mmap(-1, 64 * 2**20) as held:
        held.write(bytes(64 * 2**20))
        time.sleep(0.1)
    assert peak.bytes >= before + 32 * 2**20


def test_a_block_inside_another_takes_nothing_from_its_peak() -> None:
    size = 64 * 2**20
    before = psutil.Process().memory_info().rss
    with memory.peak_process() as outer:
        torch.ones(size)  # 256 MiB, given back before the inner block begins
        with memory.peak_process() as inner:
            torch.ones(size // 8)
    assert inner.bytes < before + 2 * size < outer.bytes


def test_memory_is_left():
    assert 0 < memory.available_bytes() <= psutil.virtual_memory().total


def test_memory_that_a_container_may_still_take(tmp_path: Path) -> None:
    gib = 2**30
    assert memory.available_bytes(tmp_path) > 0  # no control group: the machine's
    (tmp_path / "memory.current").write_text(f"{3 * gib}\n")
    (tmp_path / "memory.stat").write_text(f"anon {2 * gib}\ninactive_file {gib // 2}\n")
    (tmp_path / "memory.max").write_text(f"{3 * gib + gib // 4}\n")
    assert memory.available_bytes(tmp_path) == gib // 4 + gib // 2
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available_bytes(tmp_path) > gib // 4 + gib // 2


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
