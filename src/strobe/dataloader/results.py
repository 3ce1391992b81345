"""A search for the best data loader. Plain data, with the schema's version."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from pydantic import BaseModel, Field

from strobe.core.results.answer import Answer
from strobe.core.results.data import Data, Finite, Interval, Samples, many, mapping, optional
from strobe.core.results.subject import Machine

RowStatus = Literal["done", "refused", "failed", "not run"]


class Rate(Data):
    """Steady-state samples per second, from the time that blocks of whole rounds of the workers took."""

    samples_per_s: Finite
    interval: Interval | None = optional("interval of the rate; None with too few blocks")
    block_samples: int = Field(description="samples in a block: one or more batches of every worker")
    blocks_s: list[Finite] = many("seconds that each block took, in order")

    @property
    def low(self) -> float:
        """The lower end of what the rate may be; 0 where that is not known."""
        return self.interval.low if self.interval is not None else 0.0

    @property
    def high(self) -> float:
        """The upper end of what the rate may be; infinity where that is not known."""
        return self.interval.high if self.interval is not None else math.inf


class LoaderSettings(BaseModel, frozen=True, extra="forbid"):
    """A loader's settings under lerobot-train's names; those from ``pin_memory`` on have no flag there. Hashable.

    ``start_method``: how workers start; None for Python's default. ``pin_memory``: copy batches into page-locked
    memory, which lerobot-train does on CUDA. ``torch_threads``, ``decoder_threads``: in each worker; None for what
    PyTorch's DataLoader (1) and the decoder (its own choice) take. ``transforms``: apply the dataset's image
    transforms. ``samples``: a file of decoded samples in place of the dataset's. ``root``: a folder with a copy of it.
    """

    num_workers: int
    prefetch_factor: int
    batch_size: int
    video_backend: str
    start_method: str | None = None
    persistent_workers: bool = True
    pin_memory: bool = False
    torch_threads: int | None = None
    decoder_threads: int | None = None
    transforms: bool = True
    samples: str | None = None
    root: str | None = None


class LoaderRow(Data):
    """One candidate."""

    settings: LoaderSettings
    status: RowStatus
    reason: str = ""
    rate: Rate | None = None
    start_up_s: Finite | None = optional("time to the first batch, with workers started by fork")
    worker_pss_bytes: int | None = optional("memory of one worker, shared pages in proportion")
    worker_uss_bytes: int | None = optional("memory of one worker, only its own pages")
    shared_most_bytes: int = Field(default=0, description="upper bound of shared memory: workers × prefetch × batch")
    shared_seen_bytes: int | None = optional("most shared memory seen in use")
    rungs: int = Field(default=0, description="rungs of the search that measured this row")
    own: bool = Field(default=False, description="this row has the user's own flags")
    chosen: bool = False


class StartUp(Data):
    """How the chosen loader starts, by the way that its workers do."""

    start_method: str
    status: RowStatus
    reason: str = ""
    first_batch_s: Finite | None = None
    epoch_start_s: Finite | None = optional("time to a later epoch's first batch, same workers")
    worker_pss_bytes: int | None = None
    worker_uss_bytes: int | None = None


class WhatIf(Data):
    """The chosen loader with one thing changed that lerobot-train has no flag for."""

    name: str
    note: str = ""
    status: RowStatus
    reason: str = ""
    rate: Rate | None = None
    baseline: Rate | None = optional("the chosen loader, measured in alternation")


class Encoding(Data):
    """The same episodes in another encoding, read by the chosen loader."""

    name: str
    status: RowStatus
    reason: str = ""
    rate: Rate | None = None
    bytes_per_hour: Finite | None = optional("bytes on disk for an hour of recording")
    psnr_db: Finite | None = optional("against the frames as they are now; None if equal")
    encode_s: Finite | None = optional("time to write the sample")


class StepNeed(Data):
    """Rate at which a training step takes samples from the loader."""

    batch_size: int
    samples_per_s: Finite
    source: Literal["measured", "given"]
    step_ms: Samples | None = None


class DatasetFacts(Data):
    """The dataset that the loaders read."""

    name: str
    frames: int
    episodes: int
    fps: Finite
    cameras: dict[str, list[int]] = mapping("camera → height, width, channels")
    video: bool
    sample_bytes: int = Field(description="bytes of one sample's tensors, as a worker returns them")


class Recommendation(Data):
    """The loader to train with, and what it should win over the user's own flags."""

    batch_size: int
    flags: list[str] = Field(description="flags in lerobot-train's spelling")
    own: Rate | None = optional("the user's own loader, in alternation with the chosen one")
    chosen: Rate
    fed: bool = Field(description="the loader is shown to be no slower than the step")
    reason: str = Field(description="why the search ended")
    step_ms_now: Finite | None = None
    step_ms_then: Finite | None = None
    steps: int = Field(description="steps that lerobot-train would run")
    searched_s: Finite = Field(description="duration of the search")


class Dataloader(Answer):
    """A search over the settings of lerobot-train's data loader."""

    called: ClassVar[str] = "search for a data loader"

    study: Literal["dataloader"] = "dataloader"
    policy: str
    dataset: DatasetFacts
    own: LoaderSettings = Field(description="the row with the user's flags")
    machine: Machine  # type: ignore[assignment]  # required, where the envelope's may be None
    needs: list[StepNeed] = many("required rate by batch size; empty if the fastest loader was requested")
    rows: list[LoaderRow] = Field(default_factory=list)
    recommendations: list[Recommendation] = many("one per batch size, the user's first")
    start_ups: list[StartUp] = Field(default_factory=list)
    what_ifs: list[WhatIf] = Field(default_factory=list)
    caches: list[WhatIf] = many("the chosen loader on decoded samples, and on files that lie in memory")
    encodings: list[Encoding] = Field(default_factory=list)

    @property
    def subject_name(self) -> str:
        return self.policy
