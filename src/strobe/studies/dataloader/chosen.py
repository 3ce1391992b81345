"""The chosen loader, looked at further: started in each way, and with one thing changed that has no flag."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from dataclasses import dataclass

from lerobot.configs.train import TrainPipelineConfig

from strobe.results.dataloader import LoaderRow, LoaderSettings, StartUp, WhatIf
from strobe.studies.dataloader.bench import Bench, Stages
from strobe.studies.dataloader.process import LoaderError, LoaderProcess


@dataclass(frozen=True)
class Change:
    """One change to the chosen settings, with a note for whoever reads its row."""

    name: str
    settings: LoaderSettings
    note: str = ""


def changes(chosen: LoaderSettings, *, video: bool, transforms: bool) -> list[Change]:
    """The changes that can matter for ``chosen``.

    Args:
        video: the dataset holds videos, so there is a decoder.
        transforms: the training has image transforms.
    """
    found = []
    if chosen.num_workers and chosen.video_backend == "pyav" and video:
        one = chosen.model_copy(update={"decoder_threads": 1})
        found.append(Change("one decoder thread in each worker", one, "PyAV only"))
    if chosen.num_workers:
        two = chosen.model_copy(update={"torch_threads": 2})
        found.append(Change("two torch threads in each worker", two, "DataLoader sets one"))
    if transforms:
        without = chosen.model_copy(update={"transforms": False})
        note = "a bound: moving them to the device adds their time there to the step"
        found.append(Change("no image transforms in the loader", without, note))
    if chosen.pin_memory:
        found.append(Change("memory that is not pinned", chosen.model_copy(update={"pin_memory": False})))
    return found


def what_ifs(bench: Bench, chosen: LoaderSettings, seconds: float, transforms: bool, live: Stages) -> Iterator[WhatIf]:
    """A row per change, each measured for ``seconds`` in alternation with the chosen loader as it is."""
    for change in changes(chosen, video=bench.facts.video, transforms=transforms):
        live.stage(f"what if: {change.name}")
        bench.rows[change.settings] = LoaderRow(settings=change.settings, status="not run")
        row = WhatIf(name=change.name, note=change.note, status="done")
        try:
            row.rate, row.beside = bench.alternate(change.settings, chosen, seconds)
        except LoaderError as error:
            row.status, row.reason = "failed", str(error)
        finally:
            bench.close(change.settings)
            del bench.rows[change.settings]
        yield row


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
            except LoaderError as error:
                row.status, row.reason = "failed", str(error)
            yield row
