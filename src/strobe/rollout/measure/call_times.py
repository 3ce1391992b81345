"""From the calls of a thread to the parts of their time, and from two places to the causes of their difference.

Wall time = time on a CPU + time ready to run without a CPU + time blocked (the rest). The wall time is the median, and
it is divided as the middle half of the calls is, all taken together: a single hiccup does not count, the parts add up,
which their own medians would not, and the wall time is the one that stands elsewhere in the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from strobe.core.measure.verdicts import FEWEST_PAIRS, unpaired_verdict
from strobe.core.timeline.clock import ThreadUse
from strobe.rollout.results.rollout import Bench, CallTimes, Place, Share

FEWEST = FEWEST_PAIRS  # calls of which a verdict can be made


def call_times(place: Place, uses: Sequence[ThreadUse]) -> CallTimes:
    """The median wall time of ``uses``, divided as their middle half is.

    Raises ValueError for no calls.
    """
    if not uses:
        raise ValueError("no calls")
    ordered = sorted(uses, key=lambda use: use.wall)
    quarter = len(ordered) // 4
    middle = ordered[quarter : len(ordered) - quarter]
    wall_ms = median(use.wall for use in ordered) / 1e6
    each = wall_ms / max(1, sum(use.wall for use in middle))
    cpu_ms = each * sum(use.cpu for use in middle)
    waits = [use.waited for use in middle if use.waited is not None]
    waiting_ms = each * sum(waits) if len(waits) == len(middle) else None
    # The clocks tick apart: what is left of nothing may be a little below it.
    blocked_ms = max(0.0, wall_ms - cpu_ms - (waiting_ms or 0.0))
    return CallTimes(
        place=place,
        calls=len(ordered),
        wall_ms=wall_ms,
        cpu_ms=cpu_ms,
        waiting_ms=waiting_ms,
        blocked_ms=blocked_ms,
    )


def compare_places(
    robot: Sequence[ThreadUse],
    bench: Sequence[ThreadUse] = (),
    paced: Sequence[ThreadUse] = (),
    period_ms: float | None = None,
) -> Bench | None:
    """Return the times of calls on the robot, and on the bench back to back and at the robot's pace.

    None for fewer than `FEWEST` calls on the robot.
    """
    if len(robot) < FEWEST:
        return None
    here = call_times("robot", robot)
    if len(bench) < FEWEST:
        return Bench(times=[here])
    there = call_times("bench", bench)
    spaced = call_times("bench at the robot's pace", paced) if len(paced) >= FEWEST else None
    verdict = unpaired_verdict(
        [use.wall / 1e6 for use in bench],
        [use.wall / 1e6 for use in robot],
        baseline_name="the bench",
        candidate_name="the robot",
    )
    return Bench(
        times=[there, *([spaced] if spaced is not None else []), here],
        period_ms=period_ms if spaced is not None else None,
        verdict=verdict,
        shares=shares(there, spaced, here),
    )


def shares(bench: CallTimes, paced: CallTimes | None, robot: CallTimes) -> list[Share]:
    """The parts of the difference, largest first.

    The bench at the robot's pace has the robot's gaps and none of its company: what it takes more than the bench is
    the price of the gaps. What the robot takes beyond that is told apart by what its thread did meanwhile.
    """
    shares = []
    if paced is not None:
        shares.append(Share(cause="clocks and gaps", ms=paced.wall_ms - bench.wall_ms))
    undisturbed = paced or bench
    shares.append(Share(cause="on the CPU", ms=robot.cpu_ms - undisturbed.cpu_ms))
    if robot.waiting_ms is not None and undisturbed.waiting_ms is not None:
        shares.append(Share(cause="waiting for a CPU", ms=robot.waiting_ms - undisturbed.waiting_ms))
    # The rest, so that the parts add up to the difference whatever the clocks' grain.
    rest = robot.wall_ms - bench.wall_ms - sum(share.ms for share in shares)
    shares.append(Share(cause="blocked", ms=rest))
    return sorted(shares, key=lambda share: -share.ms)
