"""The subject of a run, and its machine."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.core.results.data import Data, Finite, many, mapping, optional

RANDOM_WEIGHTS = "random weights"  # `SubjectInfo.source` of a subject without a checkpoint


class SubjectInfo(Data):
    """The policy or model, its weights, and its inputs."""

    name: str
    kind: str = Field(description="the policy's type, e.g. 'act', 'pi05'")
    source: str = Field(description="a folder, a Hub id, or 'random weights'")
    size: Literal["full", "tiny"] = "full"
    parameters: int
    weight_bytes: int
    dtypes: dict[str, int] = mapping("dtype → number of parameters")
    inputs: str = Field(description="where the observations come from, in words")
    stand_ins: list[str] = many("placeholders for things that this machine lacks")
    anatomy: str = Field(default="modules", description="anatomy that named the parts; 'modules' without one")
    compilable: bool = Field(default=False, description="LeRobot has a setting that compiles it: `compile_model`")
    packages: dict[str, str] = mapping(
        "distribution → version of packages of others that the policy and the record of its family come "
        "from; empty in results from before there was this field"
    )
    mps_known: bool = Field(default=False, description="of earlier versions; not written any more")


class Ceiling(Data):
    """Highest rates that this machine was measured to reach, in the same run."""

    gflops: dict[str, Finite] = mapping("dtype name → GFLOP/s of a large matrix product (of integers: GOP/s)")
    vector_gflops: Finite | None = optional("GFLOP/s of an elementwise float32 multiply-add on data in the cache")
    memory_gbps: Finite | None = optional(
        "GB/s (1e9 bytes) read + written by a large stream: the faster of a copy and a triad; older "
        "results lack the triad"
    )


class Machine(Data):
    """Where the numbers come from."""

    system: str
    cpu: str
    cores: int
    threads: int = Field(description="torch's intra-op threads; 0 if torch was not loaded")
    nodes: int | None = optional("memory nodes (NUMA); only older versions counted them")
    memory_bytes: int
    device: str = Field(description="torch device, e.g. 'cpu', 'cuda:0'")
    device_name: str
    device_memory_bytes: int | None = None
    power: dict[str, str] = mapping("governor, clocks, limits and temperatures")
    versions: dict[str, str] = Field(default_factory=dict)
    ceiling: Ceiling = Field(default_factory=lambda: Ceiling())
