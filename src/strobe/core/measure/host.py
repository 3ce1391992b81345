"""The machine without its accelerators, read without torch: processors, memory, power and versions."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import psutil

from strobe.core.errors import DISTRIBUTION
from strobe.core.measure import other_work
from strobe.core.results.subject import Machine


def describe(packages: Iterable[str]) -> Machine:
    """Return this machine as it is now, with the versions of ``packages``. What cannot be read is left out."""
    power = _cpu_power()
    if waits := other_work.waiting():
        power["waiting threads"] = waits
    return Machine(
        system=f"{platform.system()} {platform.release()}",
        cpu=_cpu_name(),
        cores=os.cpu_count() or 1,
        threads=0,
        memory_bytes=psutil.virtual_memory().total,
        device="cpu",
        device_name=_cpu_name(),
        power=power,
        versions={"python": platform.python_version(), **versions(packages)},
    )


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


def versions(packages: Iterable[str]) -> dict[str, str]:
    """The versions of those of ``packages`` that are installed."""
    versions: dict[str, str] = {}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(DISTRIBUTION if package == "strobe" else package)
    return versions
