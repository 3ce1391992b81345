"""Each rule on traces fires on a trace with its fault, and is silent on a sound one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.made_trace import annotation, chain, document, event, operator, step, training, work, write

from strobe.kinds import advise
from strobe.results.finding import Finding
from strobe.studies.trace import trace

Events = list[dict[str, Any]]


@pytest.fixture
def found(tmp_path: Path):
    def look(*ranks: Events) -> dict[str, Finding]:
        files = [
            write(tmp_path / f"{place}.json", document(events, place, len(ranks))) for place, events in enumerate(ranks)
        ]
        return {finding.rule: finding for finding in advise(trace(files))}

    return look


def queued(count: int = 100, took: float = 49, name: str = "gemm") -> Events:
    """Kernels that the host launches long before they begin."""
    return [each for n in range(count) for each in work(n, n * 2, 500 + n * 50, took, name)]


def small(steps: int) -> Events:
    """Steps of many small kernels, of which the host launches half too late."""
    per, events = 1200, []
    for place in range(steps):
        begin = place * per * 10
        events += [step(place, begin, per * 10), operator("aten::add", begin, 5)]
        for number in range(per):
            at = begin + number * 10
            events += work(place * per + number, at - 40 if number % 2 else at, at + 5, 4, "add")
    return events


def beside(name: str, cat: str = "kernel", took: float = 400) -> Events:
    """A queue of kernels, then other work of the device alone."""
    return [*queued(), *work(999, 5000, 5500, took, name, cat=cat)]


def test_a_busy_device_is_good_news_alone(found):
    seen = found([operator("aten::mm", 0, 400), *queued()])
    assert set(seen) == {"trace-device-busy"}
    assert "98 %" in seen["trace-device-busy"].title


def test_an_idle_device_is_named_with_cause_and_longest_gap(found):
    pause = event("cuda_runtime", "cudaMalloc", 100, 4800)
    rules = found([pause, *work(1, 0, 5, 100), *work(2, 5000, 5010, 100)])
    assert set(rules) == {"trace-device-idle"}
    seen = rules["trace-device-idle"]
    assert "idle for 4.9" in seen.seen
    assert "nothing was launched yet" in seen.seen
    assert "while the host was in cudaMalloc" in seen.seen
    assert "first calls" in seen.do
    waits = event("cuda_runtime", "cudaStreamSynchronize", 90, 800)
    short = found([waits, *work(1, 0, 5, 100), *work(2, 800, 905, 100)])["trace-device-idle"]
    assert ".item()" in short.do


def test_launches_that_set_the_pace(found):
    seen = found([annotation("head", 0, 900), *chain(40)])["trace-launch-bound"]
    assert "40 kernels" in seen.seen
    assert "in head" in seen.seen
    assert seen.evidence["gain_share"] == pytest.approx(39 * 15 / (39 * 20 + 5))
    assert "trace-launch-bound" not in found(chain(40, took=19))


def test_many_small_kernels(found):
    seen = found(small(2))["trace-small-kernels"]
    assert "1,200 in each ProfilerStep" in seen.seen
    fast = [{**e, "dur": 9.9} if e["cat"] == "kernel" else e for e in small(2)]
    assert "trace-small-kernels" not in found(fast), "the device is never idle"
    few = [e for e in small(2) if e["cat"] != "kernel" or e["args"]["correlation"] % 2]
    assert "trace-small-kernels" not in found(few)


def test_a_host_that_waits(found):
    seen = found(training())["trace-host-waits"]
    assert "4 times" in seen.title
    assert "aten::item" in seen.seen
    ahead = [event("cuda_runtime", "cudaStreamSynchronize", 250, 5000), operator("aten::item", 240, 5020), *queued()]
    assert "trace-host-waits" not in found(ahead), "the host is ahead, and the device is never idle"


def test_copies_that_nothing_hides(found):
    pageable = found(beside("Memcpy HtoD (Pageable -> Device)", "gpu_memcpy"))["trace-exposed-copies"]
    assert "pin_memory" in pageable.do
    pinned = found(beside("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy"))["trace-exposed-copies"]
    assert "pin_memory" not in pinned.do
    hidden = work(999, 400, 1000, 400, "Memcpy HtoD (Pinned -> Device)", cat="gpu_memcpy", stream=9)
    assert "trace-exposed-copies" not in found([*queued(), *hidden])


def test_collectives_that_nothing_hides(found):
    seen = found(beside("ncclDevKernel_AllReduce", took=800))["trace-exposed-collectives"]
    assert "one trace cannot show" in seen.seen
    hidden = work(999, 400, 1000, 800, "ncclDevKernel_AllReduce", stream=9)
    assert "trace-exposed-collectives" not in found([*queued(), *hidden])


def test_a_late_rank(found):
    seen = found(training(300), training(100), training(280))["trace-late-rank"]
    assert seen.title == "The other ranks wait for rank 1"
    assert "rank 0 0.8 ms" in seen.seen
    assert "trace-late-rank" not in found(training(105), training(100))
    turns: Sequence[Events] = [
        [{**e, "dur": 300} if "nccl" in e["name"] and (e["ts"] // 1000) % 2 == rank else e for e in training()]
        for rank in range(2)
    ]
    assert found(*turns)["trace-late-rank"].title == "The ranks wait for each other"


def test_a_cpu_that_pauses_between_operators(found):
    paused = [operator("aten::mm", 0, 1000), operator("aten::cat", 4000, 1000)]
    seen = found(paused)["trace-host-delay"]
    assert seen.title.startswith("60 %")
    assert "after aten::mm" in seen.seen
    assert found([operator("aten::mm", n * 1000, 900) for n in range(9)]) == {}
