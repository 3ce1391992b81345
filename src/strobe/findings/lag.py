"""A rule on lags: does the robot follow its actions as late as in the data that the policy was trained on?"""

from __future__ import annotations

from collections.abc import Iterator

from strobe.findings.thresholds import Thresholds
from strobe.results.finding import Finding
from strobe.results.lag import JointLag
from strobe.results.preflight import PreflightResult

MOST_TICKS = 1.5  # by which a run may differ from the recording


def lags_differ(result: PreflightResult, _: Thresholds) -> Iterator[Finding]:
    """A joint that follows its actions later, or sooner, in the run than in the recording."""
    lag = result.lag
    if lag is None or not lag.run_fps:
        return
    apart = sorted(lag.joints, key=lambda joint: -_apart(joint))
    if not apart or _apart(apart[0]) <= MOST_TICKS:
        return
    joint = apart[0]
    far = [each.joint for each in apart if _apart(each) > MOST_TICKS]
    assert joint.recorded is not None
    assert joint.run is not None
    yield Finding(
        rule="lags-differ",
        level="warning",
        title=f"{joint.joint} follows its actions {joint.run:.1f} ticks late, and {joint.recorded:.1f} in the data",
        seen=f"{', '.join(far)}: more than {MOST_TICKS:g} ticks apart, in {lag.run}.",
        why="The policy learnt how far ahead of the arm an action is. With another lag it overshoots, or falls short.",
        do="Check the rate (--fps), the servos' acceleration and gains, and what delays an action: strobe report "
        f"{lag.run} says how old the observations behind each action were.",
        evidence={"joints": len(far), "recorded": joint.recorded, "run": joint.run},
    )


def _apart(joint: JointLag) -> float:
    return abs(joint.run - joint.recorded) if joint.run is not None and joint.recorded is not None else 0.0


RULES = (lags_differ,)
