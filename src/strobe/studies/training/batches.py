"""Batches that the training's loader loaded, from the sections of whichever process loaded them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strobe.loops import loader_probes
from strobe.loops import training as loop
from strobe.measure.components import Iteration, iterations
from strobe.timeline.timeline import Section

BATCHES_KEPT = 5000  # of the loader, with their sections


def worker_facts(watch: loop.Watch) -> list[dict[str, Any]]:
    """Facts that the loader's workers handed over about themselves; see `timeline.workers.tell`."""
    return watch.timeline.worker_facts if watch.timeline is not None else []


def worker_names(watch: loop.Watch) -> dict[str, str]:
    """The timeline's thread of each worker → 'worker' and its number in the loader."""
    return {f"worker {one['worker']}": f"worker {one['index']}" for one in worker_facts(watch) if "index" in one}


def batches_of(watch: loop.Watch, sections: Sequence[Section]) -> list[Iteration]:
    """Batches of the training's own loader, without the evaluation's."""
    others = {
        f"worker {one['worker']}" for one in worker_facts(watch) if one.get("loader") not in (None, "", "training")
    }
    ours = [one for one in sections if one.path[0] == loader_probes.BATCH and one.thread not in others]
    if not ours:  # the training process loads itself: as deep as the step's own parts
        inside = [one for one in sections if loader_probes.BATCH in one.path and loop.WAIT in one.path]
        ours = [_from_batch_on(one) for one in inside]
    return iterations(ours, loader_probes.BATCH)[:BATCHES_KEPT]


def _from_batch_on(one: Section) -> Section:
    at = one.path.index(loader_probes.BATCH)
    return Section(one.name, one.path[at:], one.start_ns, one.end_ns, one.thread)
