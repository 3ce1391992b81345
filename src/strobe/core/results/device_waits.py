"""Does the device wait for the host? By the times of a policy's parts on both."""

from __future__ import annotations

from dataclasses import dataclass

from strobe.core.results.measurement import Measurement

AROUND = ("preprocessing", "postprocessing")  # both copy to and from the device, so host and device wait for another
HOST_BOUND = 0.95  # host time over device time from which the device waits; below 1, for the noise in both
MOST = 0.5  # share of the device's time in parts that wait, from which that is what to fix


@dataclass(frozen=True)
class HostAndDevice:
    """Mean milliseconds of the policy's parts on the host and on the device.

    ``waiting``: the share of the device's time in parts that the host does not run ahead of.
    """

    host_ms: float
    device_ms: float
    waiting: float

    @property
    def waits_for_host(self) -> bool:
        """Whether the device waits for Python to launch its work, in most of the time."""
        return self.waiting >= MOST


def host_and_device(measurement: Measurement) -> HostAndDevice:
    """Return the times of the parts on the host and on the device; zeros without a device's clock.

    Where the device is the limit of a part, the host runs ahead of it, and its own time is shorter. The parts are those
    that are two deep, and those one deep without parts of their own.
    """
    named = [each for each in measurement.components if not each.other and not each.name.isdecimal()]
    parents = {each.path[0] for each in named if each.depth > 1}
    parts = [each for each in named if each.depth == 2 or (each.depth == 1 and each.path[0] not in parents)]
    host = device = waiting = 0.0
    for part in parts:
        if measurement.clock != "device" or part.name in AROUND or part.host_ms is None or not part.values:
            continue
        on_device = sum(part.values) / len(part.values)
        host, device = host + part.host_ms, device + on_device
        waiting += on_device if part.host_ms >= HOST_BOUND * on_device else 0.0
    return HostAndDevice(host, device, waiting / device if device > 0 else 0.0)
