"""Whether this machine has the device that a policy is asked to run on.

Where torch is loaded, torch is asked. Otherwise only its absence can be known: by the build of torch that is installed,
and on Linux by the device files that the driver makes.
"""

from __future__ import annotations

import platform
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from strobe.core.errors import UserError
from strobe.preflight.results.wiring import DeviceHere

_DEV = Path("/dev")


def device_here(asked: str, asked_by: str, instead: str | None = None) -> DeviceHere:
    """Return whether this machine has the device ``asked``, such as cuda:1.

    Args:
        asked_by: the flag or the file that names it.
        instead: the device that a rollout takes, if it was resolved.
    """
    there, why = _check_torch_device(asked) if "torch" in sys.modules else _guess_device(asked.partition(":")[0])
    return DeviceHere(asked_by=asked_by, there=there, why=why, instead=instead if instead != asked else None)


def _check_torch_device(asked: str) -> tuple[bool, str]:
    from strobe.core.devices.accelerators import check_device

    try:
        check_device(asked)
    except UserError:
        return False, f"torch has no {asked} here"
    return True, "torch finds it"


def _guess_device(kind: str) -> tuple[bool | None, str]:
    if kind == "cpu":
        return True, "every machine has one"
    system = platform.system()
    if kind == "mps" and system != "Darwin":
        return False, "only macOS has it"
    # The files that drivers make: NVIDIA's, that of its Jetson boards, Windows' in WSL, AMD's (torch calls those cuda).
    cuda, xpu = ("nvidia*", "nvhost*", "nvmap", "nvgpu*", "dxg", "kfd"), ("dri", "dxg")
    if driver := {"cuda": cuda, "xpu": xpu}.get(kind):  # of another kind nothing is known
        if system == "Darwin":
            return False, "macOS does not support it"
        with suppress(PackageNotFoundError):
            if version("torch").endswith("+cpu"):
                return False, "the installed torch is a build for the CPU"
        if system == "Linux" and not any(True for name in driver for _ in _DEV.glob(name)):
            return False, "/dev has no file of its driver"
    return None, "give lerobot-rollout's arguments or --dataset.root, so that torch is loaded"
