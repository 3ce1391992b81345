"""Rules on calls at a robot's pace: the price of the gaps between them, and the robot compared with the bench."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import ms, percent, whole_ms
from strobe.core.results.answer import BreakdownResult
from strobe.core.results.finding import Finding
from strobe.core.results.subject import Machine
from strobe.rollout.results.rollout import Cause, RolloutResult

MIN_GAP_COST = 0.1  # least relative slow-down of calls at the robot's pace against back-to-back calls
MIN_ROBOT_COST = 0.2  # least relative slow-down of calls on the robot against calls on the bench

WHY: dict[Cause, str] = {
    "clocks and gaps": "Between calls the processor idles: its clocks fall and its caches lose their content. The "
    "bench is as slow if its calls have the same gaps as the robot's.",
    "waiting for a CPU": "The thread that calls the policy was ready to run and had no CPU: more threads are at work "
    "than there are CPUs.",
    "blocked": "The thread that calls the policy slept. It waited for another Python thread to release the GIL, for "
    "a lock, for the device, or for torch's other threads, which had no CPU.",
    "on the CPU": "The same work took more CPU time. Other programs share the memory and the caches, or torch's "
    "threads spin while they wait for a thread that has no CPU.",
}
SHORT_CAUSES: dict[Cause, str] = {"clocks and gaps": "the gaps between calls", "on the CPU": "CPU time"}


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
        do=_steadier_clocks(result.machine),
        gain=f"at most down to {ms(whole_ms(together))} a call, as measured back to back",
        evidence={"ratio": ratio, "low": interval.low, "high": interval.high, "gain_share": 1 - 1 / ratio},
    )


def robot_slower(result: RolloutResult, _: Thresholds) -> Iterator[Finding]:
    """Calls that take longer on the robot than the same on the bench, by the largest part of the difference."""
    bench = result.rollout.bench
    if bench is None or bench.verdict is None or not bench.shares:
        return
    on_bench, on_robot, ratio = bench.of("bench"), bench.of("robot"), bench.verdict.ratio
    if on_bench is None or on_robot is None or bench.verdict.kind != "slower" or ratio < 1 + MIN_ROBOT_COST:
        return
    largest = bench.shares[0]
    parts = "; ".join(f"{share.cause} {ms(share.ms)}" for share in bench.shares if share.ms > 0)
    yield Finding(
        rule="robot-slower",
        level="warning",
        title=f"A call takes {percent(ratio - 1)} longer on the robot than on the bench: "
        f"{SHORT_CAUSES.get(largest.cause, largest.cause)}",
        seen=f"{ms(on_robot.wall_ms)} on the robot ({on_robot.calls:,} calls), {ms(on_bench.wall_ms)} on the bench "
        f"({on_bench.calls:,}). More on the robot: {parts}.",
        why=WHY[largest.cause],
        do=_remedy(result.machine, largest.cause),
        gain=f"at most {ms(largest.ms)} of a call (measured)",
        evidence={"ratio": ratio, "cause": largest.cause, "cause_ms": largest.ms},
    )


def _remedy(machine: Machine, cause: Cause) -> str:
    threads = f"OMP_NUM_THREADS={max(1, machine.threads - 1)}"
    if cause == "clocks and gaps":
        return _steadier_clocks(machine)
    if cause == "waiting for a CPU":
        return f"Stop other programs on this machine (`top` lists them), or reserve a CPU for the loop: {threads}."
    if cause == "blocked":
        look = (
            "The trace shows what other threads do during the call. What helps: --display_data=false, no Python in "
            "camera or teleoperator threads, video encoding in a process of its own"
        )
        return f"{look}. Then give torch fewer threads: {threads}." if machine.device == "cpu" else f"{look}."
    return f"Stop other programs on this machine, feed fewer pixels, or give torch fewer threads: {threads}."


def _steadier_clocks(machine: Machine) -> str:
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
OF_ROLLOUTS = (robot_slower,)
