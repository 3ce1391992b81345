"""The machine and its device, as torch knows it. No names of hosts, users or folders."""

from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING

from strobe.core.devices.accelerators import device_module
from strobe.core.measure import host
from strobe.core.results.subject import Machine
from strobe.core.torch_there import has_torch

if TYPE_CHECKING:
    import torch

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
    described = host.describe(_PACKAGES)
    if has_torch():
        import torch

        described.threads = torch.get_num_threads()
        described.versions |= {"cuda": torch.version.cuda} if torch.version.cuda else {}
    else:
        described.threads = described.cores
    described.device = str(device)
    described.device_name, described.device_memory_bytes = _device(device, described.cpu)
    if device.type == "cuda":
        described.power |= _gpu_power(device)  # nvidia-smi's: other accelerators give none
    return described


def _device(device: torch.device, cpu: str) -> tuple[str, int | None]:
    if device.type in ("cuda", "xpu"):
        properties = device_module(device).get_device_properties(device)
        return properties.name, properties.total_memory
    return cpu if device.type == "cpu" else f"{device.type} on {cpu}", None


def _gpu_power(device: torch.device) -> dict[str, str]:
    with contextlib.suppress(Exception):  # whatever the driver's tool makes of it
        # By its UUID: torch counts the visible devices, nvidia-smi all of them.
        import torch

        which = f"--id=GPU-{torch.cuda.get_device_properties(device).uuid}"
        command = ["nvidia-smi", which, f"--query-gpu={','.join(_GPU_FIELDS.values())}", "--format=csv,noheader"]
        line = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.splitlines()[0]
        values = [value.strip() for value in line.split(",")]
        return {name: value for name, value in zip(_GPU_FIELDS, values, strict=False) if "N/A" not in value}
    return {}
