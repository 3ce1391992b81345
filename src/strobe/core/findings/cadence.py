"""Rules on calls at a robot's pace: the price of the gaps between them."""

from __future__ import annotations

from strobe.core.findings.texts import Found, finding
from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import ms, whole_ms
from strobe.core.results.answer import BreakdownResult
from strobe.core.results.subject import Machine

MIN_GAP_COST = 0.1  # least slow-down of calls at the robot's pace against calls back to back


@finding("gap-costs", "warning")
def gap_costs(result: BreakdownResult, _: Thresholds) -> Found:
    """At the robot's pace a call takes {ratio:more} longer than back to back.

    Seen: {slow:ms} {every}, {fast:ms} back to back: {ratio:more} [{low:more}, {high:more}] more, from
        {gap.verdict.pairs:,} pairs.
    Why: A benchmark without gaps promises a latency that the robot does not get. While nothing runs, clocks fall and
        caches lose their content.
    Do: {do}
    Gain: at most down to {fast:ms} a call, as measured back to back
    """
    gap = result.gap
    if gap is None or not {gap.baseline, gap.candidate} <= {m.name for m in result.measurements}:
        return
    ratio, interval = gap.verdict.ratio, gap.verdict.interval
    if gap.verdict.kind == "slower" and ratio >= 1 + MIN_GAP_COST:
        together, paced = result.measurement(gap.baseline), result.measurement(gap.candidate)
        fast, slow, do = whole_ms(together), whole_ms(paced), steadier_clocks(result.machine)
        every = f"with a call every {ms(paced.cadence.period_ms)}" if paced.cadence is not None else "after a gap"
        yield {"ratio": ratio, "low": interval.low, "high": interval.high, "gain_share": 1 - 1 / ratio}, locals()


def steadier_clocks(machine: Machine) -> str:
    """Return what keeps the clocks of ``machine`` up in the gaps between calls."""
    steps = []
    if machine.device.startswith("cuda"):
        steps.append("Lock the GPU's clocks (sudo nvidia-smi -lgc MIN,MAX; nvidia-smi -rgc unlocks them).")
    if machine.system.startswith("Linux"):
        governor = machine.power.get("governor", "")
        if governor == "performance":
            steps.append(
                "The CPU's governor is 'performance' already. Deep sleep states may still cost time: sudo cpupower "
                "idle-set -D 10 switches them off."
            )
        else:
            now = f" (it is '{governor}')" if governor else ", if this machine has one"
            steps.append(f"Set the CPU's governor{now}: sudo cpupower frequency-set -g performance.")
    steps.append("Then measure again. If nothing changes, plan with the figure at the robot's pace.")
    return " ".join(steps)


RULES = (gap_costs,)
