"""A trace that lacks kernels: what is missing is counted, and the time that it was missing from is not judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.examples.made_trace import annotation, chain, document, event, operator, replay, step, work, write

from strobe.core.cli.main import main
from strobe.core.kinds import advise
from strobe.traces.launches import lost_launches
from strobe.traces.operator_table import MARK, operator_profile
from strobe.traces.profiler_events import parse_rows
from strobe.traces.results import TraceAnswer, TracedRank
from strobe.traces.run import trace

Events = list[dict[str, Any]]


def steps(count: int = 4, each: int = 10) -> Events:
    """Return steps of a millisecond with a part each, whose kernels take 80 of every 100 µs, after a copy at 2 µs."""
    copy: dict[str, Any] = {"cat": "gpu_memcpy", "call": "cudaMemcpyAsync", "stream": 3}
    events = work(9999, 0, 2, 5, "Memcpy HtoD (Pinned -> Device)", **copy)
    for place in range(count):
        at = place * 1000
        events += [step(place, at, 1000), annotation(f"part {place}", at, 990), operator("aten::mm", at, 900)]
        for number in range(each):
            launch = at + number * 100
            events += work(place * each + number, launch, launch + 10, 80)
    return events


def remove_kernels(events: Events, *numbers: int) -> Events:
    return [e for e in events if e["cat"] != "kernel" or e["args"]["correlation"] not in numbers]


def read(events: Events, tmp_path: Path) -> tuple[TracedRank, TraceAnswer]:
    answer = trace([write(tmp_path / "made.json", document(events))])
    return answer.ranks[0], answer


def test_the_time_of_lost_kernels_is_not_judged(tmp_path: Path):
    rank, answer = read(remove_kernels(steps(), *range(12)), tmp_path)
    (device,) = rank.devices
    assert (rank.launches, rank.lost_launches, rank.lost_first) == (40, 12, True)
    # From the copy, which began with the first launch, to the 13th kernel, which began after 1,210 µs.
    assert device.gaps.unjudged_ms == pytest.approx(1.208)
    assert device.gaps.span_ms == pytest.approx(3.99 - 1.21)
    assert device.gaps.busy_ms == pytest.approx(28 * 0.08)
    assert device.gaps.busy_ms + device.gaps.idle_ms == pytest.approx(device.gaps.span_ms)
    assert device.exposed_copies_ms == 0  # whether a kernel ran beside the copy nobody knows
    assert device.busy_shares[0] is None
    assert device.busy_shares[-1] is not None
    assert rank.iterations is not None
    assert rank.iterations.busy_ms == [None, None, pytest.approx(0.8), pytest.approx(0.8)]
    assert [part.lost for part in rank.parts] == [10, 2, 0, 0]
    assert "of 40 launches 12 have no kernel in the trace, most of them the first ones" in " ".join(answer.not_judged)


def test_kernels_that_are_lost_later_cost_their_own_time_alone(tmp_path: Path):
    rank, _ = read(remove_kernels(steps(), 20, 25), tmp_path)
    (device,) = rank.devices
    assert (rank.lost_launches, rank.lost_first) == (2, False)
    # Each ran after its launch and before the next kernel began.
    assert device.gaps.unjudged_ms == pytest.approx(2 * 0.11)
    assert device.gaps.busy_ms == pytest.approx(38 * 0.08 + 0.005)


def test_kernels_that_are_lost_from_a_queue_cost_no_time_of_those_before_them(tmp_path: Path):
    queued = [each for n in range(20) for each in work(n, n * 5, 200 + n * 100, 90)]
    (device,) = read(remove_kernels(queued, 10), tmp_path)[0].devices
    assert device.gaps.unjudged_ms == pytest.approx(0.11)  # from the end of the kernel before to the next one
    assert device.gaps.busy_ms == pytest.approx(19 * 0.09)


def test_a_stretch_that_lacks_kernels_is_not_idle_where_they_are_missing(tmp_path: Path):
    bound = read(remove_kernels(chain(60), *range(1020, 1030)), tmp_path)[0].devices[0].launch_bound
    assert bound is not None
    assert bound.kernels == 50
    # The pauses between kernels that are there, and that up to the launch of the first missing one.
    assert bound.idle_ms == pytest.approx((48 * 15 + 9) / 1e3)


def test_a_device_of_which_the_profiler_saw_nothing_is_not_idle(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for cut in (remove_kernels(steps(), *range(40)), [e for e in steps() if e["cat"] not in ("kernel", "gpu_memcpy")]):
        rank, answer = read(cut, tmp_path)
        assert rank.devices == []
        assert any("it had no access to the device" in line for line in answer.not_judged)
        assert main(["report", str(tmp_path / "made.json"), "--full"]) == 0
        printed = " ".join(capsys.readouterr().out.split())
        assert "the host launched kernels 40 times, and the profiler saw none of them" in printed
        assert "The profiler had no access to the device" in printed
        assert "idle" not in printed.split("!")[0]


def test_without_correlations_nothing_is_said_of_launches(tmp_path: Path):
    def remove_correlation(each: dict[str, Any]) -> dict[str, Any]:
        args = {name: value for name, value in each["args"].items() if name != "correlation"}
        return {**each, "args": args} if each["cat"] == "kernel" else each

    whole, _ = read(chain(40), tmp_path)
    rank, answer = read([remove_correlation(each) for each in chain(40)], tmp_path)
    (device,) = rank.devices
    assert whole.devices[0].launch_bound is not None
    assert (device.launch_bound, rank.lost_launches, rank.launches_known) == (None, 0, False)
    assert (device.gaps.busy_ms, device.gaps.idle_ms) == (whole.devices[0].gaps.busy_ms, whole.devices[0].gaps.idle_ms)
    assert [cause.kind for cause in device.gaps.causes] == ["unknown"]
    assert any("what launched the kernels" in line for line in answer.not_judged)


CAPTURE = [event("cuda_runtime", "cudaStreamBeginCapture", 5000, 1, correlation=900),
           *(event("cuda_runtime", "cudaLaunchKernel", 5010 + n, 1, correlation=910 + n) for n in range(5)),
           event("cuda_runtime", "cudaStreamEndCapture", 5020, 1, correlation=920)]  # fmt: skip
INSIDE = [event("cuda_runtime", "cudaLaunchKernel", 5000, 20, correlation=900),
          event("cuda_driver", "cuLaunchKernel", 5005, 10, correlation=901),
          event("kernel", "gemm", 5030, 5, 7, correlation=901)]  # fmt: skip
CALLBACK = [event("cuda_runtime", "cudaLaunchHostFunc", 5000, 20, correlation=900)]
NODE: dict[str, Any] = {"correlation": 0, "graph node id": 7}
NODES = [event("cuda_runtime", "cudaGraphLaunch", 5000, 20, correlation=900),
         *(event("kernel", "gemm", 5030 + n, 1, 7, **NODE) for n in range(5))]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "launches"),
    [(CAPTURE, 10), (INSIDE, 11), (CALLBACK, 10), (NODES, 11)],
    ids=["while a graph is captured", "a call of the driver inside", "a callback", "nodes without a number"],
)
def test_calls_that_lack_no_kernel(more: Events, launches: int):
    lost = lost_launches(parse_rows([*chain(10), *more]))
    assert (lost.launches, list(lost.calls)) == (launches, [])


def test_a_kernel_before_its_own_launch_has_another_clocks_time(tmp_path: Path):
    early = [
        {**e, "ts": e["ts"] - 3e6} if e["cat"] == "kernel" and e["args"]["correlation"] < 3 else e for e in steps()
    ]
    rank, answer = read(early, tmp_path)
    assert rank.lost_launches == 3
    assert rank.devices[0].gaps.span_ms < 4
    assert any("3 events on the device before their own launch" in note for note in answer.notes)


def test_kernels_of_replayed_graphs_are_not_bound_by_launches(tmp_path: Path):
    graphs = [{**e, "name": "cudaGraphLaunch"} if e["cat"] == "cuda_runtime" else e for e in chain(40)]
    nodes = [{**e, "args": {**e["args"], "graph node id": 5}} if e["cat"] == "kernel" else e for e in chain(40)]
    for events in (graphs, nodes):
        (device,) = read(events, tmp_path)[0].devices
        assert (device.launch_bound, device.graph_kernels) == (None, 40)


def test_a_run_that_is_watched_knows_it_too():
    mark = annotation(MARK, 0, 4100)
    seen = operator_profile([mark, *remove_kernels(steps(), *range(12))], "inference")
    assert seen.device is not None
    assert seen.device.unjudged_ms == pytest.approx(1.21)
    assert seen.device.idle_ms == pytest.approx(4.1 - 1.21 - 28 * 0.08)
    blind = operator_profile([mark, *remove_kernels(steps(), *range(40))], "inference")
    assert blind.device is None
    assert "it had no access to the device" in (blind.device_not_judged or "")


def repeat(count: int, wait: float, nodes: bool = True, whole: int = -1) -> Events:
    return [e for n in range(10) for e in replay(n + 1, n * 705_000, 400 if n == whole else count, wait, nodes)]


QUEUED = [{**e, "ts": e["ts"] - n % 10 * 700_000} if e["name"] == "cudaGraphLaunch" else e
          for n in range(10) for e in replay(n + 1, n * 700_000, 3)]  # fmt: skip
READ = [e for n in range(10) for e in work(
    100 + n, n * 705_000 + 20, n * 705_000 + 700_000, 2, "Memcpy DtoH", cat="gpu_memcpy", call="cudaMemcpyAsync",
    call_took=700_000)]  # fmt: skip


@pytest.mark.parametrize(
    ("events", "said"),
    [
        (
            repeat(3, 700_000),
            "10 replays of graphs have 30 kernels in the trace; the host or launched work waits 7,000",
        ),
        (repeat(3, 0, whole=5), "; 9 of them have 27 of the 3,600 that others of the same graph have"),
        (QUEUED, "waits 6,300 ms for them while nothing runs"),
        ([*repeat(3, 0, nodes=False), *READ], "waits 7,000 ms for them while nothing runs"),
    ],
    ids=["the host waits", "another replay has more", "launched ahead", "read by .item()"],
)
def test_a_device_is_not_idle_behind_a_graph_of_which_kernels_are_missing(events, said, tmp_path: Path, capsys):
    rank, answer = read(events, tmp_path)
    assert not rank.devices[0].gaps.is_judged
    assert [finding.rule for finding in advise(answer)] == ["trace-lost-kernels"]
    assert main(["report", str(tmp_path / "made.json"), "--full"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "idle is not judged, because kernels may be missing in " in printed
    assert said in printed


@pytest.mark.parametrize(
    ("events", "idle"),
    [
        (repeat(400, 480), 0.999),
        (
            [*repeat(400, 480), *(e for n in range(4) for e in replay(90 + n, n * 705_000 + 2000, 7, nodes=False))],
            0.999,
        ),
        ([e for n in range(10) for e in replay(n + 1, n * 705_000, 1, 700_000, took=700_000)], 0.0064),
        ([e for n in range(100) for e in replay(n + 1, n * 600, 399 if n == 50 else 400, 480)], 0.332),
    ],
    ids=["the host works between", "a smaller graph too", "one long kernel", "one kernel of 40,000 is missing"],
)
def test_a_device_that_idles_behind_a_whole_graph_is_called_so(events: Events, idle: float, tmp_path: Path):
    (device,) = read(events, tmp_path)[0].devices
    assert device.gaps.is_judged
    assert device.gaps.idle_ms / device.gaps.span_ms == pytest.approx(idle, abs=0.001)
