"""Do the times of `strobe report TRACE` agree with HolisticTraceAnalysis, on traces of real devices?

Four public traces (A100, V100, MI250) lie beside the repository, in shared/gpu-traces; without them the benchmark says
so and ends. Of each: idle time, span, computing, collectives, copies, and the time and memory that the report takes.

- With --hta-python=PYTHON, an interpreter that has HolisticTraceAnalysis: each time within 1 % of it. That library
  rounds times down to whole microseconds and counts the waits of the host (cuda_sync) as kernels, so it is given the
  same events with times in nanoseconds, and without these waits. Its figures on the file as it is are printed as well.
- Without it: within 1 % of unions of the intervals, written for this benchmark with numpy.
- Copies without the first 15 % of kernels, all kernels, all work on the device, or the correlations: each has the right
  answer. The time from which kernels are missing is not judged, the other times are those of the events that are left,
  and a device without a kernel is never idle: the profiler had no access.
- The report on the largest trace (1.8 MB): at most 15 s of one core and 1 GB. It does not import torch.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from common import cut_traces
from common.shared import could_not_run, finish
from rich.console import Console
from rich.table import Table

from strobe.traces.results import DeviceTime
from strobe.traces.run import trace

TRACES = Path(__file__).resolve().parents[2] / "shared" / "gpu-traces"
LARGEST = "a100-training-rank3-of-8.json.gz"
WITHIN, SECONDS, MEBIBYTES = 0.01, 15.0, 1000.0  # the bars
ON_DEVICE = cut_traces.ON_DEVICE

# Runs in the other interpreter: the file's path → a line of JSON, in the file's unit of time.
REFERENCE = """
import collections, contextlib, json, os, sys, warnings
warnings.filterwarnings("ignore")
with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
    from hta.trace_analysis import TraceAnalysis
    analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, include_last_profiler_step=True)
    whole = analysis.get_temporal_breakdown(visualize=False).iloc[0]
    kinds, _ = analysis.get_gpu_kernel_breakdown(visualize=False, include_memory_kernels=True)
figures = collections.Counter(idle=whole["idle_time(us)"], span=whole["kernel_time(us)"])
for row in kinds.to_dict("records"):
    for kind in row["kernel_type"].split(" overlapping "):
        figures[kind.lower()] += row["sum"]
print(json.dumps({name: float(value) for name, value in figures.items()}))
"""
NAMES = {"computing": "computation", "collectives": "communication", "copies": "memory"}


def strobe_times(device: DeviceTime) -> dict[str, float]:
    """Return a device's times in milliseconds."""
    return {
        "span": device.gaps.span_ms,
        "idle": device.gaps.idle_ms,
        "computing": device.compute_ms,
        "collectives": device.communication_ms,
        "copies": device.copies_ms,
    }


def nanoseconds(us: float) -> int:
    """Return microseconds as the nearest whole nanoseconds, exactly."""
    return round(Fraction(us) * 1000)


def union(events: list[Mapping[str, Any]]) -> float:
    """Return the length of the union of events, in nanoseconds: how often each stretch between two edges is covered."""
    if not events:
        return 0.0
    starts = np.array([nanoseconds(event["ts"]) for event in events])
    ends = starts + np.array([nanoseconds(event["dur"]) for event in events])
    edges = np.unique(np.concatenate([starts, ends]))
    change = np.zeros(len(edges), dtype=np.int64)
    np.add.at(change, np.searchsorted(edges, starts), 1)
    np.add.at(change, np.searchsorted(edges, ends), -1)
    return float(np.sum(np.diff(edges)[np.cumsum(change)[:-1] > 0]))


def hand_computed_times(events: list[Mapping[str, Any]]) -> dict[str, float]:
    """Return the same times from the events of a file, in milliseconds."""
    work = [event for event in events if event.get("ph") == "X" and event.get("cat") in ON_DEVICE]
    kernels = [event for event in work if event["cat"] == "kernel"]
    collectives = [event for event in kernels if event["name"].startswith("nccl")]
    span = max(event["ts"] + event["dur"] for event in work) - min(event["ts"] for event in work)
    return {
        "span": span / 1e3,
        "idle": span / 1e3 - union(work) / 1e6,
        "computing": union([event for event in kernels if event not in collectives]) / 1e6,
        "collectives": union(collectives) / 1e6,
        "copies": union([event for event in work if event["cat"] != "kernel"]) / 1e6,
    }


