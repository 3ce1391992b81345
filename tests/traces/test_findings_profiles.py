"""Findings from what profilers saw: none on a healthy run, and none that the profiler's own cost explains."""

from __future__ import annotations

from typing import Any

from support.examples.findings_results import approve_findings, make_measurement, result

from strobe.traces.results import GapCause, Gaps, LongGap, OperatorProfile, PythonFunction, PythonProfile


def gaps(idle: float, span: float = 100.0, exposed: float = 1.0, long: float = 0.0) -> Gaps:
    causes = [GapCause(cause="nothing was launched yet", gaps=120, ms=idle)]
    longest = [LongGap(ms=long, after="aten::add", before="")] if long else []
    return Gaps(span_ms=span, busy_ms=span - idle, idle_ms=idle, threshold_us=10, gaps=120, gaps_ms=idle,
                causes=causes, exposed=exposed, long_ms=long, longest=longest)  # fmt: skip


def profiled_result(host: Gaps | None = None, device: Gaps | None = None, *, python: bool = False, parts: Any = None,
         on: str = "", **more: Any) -> Any:  # fmt: skip
    """A run of 100 ms as the operators' profiler saw it, or the one of Python too; on a GPU where a device is given."""
    functions = [
        PythonFunction(name="torch.conv2d", where="built in", calls=4, own_ms=50, cumulative_ms=50),
        PythonFunction(name="forward", where="lerobot/policies/x.py:10", calls=1, own_ms=31.5, cumulative_ms=90),
    ]
    profiles: dict[str, Any] = {"operators": OperatorProfile(
        measurement="inference", iteration_ms=100, operator_calls=5000, host=host, device=device, **more)}  # fmt: skip
    if python:
        profiles["python"] = PythonProfile(tool="cprofile", measurement="inference", iterations=3, iteration_ms=120,
                                           functions=functions, host=host, device=device)  # fmt: skip
    made = make_measurement(parts or {"policy": 90.0})
    return result(made, device=on or ("cuda:0" if device else "cpu"), **profiles)


def python_only_result(host: Gaps, device: Gaps | None = None) -> Any:
    return profiled_result(host, device, python=True).model_copy(update={"operators": None})


def test_what_is_found() -> None:
    slowed = gaps(60, span=150)
    decodes = {"decode": 30.0, "model": 70.0}
    approve_findings("profiles", {"device-idle|host-delay|many-small-operators|python-time": {
        "no profile": ("", result(make_measurement({"policy": 90.0}))),
        "a healthy CPU": ("", profiled_result(gaps(19), python=True)),
        "a healthy GPU": ("", profiled_result(gaps(90), gaps(19), python=True, kernel_median_us=9, kernel_calls=1000)),
        "a device that waits": ("device-idle", profiled_result(gaps(5), gaps(35))),
        "a long gap of a device": ("device-idle", profiled_result(device=gaps(35, long=30))),
        # What the profiler added is not compared with the run.
        "slowed by the profiler, and idle too": ("device-idle", profiled_result(device=gaps(70, span=150))),
        "a device slowed by the profiler": ("", profiled_result(device=slowed)),
        "a host slowed by the profiler": ("", profiled_result(slowed)),
        "a host slowed by Python's": ("", python_only_result(slowed)),
        "half of what was added lies inside operators": ("many-small-operators",
                                                         profiled_result(gaps(60, span=150, exposed=0.5))),
        "small kernels": ("many-small-operators",
                          profiled_result(device=gaps(5), kernel_median_us=3.2, kernel_calls=4321)),
        "small kernels of graphs": (
            "", profiled_result(device=gaps(5), kernel_median_us=3.2, kernel_calls=4321, graph_kernels=4000)),
        "between operators on a CPU": ("many-small-operators", profiled_result(gaps(30))),
        "operators that only launch work": ("", profiled_result(gaps(90), on="mps")),
        # A few long gaps on a CPU are a host that is held up.
        "16 of 30 ms in long gaps": ("host-delay", profiled_result(gaps(30, long=16))),
        "14 of 30 ms in long gaps": ("many-small-operators", profiled_result(gaps(30, long=14))),
        "long gaps that are little": ("", profiled_result(gaps(19, long=18))),
        "long gaps of a GPU's host": ("", profiled_result(gaps(90, long=90), on="cuda:0")),
        "long gaps in Python": ("python-time", profiled_result(gaps(30, long=30), python=True)),
        "decoding between operators": ("", profiled_result(gaps(35, long=30), parts=decodes)),
        "more than decoding between operators": ("host-delay", profiled_result(gaps(55, long=50), parts=decodes)),
        "Python sets the pace": ("python-time", profiled_result(gaps(30), python=True)),
        # once, not as many small operators too
        "Python sets the pace of a GPU": ("python-time", python_only_result(gaps(60), gaps(40))),
    }})  # fmt: skip
