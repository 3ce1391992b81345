"""strobe doctor: can Strobe's measurements on this machine be trusted?

Checks the device, the versions of packages, the noise, other programs and power, the data loaders, and the tools.
Run it first on a new machine.

The answer names the self-checks that fail or need care, and what to install or change. It takes about a minute.

Examples:
  strobe doctor
  strobe doctor --only=noise,steadiness          the timing alone

More:
  machine      the device computes right; memory and disk are there
  versions     packages that were tested, newer ones, and those too old
  noise        the same compared with the same must show no difference; the smallest difference that would show
  steadiness   other programs, a quota, power mode, a GPU's clock and heat
  loaders      shared memory between workers, open files, video decoders
  tools        simulators, a browser, a compiler, Strobe's extras

Further example:
  strobe doctor --device=cuda:1

Exit code: 0 if nothing fails, 1 if something cannot be trusted, 2 for wrong input, 130 after Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from strobe.core.cli.flags import flag_values
from strobe.core.cli.live import Live
from strobe.core.cli.parse import parse
from strobe.core.cli.runner import Command, Studied
from strobe.core.errors import UserError, nearest


@dataclass
class DoctorConfig:
    """Flags of `strobe doctor`."""

    # The device to examine: cpu, cuda, cuda:1, xpu, mps (default: this machine's accelerator, else the CPU).
    device: str | None = None
    # Areas to check, separated by commas (default: all).
    only: str | None = None
    # Where run folders go.
    output_dir: Path = Path("runs")
    areas: list[str] = field(init=False, default_factory=list)  # that --only names


def read(argv: Sequence[str]) -> DoctorConfig:
    """Return the command's flags, checked. Raises UserError."""
    config = parse(DoctorConfig, argv)
    from strobe.doctor.results import Area

    areas = get_args(Area)
    config.areas = [part.strip() for part in config.only.split(",")] if config.only else list(areas)
    for area in config.areas:
        if area not in areas:
            raise UserError(f"--only={config.only}: no area '{area}': {nearest(area, areas)}")
    return config


def study(config: DoctorConfig, live: Live) -> Studied:
    """Examine the machine. Raises UserError."""
    live.stage("starting")
    import torch

    from strobe.core.devices.accelerators import check_device
    from strobe.doctor import machine
    from strobe.doctor.run import AREAS, doctor

    check_device(config.device)
    device = torch.device(config.device) if config.device else machine.best()
    result = doctor(device, config.output_dir, live, only=[area for area in AREAS if area in config.areas])
    return Studied(result, flag_values(config), config.output_dir, code=int(not result.is_trusted))


run = Command("doctor", __doc__, DoctorConfig, read, study)
