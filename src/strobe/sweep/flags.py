"""The flags of `strobe sweep`, besides those of the study that its cells run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from strobe.core.cli.bounds import choice_bound, exclusive_minimum_bound, minimum_bound
from strobe.policy_cli.run_flags import RayFlags
from strobe.sweep.grid import Cell


@dataclass
class SweepConfig:
    """Flags of `strobe sweep`."""

    # NAME=VALUE,VALUE: a flag of the study and its values; may be repeated, all combinations are run.
    grid: list[str] = field(default_factory=list)
    # From the first values, change one value at a time, in the order of --grid, and leave it changed.
    chain: bool = False
    # Read the grid from a YAML file.
    file: Path | None = None
    # How often each configuration runs, each time in a process of its own.
    repeats: int = field(default=1, metadata=minimum_bound(1))
    # Name the best configuration, e.g. 'throughput where memory_gib<8'; may be repeated.
    best: list[str] = field(default_factory=list)
    # List the configurations and the time that they will take. Run nothing.
    dry_run: bool = False
    # Seconds that a configuration may take.
    timeout: float = field(default=1800.0, metadata=exclusive_minimum_bound(0))
    # Resident memory that a configuration may take, in GiB (default: 90 % of the free memory when the sweep starts).
    memory_gib: float | None = field(default=None, metadata=exclusive_minimum_bound(0))
    # Run configurations again that failed, crashed or were stopped by a limit.
    retry: bool = False
    # Run all configurations again.
    fresh: bool = False
    # Continue without the configurations that are refused. They stay in the table.
    skip_invalid: bool = False
    # The sweep's folder (default: runs/sweep_STUDY_POLICY).
    sweep_dir: Path | None = None
    # Seed that shuffles the order of the configurations.
    order_seed: int = 0
    # Where configurations run: local, or ray.
    launcher: str = field(default="local", metadata=choice_bound("local", "ray"))
    # The Ray cluster: --ray.address=auto or HOST:PORT (default: a cluster that is found here, else this machine only).
    ray: RayFlags = field(default_factory=RayFlags)
    study: str = field(init=False, default="")  # that the cells run
    cells: list[Cell] = field(init=False, default_factory=list)
