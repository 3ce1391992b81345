"""The rule on a tuning without a success: a policy is held to be hopeless only where its latency is not why."""

from __future__ import annotations

import pytest

from strobe.core.findings.thresholds import Thresholds
from strobe.core.results.subject import Machine, SubjectInfo
from strobe.tune.page import hopeless
from strobe.tune.results import SettingRow, TuneResult, Tuning


def tuning_result(*latencies: tuple[int, bool]) -> TuneResult:
    """A search at each latency (control ticks), and whether no setting succeeded there."""
    rows = [SettingRow(name="sync", flags=[], success=None, mean_s=None)]
    return TuneResult(
        strobe_version="0", title="a tuning", environment="pusht", tasks=["pusht"], fps=10, margin=0.1,
        tunings=[
            Tuning(latency=f"{100 * ticks} ms", ticks=ticks, settings=rows, left_out={}, starts=8, exhaustive=16,
                   played=16, hopeless=fails, winner="" if fails else "sync", closing=None)
            for ticks, fails in latencies
        ],
        subject=SubjectInfo(name="act", kind="act", source="checkpoint", parameters=1, weight_bytes=4, inputs="pusht"),
        machine=Machine(system="Linux", cpu="c", cores=1, threads=1, memory_bytes=1, device="cpu", device_name="cpu"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("latencies", "why"),
    [
        ([(600, True)], "Whether the policy does the task without it was not judged"),
        ([(0, False), (600, True)], "The policy succeeds at 0 ms"),
        ([(0, True)], "They do not teach it the task"),
        ([(0, True), (600, True)], "They do not teach it the task"),
    ],
)
def test_a_latency_is_not_blamed_on_the_policy(latencies: list[tuple[int, bool]], why: str) -> None:
    assert all(why in finding.why for finding in hopeless(tuning_result(*latencies), Thresholds()))
