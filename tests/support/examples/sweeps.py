"""Sweeps as real ones would give them: some cells ran out of memory, some out of time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from strobe.core.results.agreement import Agreement
from strobe.core.results.comparison import Verdict
from strobe.core.results.data import Interval
from strobe.core.results.finding import Finding
from strobe.sweep.results import Axis, Best, Cell, CellRun, PartFigure, Row, Scaling, Status, Sweep
from support.examples import runs

BATCH = Axis(name="batch_size", values=["1", "8", "64"], numbers=[1, 8, 64], unit="samples")
IMAGE = Axis(name="image_size", values=["240x320", "480x640", "720x960"], unit="pixels",
             numbers=[240 * 320, 480 * 640, 720 * 960])  # fmt: skip
BACKBONE = Axis(name="policy.vision_backbone", values=["resnet18", "resnet50"])
OOM = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 25480396800 bytes"
CUDA = runs.MACHINE.model_copy(update={"device": "cuda:0", "device_name": "NVIDIA H200", "cores": 16})

Settings = Mapping[str, str]


def row(ms: float, batch: int = 1, measurement: str = "inference", seed: int = 0, **more: object) -> Row:
    """ACT's row: the backbone's share grows with the time."""
    taken = runs.samples(ms, n=20, seed=seed).summary
    backbone = min(0.8, 0.4 + ms / 20_000)
    parts = {("preprocess",): 0.03, ("policy",): 0.95, ("policy", "image backbone"): backbone,
             ("policy", "encoder"): 0.85 - backbone, ("policy", "decoder"): 0.06, ("policy", "other"): 0.04,
             ("other",): 0.02}  # fmt: skip
    figures = [
        PartFigure(path=list(path), other=path[-1] == "other", ms=share * ms, share=share)
        for path, share in parts.items()
    ]
    fields = {
        "measurement": measurement, "phase": "inference", "batch": batch, "ms": taken, "repeats": [taken.median],
        "throughput": 1000 * batch / taken.median, "memory_bytes": int(2**30 + ms * 2e6),
        "activation_bytes": int(ms * 1e6), "gflop": ms * 0.11, "parts": figures,
    }  # fmt: skip
    return Row.model_validate(fields | more)


def cell(settings: Settings, rows: list[Row], status: Status = "done", reason: str = "", machine: int = 0) -> Cell:
    key = ",".join(f"{k}={v}" for k, v in settings.items())
    run = CellRun(repeat=1, status=status, reason=reason, folder=f"cells/{key}", machine=machine, node="node-a")
    return Cell(key=key, settings=dict(settings), status=status, reason=reason, runs=[run], rows=rows)


def grid(axes: list[Axis], make: Callable[[Settings], Cell]) -> list[Cell]:
    names = [axis.name for axis in axes]
    return [make(dict(zip(names, values, strict=True))) for values in itertools.product(*(a.values for a in axes))]


def milliseconds(settings: Settings) -> float:
    """A time that grows as one does: a fixed part, and something for each sample's pixels."""
    high, wide = map(int, settings.get("image_size", "480x640").split("x"))
    deep = 2.2 if settings.get("policy.vision_backbone") == "resnet50" else 1.0
    return 6.0 + 1.9e-4 * int(settings.get("batch_size", "1")) * high * wide * deep


def sweep(axes: list[Axis], cells: list[Cell], **more: object) -> Sweep:
    fields = {
        "strobe_version": "0.2.0", "of": "breakdown", "axes": axes, "cells": cells, "machines": [runs.MACHINE],
        "title": "Sweep of act over " + " and ".join(axis.name for axis in axes),
        "command": ["strobe", "sweep", "breakdown", "--policy.type=act", "--grid", "batch_size=1,8,64"],
        "config": {"launcher": "local", "where": "throughput"}, "duration_s": 1_234,
        "started": datetime(2026, 11, 21, 4, 12, tzinfo=UTC),
    }  # fmt: skip
    return Sweep.model_validate(fields | more)