def hta_times(python: str, file: Path, unit_ms: float) -> dict[str, float]:
    """Return the same times by HolisticTraceAnalysis, in milliseconds; ``unit_ms`` is that of the file's times."""
    ran = subprocess.run([python, "-c", REFERENCE, str(file)], capture_output=True, text=True, check=False)
    if ran.returncode:
        could_not_run(f"{python} has no HolisticTraceAnalysis that reads {file.name}: {ran.stderr.strip()[-200:]}")
    figures = json.loads(ran.stdout.strip().splitlines()[-1])
    found = {name: figures.get(theirs, 0.0) for name, theirs in NAMES.items()}
    return {
        name: value * unit_ms for name, value in ({"span": figures["span"], "idle": figures["idle"]} | found).items()
    }


def write_nanosecond_trace(document: dict[str, Any], file: Path) -> None:
    """Write a trace with whole nanoseconds for times, and without the waits of the host."""
    events = [event for event in document["traceEvents"] if event.get("cat") != "cuda_sync"]
    scaled = [event | {name: nanoseconds(event[name]) for name in ("ts", "dur") if name in event} for event in events]
    with gzip.open(file, "wt", compresslevel=1) as packed:
        json.dump({**document, "traceEvents": scaled}, packed)


def report(file: Path) -> dict[str, float]:
    """Return what `strobe report` takes in a process of its own, and whether it imported torch (0 or 1).

    It has one thread, so a busy machine takes no more seconds of the core, only more by the clock.
    """
    code = (
        "import sys; from strobe.core.cli.main import main\n"
        "main(['report', sys.argv[1], '--quiet', '--output', sys.argv[2]])\n"
        "print('torch' in sys.modules)"
    )
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        command = [sys.executable, "-c", code, str(file), f"{folder}/page.html"]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
        took = time.perf_counter() - start
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "core_seconds": round(usage.ru_utime + usage.ru_stime, 2),
        "seconds": round(took, 2),
        "MiB": round(usage.ru_maxrss / 1024),
        "torch": float(ran.stdout.split()[-1] == "True"),
    }


def ratio(ours: float, theirs: float) -> float:
    """Return a ratio; 1 where both are nothing."""
    return ours / theirs if theirs else float(ours == theirs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hta-python", default="", help="an interpreter that has HolisticTraceAnalysis")
    parser.add_argument("--quick", action="store_true", help="the two small traces alone, without time and memory")
    asked = parser.parse_args()
    files = sorted(TRACES.glob("*.json.gz"))
    if not files:
        could_not_run(f"there are no traces in shared/{TRACES.name}, beside the repository")
    cost = {} if asked.quick else report(TRACES / LARGEST)  # first: the children's memory is a maximum
    holds = not cost or (cost["core_seconds"] <= SECONDS and cost["MiB"] <= MEBIBYTES and not cost["torch"])
    table = Table(box=None, pad_edge=False)
    for title in ("", "ms", "reference", "ratio", "", "HTA as it is"):
        table.add_column(title, justify="right" if title else "left")
    figures: dict[str, dict[str, float]] = {}
    wrong: dict[str, dict[str, str]] = {}
    for file in files:
        if asked.quick and file.stat().st_size > 100_000:
            continue
        (device,) = trace([file]).ranks[0].devices
        ours = strobe_times(device)
        document = json.loads(gzip.decompress(file.read_bytes()))
        reference, plain = hand_computed_times(document["traceEvents"]), {}
        if asked.hta_python:
            plain = hta_times(asked.hta_python, file, 1e-3)
            with tempfile.TemporaryDirectory() as folder:
                write_nanosecond_trace(document, Path(folder) / file.name)
                reference = hta_times(asked.hta_python, Path(folder) / file.name, 1e-6)
        with tempfile.TemporaryDirectory() as folder:
            wrong[file.name] = cut_traces.answers(document, Path(folder) / "cut.json")
        holds &= not any(wrong[file.name].values())
        figures[file.name] = {}
        for name, value in ours.items():
            against = ratio(value, reference[name])
            figures[file.name][name] = round(against, 5)
            held = abs(against - 1) <= WITHIN
            holds &= held
            row = [f"{value:.3f}", f"{reference[name]:.3f}", f"{against:.4f}", "" if held else "differs"]
            table.add_row(f"{file.name}: {name}", *row, f"{plain[name]:.3f}" if plain else "")
    console = Console(width=140)
    console.print(table)
    for name, copies in wrong.items():
        for cut, why in copies.items():
            console.print(f"{name} without {cut}: {why or 'right'}", markup=False, highlight=False)
    reference = "HTA" if asked.hta_python else "by hand"
    finish({"reference": reference, "ratios": figures, "cut": wrong, "report": cost}, holds)


if __name__ == "__main__":
    main()
