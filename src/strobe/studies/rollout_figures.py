"""The figures of a rollout in one list, to stand beside those of another."""

from __future__ import annotations

from strobe.results.rollout import Quantiles, Rollout


def figures_of(rollout: Rollout) -> dict[tuple[str, str], float | None]:
    """Figures by name and unit: pace, inference, delays, starvation, ages, seams, cameras."""
    found: dict[tuple[str, str], float | None] = {}
    if (pace := rollout.pace) is not None:
        found["rate asked", "Hz"] = pace.asked_hz
        found["rate held", "Hz"] = pace.held_hz
        found |= _quantiles("from tick to tick", pace.period)
        found["late ticks", "%"] = 100 * pace.late / pace.ticks
    if (inference := rollout.inference) is not None:
        found["calls of the policy", ""] = inference.calls
        found["first call", "ms"] = inference.first_ms
        found |= _quantiles("later calls", inference.latency)
        found["chunks that came too late", ""] = inference.useless
        if (delays := inference.delays) is not None:
            found["delay assumed, median", "actions"] = delays.assumed.median
            found["delay needed, median", "actions"] = delays.needed.median
            found["delay that happened, median", "actions"] = delays.executed.median
            found["actions of the first chunk dropped, not executed", ""] = delays.first_dropped
    queue = rollout.queue
    found["first action after", "ms"] = queue.first_action_ms
    found["ticks without an action", ""] = queue.starved
    found["time without an action", "ms"] = queue.starved_ms
    found["longest time without one", "ms"] = queue.longest_ms
    found["fewest actions left", ""] = queue.least
    found |= _quantiles("age of the observation", rollout.age)
    for seam in rollout.seams:
        found[f"jump of {seam.joint} over its steps", "×"] = seam.ratio
    for camera in rollout.cameras:
        found[f"frames of {camera.name}", "Hz"] = camera.fresh_hz
        found |= _quantiles(f"age of frames of {camera.name}", camera.age)
    return found


def _quantiles(name: str, values: Quantiles | None) -> dict[tuple[str, str], float | None]:
    if values is None:
        return {}
    return {
        (f"{name}, median", "ms"): values.median,
        (f"{name}, 95 %", "ms"): values.p95,
        (f"{name}, longest", "ms"): values.max,
    }
