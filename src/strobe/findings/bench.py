"""Rules on a rollout's calls beside the same on the bench."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.findings.cadence import steadier_clocks
from strobe.findings.thresholds import Thresholds
from strobe.findings.view import ms, percent
from strobe.results.bench import Cause
from strobe.results.finding import Finding
from strobe.results.rollout import RolloutResult

WHY: dict[Cause, str] = {
    "clocks and gaps": "Between calls the processor idles: its clocks fall and its caches are lost. The bench is "
    "as slow where its calls are spaced like the robot's.",
    "waiting for a CPU": "The thread that calls the policy was ready to run and had no CPU: more threads are at work "
    "than there are CPUs.",
    "blocked": "The thread that calls the policy slept: it waited for the GIL, which another Python thread held, for a "
    "lock, or for the device or torch's other threads, which had no CPU.",
    "on the CPU": "The same work took more CPU time: others share memory and caches with it, or torch's threads wait "
    "spinning for one that has no CPU.",
}


def robot_slower(result: RolloutResult, thresholds: Thresholds) -> Iterator[Finding]:
    """Calls that take longer on the robot than the same on the bench, by the largest part of the difference."""
    bench = result.rollout.bench
    if bench is None or bench.verdict is None or not bench.shares:
        return
    there, here, ratio = bench.of("bench"), bench.of("robot"), bench.verdict.ratio
    if there is None or here is None or bench.verdict.kind != "slower" or ratio < 1 + thresholds.robot_slower:
        return
    largest = bench.shares[0]
    parts = "; ".join(f"{one.cause} {ms(one.ms)}" for one in bench.shares if one.ms > 0)
    yield Finding(
        rule="robot-slower",
        level="warning",
        title=f"A call takes {percent(ratio - 1)} longer on the robot than on the bench: {_short(largest.cause)}",
        seen=f"{ms(here.wall_ms)} on the robot ({here.calls:,} calls), {ms(there.wall_ms)} on the bench "
        f"({there.calls:,}). More on the robot: {parts}.",
        why=WHY[largest.cause],
        do=_do(result, largest.cause),
        gain=f"at most {ms(largest.ms)} of a call (measured)",
        evidence={"ratio": ratio, "cause": largest.cause, "cause_ms": largest.ms},
    )


def _short(cause: Cause) -> str:
    return {"clocks and gaps": "the gaps between calls", "on the CPU": "CPU time"}.get(cause, cause)


def _do(result: RolloutResult, cause: Cause) -> str:
    machine = result.machine
    threads = f"OMP_NUM_THREADS={max(1, machine.threads - 1)}"
    if cause == "clocks and gaps":
        return steadier_clocks(machine)
    if cause == "waiting for a CPU":
        return f"Stop other programs on this machine (`top` lists them), or leave the loop a CPU: {threads}."
    if cause == "blocked":
        said = "Look in the trace for what other threads do meanwhile: --display_data=false, no Python in camera or "
        said += "teleoperator threads, video encoding in processes of its own"
        return f"{said}; then fewer of torch's threads: {threads}." if machine.device == "cpu" else f"{said}."
    return f"Stop other programs on this machine, feed fewer pixels, or take fewer of torch's threads: {threads}."


RULES = (robot_slower,)
