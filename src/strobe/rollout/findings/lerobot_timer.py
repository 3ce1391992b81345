"""LeRobot's own timer (after 0.6.1) compared with Strobe's ticks of the same run."""

from __future__ import annotations

import re

from strobe.core.findings.texts import Found, finding
from strobe.core.findings.thresholds import Thresholds
from strobe.loops.results.rollout import RolloutResult

OFF = 0.03  # share of the rate: LeRobot prints two decimals, and leaves pauses out as Strobe does
SAME_RUN = 0.1  # share of the seconds by which both may differ in what they watched

# Source: ``CycleTimer._summary_lines`` of LeRobot 0.6.2 (utils/cycle_timer.py). Commands are ticks.
_SAID = re.compile(
    r"effective cadence: (?:[\d.]{1,12} Hz policy / )?([\d.]{1,12}) Hz(?: commands)? over ([\d.]{1,12}) s"
)


@finding("timers-disagree", "warning")
def timers_disagree(result: RolloutResult, _: Thresholds) -> Found:
    """LeRobot's timer reports {said:.2f} Hz, and Strobe measured {held:.2f} Hz.

    Found: LeRobot's timer covers {their_s:.1f} s of the run, and Strobe's ticks {our_s:.1f} s.
    Why: One of the two misses ticks or counts a pause. Trust no rate of this run before that is resolved.
    Do: Compare the table of ticks with the section *LeRobot's own timer*, and please report it with the events file.
    """
    pace, said = result.rollout.pace, parse_last_summary(result.rollout.cadence or "")
    if pace is None or said is None:
        return
    rate, seconds = said
    watched_alike = abs(seconds - pace.seconds) <= SAME_RUN * max(seconds, pace.seconds)
    if watched_alike and abs(rate - pace.held_hz) > OFF * pace.held_hz:
        yield {"ratio": rate / pace.held_hz}, {
            "said": rate, "held": pace.held_hz, "their_s": seconds, "our_s": pace.seconds,
        }  # fmt: skip


def parse_last_summary(report: str) -> tuple[float, float] | None:
    """Return ticks per second and seconds of the last summary in a report of LeRobot's timer; None without one."""
    found = _SAID.findall(report)
    try:
        return (float(found[-1][0]), float(found[-1][1])) if found else None
    except ValueError:  # two points in a number
        return None


RULES = (timers_disagree,)
