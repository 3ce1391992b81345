"""Calls on the robot compared with the same on the bench."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.findings.machine import steadier_clocks
from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import ms, percent
from strobe.core.results.finding import Finding, warning
from strobe.core.results.subject import Machine
from strobe.loops.results.rollout import Cause, RolloutResult

MIN_ROBOT_COST = 0.2  # least slow-down of calls on the robot against calls on the bench

WHY: dict[Cause, str] = {
    "clocks and gaps": "Between calls the processor idles: its clocks fall and its caches lose their content. The "
    "bench is as slow if its calls have the same gaps as the robot's.",
    "waiting for a CPU": "The thread that calls the policy was ready to run and had no CPU: other programs or threads "
    "of this process had them all, or a container's limit was reached.",
    "blocked": "The thread that calls the policy slept. It waited for another Python thread to release the GIL, for "
    "a lock, for the device, or for torch's other threads, which had no CPU.",
    "on the CPU": "The same work took more CPU time. Other programs share the memory and the caches, the clocks fell, "
    "or torch's threads spin while they wait for a thread that has no CPU: these are not told apart.",
}
SHORT_CAUSES: dict[Cause, str] = {"clocks and gaps": "the gaps between calls", "on the CPU": "CPU time"}


def robot_slower(result: RolloutResult, _: Thresholds) -> Iterator[Finding]:
    bench = result.rollout.bench
    if bench is None or bench.verdict is None or not bench.shares:
        return
    on_bench, on_robot, ratio = bench.call_times("bench"), bench.call_times("robot"), bench.verdict.ratio
    if on_bench is None or on_robot is None or bench.verdict.kind != "slower" or ratio < 1 + MIN_ROBOT_COST:
        return
    cause = bench.shares[0].cause
    parts = "; ".join(f"{share.cause} {ms(share.ms)}" for share in bench.shares if share.ms > 0)
    yield warning(
        rule="robot-slower",
        title=f"A call takes {percent(ratio - 1)} longer on the robot than on the bench: "
        f"{SHORT_CAUSES.get(cause, cause)}",
        found=f"median {ms(on_robot.wall_ms)} on the robot ({on_robot.calls:,} calls), {ms(on_bench.wall_ms)} on the "
        f"bench ({on_bench.calls:,} calls). The difference by cause: {parts}.",
        why=WHY[cause],
        do=_remedy(result.machine, cause),
        gain=f"up to {ms(bench.shares[0].ms)} per call (measured)",
        evidence={"cause": cause},
    )


def _remedy(machine: Machine, cause: Cause) -> str:
    threads = f"OMP_NUM_THREADS={max(1, machine.threads - 1)}"
    if cause == "clocks and gaps":
        return steadier_clocks(machine)
    if cause == "waiting for a CPU":
        return f"Stop other programs on this machine (`top` lists them), or reserve a CPU for the loop: {threads}."
    if cause == "blocked":
        look = (
            "The trace shows what other threads do during the call. What helps: --display_data=false, no Python in "
            "camera or teleoperator threads, video encoding in a process of its own"
        )
        return f"{look}. Then give torch fewer threads: {threads}." if machine.device == "cpu" else f"{look}."
    return f"Stop other programs on this machine, feed fewer pixels, or give torch fewer threads: {threads}."


OF_ROLLOUTS = (robot_slower,)
