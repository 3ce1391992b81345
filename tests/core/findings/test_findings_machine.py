"""Findings on a device that waits, a part below the ceiling, precisions of products, memory and its nodes."""

from typing import Any

from support.examples.findings_results import approve_findings, make_measurement, result


def waits(parts: dict[str, float], host: dict[str, float], clock: str = "device") -> Any:
    """Parts, and the ms that the host takes for some of them."""
    more = {path: {"host_ms": ms} for path, ms in host.items()}
    return result(make_measurement(parts, clock=clock, more=more), device="cuda:0")


def one_part(host: float, clock: str = "device") -> Any:
    return waits({"policy": 100.0, "policy/backbone": 100.0}, {"policy/backbone": host}, clock)


def two_parts(vision: float) -> Any:
    """On an H100, pi0.5's vision tower keeps the device busy, and its denoising steps do not."""
    tower, step = "policy/vision tower", "policy/denoise step"
    return waits({"policy": 100.0, tower: vision, step: 100.0 - vision}, {tower: 0.5 * vision, step: 102.0 - vision})


def make_float32_part(share: float, *, fast: float = 400.0, half: int = 90) -> Any:
    """A part of 10 GFLOP in 100 ms, ``share`` of them in float32."""
    slow, gflop, part = 100.0, 10.0, "policy/vision tower"
    least = share * gflop / slow + (1 - share) * gflop / fast
    made = make_measurement({"policy": 100.0, part: 100.0}, more={part: {"gflop": gflop, "ceiling_share": least / 0.1}})
    gflops = {"float32": slow, "bfloat16": fast}
    return result(made, dtypes={"bfloat16": half, "float32": 100 - half}, gflops=gflops)


def make_half_part(gflop: float, half: float = 100.0) -> Any:
    """100 ms with ``gflop`` in bfloat16; half of what they take at its ceiling can be gained."""
    more = {"policy": {"gflop": gflop, "gflop_by_dtype": {"bfloat16": gflop}}}
    return result(make_measurement({"policy": 100.0}, more=more), gflops={"float32": 200.0, "bfloat16": half})


def fetches(kernel_ms: float, faults: int, clock: str = "host") -> Any:
    measurement = make_measurement({"policy": 100.0}, clock=clock)
    measurement.memory.kernel_ms, measurement.memory.page_faults = kernel_ms, faults
    seen = result(measurement)
    seen.machine.threads = 2
    return seen


def test_what_is_found() -> None:
    prepared = {"preprocessing": 90.0, "policy": 10.0, "policy/backbone": 10.0}
    approve_findings("machine", {
        "host-bound": {
            "a host that takes 94 %": ("", one_part(94.0)),
            "a host that takes 95 %": ("host-bound", one_part(95.0)),
            "most of the time waits": ("host-bound", two_parts(40.0)),
            "most of the time does not wait": ("", two_parts(60.0)),
            "a host that waits for itself": ("", one_part(100.0, "host")),
            "preprocessing": ("", waits(prepared, {"preprocessing": 200.0, "policy/backbone": 2.0})),
        },
        "single-precision": {
            "51 % in float32": ("single-precision", make_float32_part(0.51)),
            "49 % in float32": ("", make_float32_part(0.49)),
            "none in float32": ("", make_float32_part(0.0)),
            "half is no faster": ("", make_float32_part(1.0, fast=140.0)),
            "weights in float32": ("", make_float32_part(1.0, half=10)),
        },
        "half-slower": {
            "41 % in half": ("half-slower", make_half_part(4.1)),
            "39 % in half": ("", make_half_part(3.9)),
            "half is hardly slower": ("", make_half_part(8.0, half=150.0)),
            "half is faster": ("", make_half_part(8.0, half=400.0)),
            "no rate of half": ("", make_half_part(8.0, half=0.0)),
        },
        "memory-churn": {
            "fetched on every call": ("memory-churn", fetches(20.0, 5000)),
            "little time in the kernel": ("", fetches(4.0, 5000)),
            "few page faults": ("", fetches(20.0, 10)),
            "timed on a device": ("", fetches(20.0, 5000, "device")),
        },
    })  # fmt: skip
