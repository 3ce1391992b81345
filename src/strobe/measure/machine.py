"""Where the numbers come from: device, clocks, power and versions. No names of hosts, users or folders."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import psutil
import torch

from strobe.devices.accelerators import module_of
from strobe.errors import DISTRIBUTION
from strobe.measure import other_work
from strobe.results.subject import Machine

_NODES = Path("/sys/devices/system/node")
_PACKAGES = ("lerobot", "torch", "transformers", "diffusers", "openvino", "numpy")
_GPU_FIELDS = {
    "driver": "driver_version",
    "sm clock": "clocks.sm",
    "largest sm clock": "clocks.max.sm",
    "memory clock": "clocks.mem",
    "power limit": "power.limit",
    "temperature": "temperature.gpu",
    "throttled because": "clocks_throttle_reasons.active",
}


def describe(device: torch.device) -> Machine:
    """This machine as it is now. What cannot be read is left out; it never fails."""
    name, memory = _device(device)
    power = _cpu_power()
    if waits := other_work.waiting():
        power["waiting threads"] = waits
    if device.type == "cuda":
        power |= _gpu_power(device)  # nvidia-smi's: of other accelerators nothing is told
    return Machine(
        system=f"{platform.system()} {platform.release()}",
        cpu=_cpu_name(),
        cores=os.cpu_count() or 1,
        threads=torch.get_num_threads(),
        nodes=_nodes(),
        memory_bytes=psutil.virtual_memory().total,
        device=str(device),
        device_name=name,
        device_memory_bytes=memory,
        power=power,
        versions={"python": platform.python_version(), **versions(_PACKAGES), **_cuda()},
    )


def _device(device: torch.device) -> tuple[str, int | None]:
    if device.type in ("cuda", "xpu"):
        properties = module_of(device).get_device_properties(device)
        return properties.name, properties.total_memory
    return _cpu_name() if device.type == "cpu" else f"{device.type} on {_cpu_name()}", None


def _cpu_name() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    if platform.system() == "Darwin":
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            command = ["sysctl", "-n", "machdep.cpu.brand_string"]
            return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    return platform.processor() or platform.machine()


def _nodes() -> int:
    """Return how many memory nodes have processors that this process may run on; 1 where the system does not say."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set[int]()
    nodes = 0
    for file in _NODES.glob("node*/cpumap"):
        with contextlib.suppress(OSError, ValueError):
            mask = int(file.read_text().strip().replace(",", ""), 16)
            nodes += any(mask >> processor & 1 for processor in usable)
    return max(nodes, 1)


def _cpu_power() -> dict[str, str]:
    power: dict[str, str] = {}
    with contextlib.suppress(OSError):
        power["governor"] = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").read_text().strip()
    with contextlib.suppress(Exception):  # psutil raises whatever the platform's files make it
        clock = psutil.cpu_freq()
        if clock and clock.current:
            power["cpu clock"] = f"{clock.current:.0f} MHz"
    with contextlib.suppress(Exception):
        battery = psutil.sensors_battery()
        if battery is not None:
            power["supply"] = "mains" if battery.power_plugged else f"battery, {battery.percent:.0f} %"
    with contextlib.suppress(OSError):
        power["load before"] = f"{os.getloadavg()[0]:.2f}"
    return power


def _gpu_power(device: torch.device) -> dict[str, str]:
    with contextlib.suppress(Exception):  # whatever the driver's tool makes of it
        # By its UUID: torch counts the visible devices, nvidia-smi all of them.
        which = f"--id=GPU-{torch.cuda.get_device_properties(device).uuid}"
        command = ["nvidia-smi", which, f"--query-gpu={','.join(_GPU_FIELDS.values())}", "--format=csv,noheader"]
        line = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.splitlines()[0]
        values = [value.strip() for value in line.split(",")]
        return {name: value for name, value in zip(_GPU_FIELDS, values, strict=False) if "N/A" not in value}
    return {}


def versions(packages: Iterable[str]) -> dict[str, str]:
    """The versions of those of ``packages`` that are installed."""
    versions: dict[str, str] = {}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(DISTRIBUTION if package == "strobe" else package)
    return versions


def _cuda() -> dict[str, str]:
    return {"cuda": torch.version.cuda} if torch.version.cuda else {}
