"""Devices: what there is to compute on, whether it computes right, and what room is left."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil
import torch

from strobe.core.devices.accelerators import find_device_memory
from strobe.core.measure.machine import describe
from strobe.core.measure.memory import available_bytes
from strobe.doctor.results import SelfCheck

ACCELERATORS = ("cuda", "xpu", "mps")
FEW_BYTES = 4 << 30  # memory or disk below which full-size policies, or hours of runs, have no room
SIDE = 512  # side of the matrices that devices are tried with


def best() -> torch.device:
    """Return the accelerator that is there, else the CPU."""
    for kind in ACCELERATORS:
        if _available(kind):
            return torch.device(kind)
    return torch.device("cpu")


def examine(device: torch.device, folder: Path) -> Iterator[SelfCheck]:
    """Look at ``device``, at the machine's memory, and at the disk that holds ``folder``."""
    if device.type == "cpu":
        yield _missing_accelerator_check()
    else:
        yield _computes(device)
    yield _memory()
    yield _disk(folder)


def _available(kind: str) -> bool:
    try:
        return bool(torch.get_device_module(kind).is_available())
    except (RuntimeError, AttributeError):
        return False


def _missing_accelerator_check() -> SelfCheck:
    means = "Treatments for GPUs are emulated on the CPU, which shows wrong actions and no times."
    hidden = [kind for kind in ACCELERATORS if _available(kind)]
    if hidden:
        seen = f"you chose the CPU; there is also {', '.join(hidden)}"
        return SelfCheck(area="machine", name="accelerator", outcome="not here", seen=seen, means=means)
    if shutil.which("nvidia-smi") is not None and torch.version.cuda is not None:
        return SelfCheck(
            area="machine",
            name="accelerator",
            outcome="fails",
            seen=f"nvidia-smi is there, and torch (built for CUDA {torch.version.cuda}) finds no GPU",
            means="Everything runs on the CPU.",
            do="nvidia-smi shows the driver's CUDA version: take a torch built for that one or an older one",
        )
    return SelfCheck(area="machine", name="accelerator", outcome="not here", seen="no accelerator found", means=means)


def _computes(device: torch.device) -> SelfCheck:
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.randn(SIDE, SIDE, generator=generator) for _ in range(2))
    expected = first.double() @ second.double()
    product = (first.to(device) @ second.to(device)).cpu().double()
    error = float((product - expected).abs().max() / expected.abs().max())
    return SelfCheck.judge(
        "machine",
        f"{device.type} computes",
        error < 1e-2,  # TF32 rounds to 1e-3
        f"{_name(device)}; a product of matrices is off by {error:.1e} of its largest number",
        "Results of this device are wrong.",
        "Update its driver, or use --device=cpu.",
        bad="fails",
    )


def _name(device: torch.device) -> str:
    machine, memory = describe(device), find_device_memory(device)
    free = memory.free() if memory is not None else None
    if free is None or machine.device_memory_bytes is None:
        return machine.device_name
    return f"{machine.device_name}, {free / 2**30:.1f} of {machine.device_memory_bytes / 2**30:.1f} GiB free"


def _memory() -> SelfCheck:
    free, total = available_bytes(), psutil.virtual_memory().total
    return SelfCheck.judge(
        "machine",
        "memory",
        free >= FEW_BYTES,
        f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free",
        "Full-size policies do not fit (pi0.5 takes 13 GiB in float32).",
        "Close other programs, or measure with --policy.size=tiny for a first look.",
    )


def _disk(folder: Path) -> SelfCheck:
    existing = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    return SelfCheck.judge(
        "machine",
        "disk for runs",
        free >= FEW_BYTES,
        f"{free / 2**30:.1f} GiB free",
        "Datasets and engines may not fit; a full disk costs a run's folder.",
        "Free some space, or name another folder with --output_dir.",
    )