def square(**more: object) -> Sweep:
    """Batch by resolution; the biggest cell is out of memory, one hangs, and the grid ran in another order."""

    def make(settings: Settings) -> Cell:
        if settings == {"batch_size": "64", "image_size": "720x960"}:
            return cell(settings, [], "out of memory", OOM)
        if settings == {"batch_size": "64", "image_size": "480x640"}:
            return cell(settings, [], "timed out", "no result within 600 s")
        ms = milliseconds(settings)
        repeats = [ms, 1.02 * ms, 1.01 * ms]
        return cell(settings, [row(ms, int(settings["batch_size"]), seed=int(ms), repeats=repeats)])

    cells = grid([BATCH, IMAGE], make)
    best = cells[3]
    fits = [
        Scaling(measurement="inference", figure="time", axis="image_size", unit="pixels", exponent=0.91,
                interval=Interval(low=0.86, high=0.96), slope=1.9e-4, points=3, groups=2, fixed=6.1,
                slope_interval=Interval(low=1.8e-4, high=2.0e-4),
                sentence="inference time grows with image_size: 1.9 × for twice the pixels. "
                "Scaling exponent 0.91 [0.86, 0.96]."),
        Scaling(measurement="inference", figure="memory", axis="batch_size", unit="samples", exponent=0.31,
                slope=29.2e6, fixed=1.1e9, points=2, groups=2, curved=True,
                sentence="inference peak memory grows with batch_size: 1.2 × for twice the samples. "
                "Scaling exponent 0.31."),
    ]  # fmt: skip
    sentence = "Best throughput: `batch_size=8, image_size=240x320`."
    asked = Best(asked="throughput where memory_gib<8", key=best.key, settings=best.settings, measurement="inference",
                 sentence=sentence,
                 details=["It reaches 65.3 samples/s, with memory_gib < 8."])  # fmt: skip
    flat = Finding(rule="batch-saturates", level="info", title="Batches beyond 8 buy nothing",
                   found="65.3 samples/s at 8, 67.9 samples/s at 64.", why="The machine is busy already.")  # fmt: skip
    notes = ["the order of the cells was randomised in blocks"]
    shown = {"scaling": fits, "best": [asked], "findings": [flat], "notes": notes, "repeats": 3}
    return sweep([BATCH, IMAGE], cells[::-1], **shown | more)


def line(**more: object) -> Sweep:
    """One axis, and nothing but figures for time: no memory, parts or FLOP."""

    def make(settings: Settings) -> Cell:
        ms, batch = milliseconds(settings), int(settings["batch_size"])
        bare: dict[str, Any] = {"memory_bytes": None, "activation_bytes": None, "gflop": None, "parts": []}
        return cell(settings, [row(ms, batch, **bare)])

    return sweep([BATCH], grid([BATCH], make), **more)


def comparison(**more: object) -> Sweep:
    """pi0.5 with and without RTC over the batch size, each cell with its verdict."""
    verdict = Verdict(
        kind="slower", ratio=1.271, interval=Interval(low=1.262, high=1.281), pairs=40, sentence="With RTC is slower."
    )
    same = Agreement(cosine=0.98712, largest_error=0.2213, mean_error=0.0142, observations=8)

    def make(settings: Settings) -> Cell:
        ms = milliseconds(settings)
        guided = row(1.271 * ms, measurement="With RTC", verdict=verdict, agreement=same)
        return cell(settings, [row(ms, measurement="Without RTC"), guided])

    return sweep([BATCH], grid([BATCH], make), of="compare", **more)


def unlike(**more: object) -> Sweep:
    """Three axes on a processor and a graphics card."""

    def make(settings: Settings) -> Cell:
        ms = milliseconds(settings)
        fast = settings["policy.vision_backbone"] == "resnet50"
        taken = row(ms / (30 if fast else 1), int(settings["batch_size"]))
        return cell(settings, [taken], machine=int(fast))

    few = IMAGE.model_copy(update={"values": IMAGE.values[:2], "numbers": (IMAGE.numbers or [])[:2]})
    axes = [BACKBONE, BATCH, few]
    return sweep(axes, grid(axes, make), machines=[runs.MACHINE, CUDA], **more)


ALL = (square, line, comparison, unlike)
