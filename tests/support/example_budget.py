"""A budget by hand: the optimised pi0.5 pipeline, which misses 20 Hz even with one denoising step."""

from __future__ import annotations

from strobe.results.budget import Asynchrony, Budget, Latency, Line
from strobe.results.data import Interval
from strobe.results.ladder import Need


def missed(**more: object) -> Budget:
    latencies = [
        Latency(steps=1, total_ms=83.5, parts={"vision": 17.26, "KV cache": 52.14, "denoise": 10.1}),
        Latency(steps=10, total_ms=171.36, parts={"vision": 17.26, "KV cache": 52.13, "denoise": 97.69}),
    ]
    line = Line(
        part="total", fixed_ms=73.7, fixed_interval=Interval(low=73, high=74.4), per_step_ms=9.8, one_step_ms=83.5,
        predicted={1: 83.5, 10: 171.3},
    )  # fmt: skip
    answer = Budget(
        strobe_version="0.1.0",
        title="pi05 on LIBERO",
        target_hz=20,
        control_hz=30,
        latencies=latencies,
        total=line,
        judged=latencies[0],
        needs=[Need(part="KV cache", ms=52.14, share=0.62, needed_ms=18.64, named_ms=22.64, treatments=["bf16"])],
        asynchrony=[Asynchrony(steps=1, hz=12, delay_ticks=3, horizon=3, youngest_ms=83.5, oldest_ms=170)],
        notes=["measured on another machine"],
    )
    return answer.model_copy(update=more)
