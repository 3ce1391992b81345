"""Each rule on traces fires on a trace with its fault, and is silent on a sound one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.examples.findings_results import approve_findings
from support.examples.made_trace import annotation, chain, document, event, operator, training, work, write

from strobe.traces.run import trace

Events = list[dict[str, Any]]


def queued_kernels(count: int = 100, took: float = 49, name: str = "gemm") -> Events:
    """Kernels that the host launches long before they begin."""
    return [each for n in range(count) for each in work(n, n * 2, 500 + n * 50, took, name)]


def add_exposed_work(name: str, cat: str = "kernel", took: float = 400) -> Events:
    """A queue of kernels, then other work of the device alone."""
    return [*queued_kernels(), *work(999, 5000, 5500, took, name, cat=cat)]


def add_hidden_work(name: str, took: float, **more: Any) -> Events:
    """The same work under the queue, on a stream of its own."""
    return [*queued_kernels(), *work(999, 400, 1000, took, name, stream=9, **more)]


def taking_turns(rank: int) -> Events:
    late = [{**e, "dur": 300} if "nccl" in e["name"] and (e["ts"] // 1000) % 2 == rank else e for e in training()]
    return late


def test_what_is_found(tmp_path: Path) -> None:
    copy, collective = {"cat": "gpu_memcpy"}, "ncclDevKernel_AllReduce"
    pinned, pageable = "Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pageable -> Device)"
    waits = event("cuda_runtime", "cudaStreamSynchronize", 90, 800)
    ahead = [
        event("cuda_runtime", "cudaStreamSynchronize", 250, 5000),
        operator("aten::item", 240, 5020),
        *queued_kernels(),
    ]
    cases: dict[str, dict[str, tuple[str, *tuple[Events, ...]]]] = {
        ".*": {
            "a busy device": ("trace-device-busy", [operator("aten::mm", 0, 400), *queued_kernels()]),
            "an idle device": ("trace-device-idle", [
                event("cuda_runtime", "cudaMalloc", 100, 4800), *work(1, 0, 5, 100), *work(2, 5000, 5010, 100)]),
            "a busy CPU": ("", [operator("aten::mm", n * 1000, 900) for n in range(9)]),
        },
        "trace-device-idle": {"a host that waits for it": (
            "trace-device-idle", [waits, *work(1, 0, 5, 100), *work(2, 800, 905, 100)])},
        "trace-lost-kernels|trace-device-idle": {
            "the first kernels are lost": ("trace-lost-kernels", [
                e for e in queued_kernels() if e["cat"] != "kernel" or e["args"]["correlation"] >= 15]),
            "one of very many is lost": ("", [
                e for e in queued_kernels(200) if e["cat"] != "kernel" or e["args"]["correlation"] != 7]),
            "no access to the device": ("trace-lost-kernels", [e for e in queued_kernels() if e["cat"] != "kernel"]),
            "only copies without their launches": ("trace-device-idle", [
                event("gpu_memcpy", pinned, n * 2000, 10, 7, device=0) for n in range(5)]),
        },
        "trace-launch-bound": {
            "launches set the pace": ("trace-launch-bound", [annotation("head", 0, 900), *chain(40)]),
            "kernels set the pace": ("", chain(40, took=19)),
        },
        "trace-host-waits": {
            "a host that waits": ("trace-host-waits", training()),
            "a host that is ahead": ("", ahead),
        },
        "trace-exposed-.*": {
            "copies from pageable memory": ("trace-exposed-copies", add_exposed_work(pageable, "gpu_memcpy")),
            "copies from pinned memory": ("trace-exposed-copies", add_exposed_work(pinned, "gpu_memcpy")),
            "copies under other work": ("", add_hidden_work(pinned, 400, **copy)),
            "collectives": ("trace-exposed-collectives", add_exposed_work(collective, took=800)),
            "collectives under other work": ("", add_hidden_work(collective, 800)),
        },
        "trace-late-rank": {
            "a late rank": ("trace-late-rank", training(300), training(100), training(280)),
            "ranks that are hardly late": ("", training(105), training(100)),
            "ranks that take turns": ("trace-late-rank", taking_turns(0), taking_turns(1)),
        },
        "trace-host-delay": {"a CPU that pauses": (
            "trace-host-delay", [operator("aten::mm", 0, 1000), operator("aten::cat", 4000, 1000)])},
    }  # fmt: skip

    def look(ranks: list[Events]) -> Any:
        files = [write(tmp_path / f"{n}.json", document(one, n, len(ranks))) for n, one in enumerate(ranks)]
        return trace(files)

    approve_findings("trace", {
        ids: {name: (expected, look(ranks)) for name, (expected, *ranks) in group.items()}
        for ids, group in cases.items()
    })  # fmt: skip
