"""A rule on the control thread's scheduling policy, which a video encoder may change."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.findings.thresholds import Thresholds
from strobe.results.finding import Finding
from strobe.results.rollout import RolloutResult


def real_time(result: RolloutResult, _: Thresholds) -> Iterator[Finding]:
    """A control thread that was made real-time while LeRobot ran."""
    found = result.rollout.scheduling
    if found is None or found.real_time_before or not found.real_time_after:
        return
    yield Finding(
        rule="real-time-thread",
        level="warning",
        title="The control thread was made real-time, and left so",
        seen=f"It began as {found.before}, and was {found.after} "
        + (f"from {found.from_s:.1f} s on, or before." if found.from_s is not None else "when the loop began."),
        why="LeRobot's video encoder, SVT-AV1, does that to the thread that opens it wherever it may: as root, or in a "
        "container with SYS_NICE. Nothing else gets that thread's core while it runs: not the cameras' threads, not "
        "the inference, not what it starts from then on.",
        do="--dataset.rgb_encoder.vcodec=h264, or a hardware encoder; or take the right away: not as root, a container "
        "with --cap-drop=SYS_NICE. `chrt -o -p 0 PID` mends a process that goes on.",
        evidence={"before": found.before, "after": found.after},
    )


RULES = (real_time,)
