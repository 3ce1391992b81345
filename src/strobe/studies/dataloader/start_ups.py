"""How the chosen loader starts, by each way to start workers: to the first batch, and to that of a later epoch."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator

from lerobot.configs.train import TrainPipelineConfig

from strobe.results.dataloader import LoaderSettings, StartUp
from strobe.studies.dataloader.bench import Stages
from strobe.studies.dataloader.process import LoaderFailed, LoaderProcess


def start_ups(config: TrainPipelineConfig, chosen: LoaderSettings, live: Stages) -> Iterator[StartUp]:
    """A row per start method of this machine, in an interpreter that has just imported lerobot-train.

    Nothing without workers.
    """
    if not chosen.num_workers:
        return
    kept = chosen.model_copy(update={"persistent_workers": True})
    with LoaderProcess(config, kept, like_lerobot_train=True) as process:
        for method in multiprocessing.get_all_start_methods():
            live.stage(f"starting {chosen.num_workers} workers by {method}, as lerobot-train would")
            row = StartUp(start_method=method, status="done")
            try:
                row.first_batch_s, row.epoch_start_s = process.start_epochs(method)
                memory = process.memory()
                row.worker_pss_bytes, row.worker_uss_bytes = memory.pss_bytes, memory.uss_bytes
            except LoaderFailed as error:
                row.status, row.reason = "failed", str(error)
            yield row
