"""Rules on calls at a robot's pace: the price of the gaps between them."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import ms, percent, whole_ms
from strobe.core.results.answer import BreakdownResult
from strobe.core.results.finding import Finding
from strobe.core.results.subject import Machine

MIN_GAP_COST = 0.1  # by which calls at the robot's pace must be slower than back to back


def gap_costs(result: BreakdownResult, _: Thresholds) -> Iterator[Finding]:
    """Calls that take longer after a gap than right after one another."""
    gap = result.gap
    names = {m.name for m in result.measurements}
    if gap is None or not {gap.baseline, gap.candidate} <= names:
        return
    ratio, interval = gap.verdict.ratio, gap.verdict.interval
    if gap.verdict.kind != "slower" or ratio < 1 + MIN_GAP_COST:
        return
    together, paced = result.measurement(gap.baseline), result.measurement(gap.candidate)
    every = f"with a call every {ms(paced.cadence.period_ms)}" if paced.cadence is not None else "after a gap"
    yield Finding(
        rule="gap-costs",
        level="warning",
        title=f"At the robot's pace a call takes {percent(ratio - 1)} longer than back to back",
        seen=f"{ms(whole_ms(paced))} {every}, {ms(whole_ms(together))} back to back: {percent(ratio - 1)} "
        f"[{percent(interval.low - 1)}, {percent(interval.high - 1)}] more, from {gap.verdict.pairs:,} pairs.",
        why="A benchmark without gaps promises a latency that the robot does not get. While nothing runs, clocks "
        "fall and caches lose their content.",
        do=steadier_clocks(result.machine),
        gain=f"at most: without the gaps' price a call takes {ms(whole_ms(together))} (measured back to back)",
        evidence={"ratio": ratio, "low": interval.low, "high": interval.high, "gain_share": 1 - 1 / ratio},
    )


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
