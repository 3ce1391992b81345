"""Add to a wiring what the frames of its data set say, in the form in which the policy takes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from strobe.lerobot.datasets.truth import Reading, RelativeActions, read_truth
from strobe.preflight.results.truth import DataTruth
from strobe.preflight.results.wiring import Wiring
from strobe.preflight.wiring.checkpoint import Checkpoint
from strobe.preflight.wiring.reach import relative_actions, relative_mask


def add_truth(wiring: Wiring, dataset: Path, checkpoint: Checkpoint, reading: Reading) -> None:
    """Read the frames of ``dataset`` into ``wiring.truth``, and their statistics into its wires."""
    add_frames(wiring, read_truth(dataset, replace(reading, relative=_relative(wiring, checkpoint))))


def add_frames(wiring: Wiring, truth: DataTruth) -> None:
    """Put what the frames say into ``wiring``, and their statistics into its wires."""
    wiring.truth = truth
    for wire in wiring.wires:
        end = wire.ends.get("dataset")
        found = truth.vector(end.name) if end is not None else None
        if wire.relative:
            found = truth.relative
        if found is not None:
            wire.frames = found.measured


def _relative(wiring: Wiring, checkpoint: Checkpoint) -> RelativeActions | None:
    step, wire = relative_actions(checkpoint), wiring.wire("action")
    end = wire.ends.get("dataset") if wire is not None else None
    if step is None or end is None or len(end.shape) != 1 or not wiring.timing.chunk:
        return None
    return RelativeActions(wiring.timing.chunk, relative_mask(step, end.shape[0]))
