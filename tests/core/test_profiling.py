"""The seven names of the RTC profiling toolkit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lerobot.policies.rtc.configuration_rtc import RTCConfig
from lerobot.policies.rtc.modeling_rtc import RTCProcessor

from strobe import profiling


@pytest.fixture(autouse=True)
def clean():
    yield
    profiling.enable_profiling(False)
    profiling.monkey_patch_rtc_profiling(False)
    profiling.clear_profiling_stats()


def test_sections_and_methods_are_counted_only_while_enabled(capsys):
    @profiling.profile_method
    def work():
        return 1

    work()
    assert profiling.get_profiling_stats() == {}
    profiling.print_profiling_summary()
    assert "enable_profiling()" in capsys.readouterr().out

    profiling.enable_profiling()
    for _ in range(3):
        with profiling.profile_section("my_custom_operation"):
            work()
    profiling.enable_profiling(False)
    work()
    stats = profiling.get_profiling_stats()
    assert stats["my_custom_operation"]["count"] == stats[work.__qualname__]["count"] == 3
    row = stats["my_custom_operation"]
    assert row["min"] <= row["median"] <= row["max"]
    assert row["total"] == pytest.approx(3 * row["mean"] / 1e3)
    profiling.print_profiling_summary()
    assert "my_custom_operation" in capsys.readouterr().out
    profiling.clear_profiling_stats()
    assert profiling.get_profiling_stats() == {}


def test_the_inside_of_rtc_is_split_and_adds_up():
    profiling.enable_profiling()
    profiling.monkey_patch_rtc_profiling()
    processor = RTCProcessor(RTCConfig(execution_horizon=4))
    for _ in range(2):
        processor.denoise_step(
            x_t=torch.randn(1, 8, 3),
            prev_chunk_left_over=torch.randn(1, 4, 3),
            inference_delay=2,
            time=0.5,
            original_denoise_step_partial=lambda x: x * 2,
            execution_horizon=4,
        )
    stats = profiling.get_profiling_stats()
    step = stats["rtc.denoise_step"]
    parts = [stats[f"rtc.denoise_step.{p}"] for p in ("base_denoising", "autograd_correction", "guidance_computation")]
    assert [row["count"] for row in (step, *parts)] == [2, 2, 2, 2]
    assert sum(part["total"] for part in parts) == pytest.approx(step["total"])

    own: Any = RTCProcessor.denoise_step
    profiling.monkey_patch_rtc_profiling(False)
    assert RTCProcessor.denoise_step is own.__wrapped__.__wrapped__
