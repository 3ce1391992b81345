"""The machine that the numbers come from."""

from __future__ import annotations

from pydantic import Field

from strobe.results.data import Data, Finite


class Ceiling(Data):
    """Highest rates that this machine was measured to reach, in the same run."""

    gflops: dict[str, Finite] = Field(
        default_factory=dict, description="dtype name → GFLOP/s of a large matrix product (of integers: GOP/s)"
    )
    vector_gflops: Finite | None = Field(
        default=None, description="GFLOP/s of an elementwise multiply-add of float32 on data in the cache"
    )
    memory_gbps: Finite | None = Field(
        default=None,
        description="GB/s (1e9 bytes) read + written by a large stream: the fastest of a copy and a triad, which "
        "results of earlier versions lack",
    )


class Machine(Data):
    """Where the numbers come from."""

    system: str
    cpu: str
    cores: int
    threads: int = Field(description="torch's intra-op threads")
    nodes: int = Field(default=1, ge=1, description="memory nodes (NUMA) with processors that the process may run on")
    memory_bytes: int
    device: str = Field(description="torch device, e.g. 'cpu', 'cuda:0'")
    device_name: str
    device_memory_bytes: int | None = None
    power: dict[str, str] = Field(default_factory=dict, description="governor, clocks, limits, temperatures seen")
    versions: dict[str, str] = Field(default_factory=dict)
    ceiling: Ceiling = Field(default_factory=lambda: Ceiling())
