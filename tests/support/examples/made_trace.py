"""Traces of torch.profiler, written by hand: events as Kineto has them, on files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ORIGIN = 1_712_195_495_519_689  # µs since 1970, as traces of older versions of torch have them

Event = dict[str, Any]


def event(cat: str, name: str, start: float, took: float, tid: Any = 1, **args: Any) -> Event:
    """Return an event; its start is in microseconds from `ORIGIN`."""
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ORIGIN + start, "dur": took, "args": args}


def operator(name: str, start: float, took: float, tid: Any = 1, **args: Any) -> Event:
    """Return an operator of torch."""
    return event("cpu_op", name, start, took, tid, **args)


def annotation(name: str, start: float, took: float, tid: Any = 1) -> Event:
    """Return an annotation of the program."""
    return event("user_annotation", name, start, took, tid)


def work(number: int, launch: float, start: float, took: float, name: str = "gemm", **more: Any) -> list[Event]:
    """Return work on a device with the call that launched it.

    ``more`` may be the work's category ``cat``, its ``device`` and ``stream``, the ``call`` with its duration
    ``call_took`` and its thread ``tid``; all else goes to the work's arguments.
    """
    own = {"cat": "kernel", "device": 0, "stream": 7, "call": "cudaLaunchKernel", "call_took": 4, "tid": 1} | more
    cat, call, call_took, tid = (own.pop(name) for name in ("cat", "call", "call_took", "tid"))
    on_device = event(cat, name, start, took, own["stream"], correlation=number, **own)
    launched = event("cuda_runtime", call, launch, call_took, tid, correlation=number)
    return [launched, {**on_device, "pid": own["device"]}]


def document(events: Sequence[Any], rank: int | None = None, ranks: int | None = None) -> dict[str, Any]:
    """Return a trace's JSON."""
    info = {} if rank is None else {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks}}
    devices = [{"id": 0, "name": "NVIDIA A100"}, {"id": 1, "name": "NVIDIA A100"}]
    return {"schemaVersion": 1, "deviceProperties": devices, **info, "traceEvents": list(events)}


def write(file: Path, content: Any) -> Path:
    """Write JSON, packed where the name says so; text goes in as it is."""
    data = (content if isinstance(content, str) else json.dumps(content)).encode("utf-8", "surrogatepass")
    file.write_bytes(gzip.compress(data) if file.suffix == ".gz" else data)
    return file


def chain(count: int, period: float = 20, took: float = 5, begin: float = 0) -> list[Event]:
    """Return kernels that each begin 2 µs after their launch, on a device that idles between them."""
    return [
        each
        for place in range(count)
        for each in work(
            1000 + place + int(begin), begin + place * period, begin + place * period + 6, took, "elementwise"
        )
    ]


def replay(number: int, at: float, count: int, wait: float = 0, nodes: bool = True, took: float = 1) -> list[Event]:
    """Return a replayed graph with its first ``count`` kernels, for which the host waits so many µs."""
    events = [event("cuda_runtime", "cudaGraphLaunch", at, 8, correlation=number)]
    for node in range(count):
        more = {"correlation": number, "device": 0, "stream": 7} | ({"graph node id": node + 1} if nodes else {})
        kernel = event("kernel", f"kernel {node % 7}", at + 10 + node * (took + 0.2), took, 7, **more)
        events.append({**kernel, "pid": 0})
    return [*events, event("cuda_runtime", "cudaStreamSynchronize", at + 20, wait)] if wait else events


def step(place: int, begin: float, took: float) -> Event:
    """Return one step of the profiler."""
    return annotation(f"ProfilerStep#{place}", begin, took)


def training(collective: float = 100, steps: int = 4) -> list[Event]:
    """Return steps of a rank: a copy, two parts with kernels, a collective so many µs long, a read by .item()."""
    events = []
    for place in range(steps):
        at, number = place * 1000, 10 * place
        events += [step(place, at, 990), annotation("forward", at + 10, 300), annotation("optimizer", at + 600, 200)]
        events += [operator("aten::mm", at + 20, 50), operator("aten::item", at + 820, 120)]
        copy = {"cat": "gpu_memcpy", "call": "cudaMemcpyAsync"}
        events += work(number, at + 12, at + 20, 60, "Memcpy HtoD (Pinned -> Device)", bytes=60_000, **copy)
        events += work(number + 1, at + 30, at + 80, 200)
        events += work(number + 2, at + 620, at + 650, 100, "adam")
        events += work(number + 3, at + 300, at + 320, collective, "ncclDevKernel_AllReduce_Sum_f32", stream=20)
        back = {**copy, "bytes": 4, "call_took": 100}
        events += work(number + 4, at + 825, at + 900, 2, "Memcpy DtoH (Device -> Pageable)", **back)
    return events
