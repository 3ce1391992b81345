"""A robot's cameras and motor buses: where it holds them, and probes on them.

A camera: whether each read gives another frame, whether that shows another picture, and how old it is. A motor bus: how
often it asked, what lay in its port before, and how long the reading thread had a CPU. A driver that waits for answers
in a loop is on a CPU all the time, unless other threads or processes take that away: so the CPU time of a read tells a
slow bus from a busy machine.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psutil

from strobe.core.timeline.clock import host_ns, waited_ns
from strobe.loops.events import UNKNOWN, Row

if TYPE_CHECKING:
    from strobe.core.timeline.layers import Call

SAME, FRESH, FROZEN = 0, 1, 2  # the frame that was read before; another one; another one with the same picture
_ACROSS = 32  # samples of a picture's height, which are compared
_LONGEST_S = 3600.0  # a frame that seems older has its time from another clock
# COMM_RX_TIMEOUT and COMM_RX_CORRUPT of Feetech's SDK (1.0.0) and of Dynamixel's (3.8.4).
TIMEOUT, CORRUPT = (-6, -3001), (-7, -3002)


class CameraProbe:
    """Reports each read of a camera to ``append``: its section, and the event camera, end, name, fresh, age.

    fresh: see SAME. age: nanoseconds from the frame's own time (`captured_s`) to the end of the read, else from the
    camera's ``latest_timestamp``, at which LeRobot's cameras got it; -1 where neither is known. A frozen picture is
    recognised by a grid of its pixels: two pictures of one real scene differ there by the sensor's noise.
    """

    def __init__(self, name: str, section: str, camera: Any, append: Callable[[Row], None]) -> None:
        self._name, self._section, self._camera, self._append = name, section, camera, append
        self._last: object = None  # held, so that no other frame gets its place in memory
        self._seen = b""

    def reading(self, inner: Call) -> Call:
        """Around a method of the camera that returns a frame."""
        append, ident, name, section = self._append, threading.get_ident, self._name, self._section

        def call(*args: object, **kwargs: object) -> object:
            start = host_ns()
            try:
                frame = inner(*args, **kwargs)
            except BaseException:
                append(("s", section, start, host_ns(), ident()))
                raise
            end = host_ns()
            append((_camera_rows, name, section, start, end, ident(), self._fresh(frame), self._age(frame, end)))
            return frame

        return call

    def _fresh(self, frame: object) -> int:
        if frame is self._last:
            return SAME
        self._last, before = frame, self._seen
        self._seen = _sample_pixels(frame)
        return FROZEN if before and self._seen == before else FRESH

    def _age(self, frame: object, now: int) -> int:
        try:
            stamp = getattr(frame, "captured_s", None) or self._camera.latest_timestamp
            age = now - round(stamp * 1e9)
        except Exception:  # a camera that keeps no time
            return UNKNOWN
        return age if 0 <= age < _LONGEST_S * 1e9 else UNKNOWN


def _camera_rows(name: str, section: str, start: int, end: int, thread: int, fresh: int, age: int) -> list[Row]:
    return [("s", section, start, end, thread), ("camera", end, name, fresh, age)]


def _sample_pixels(frame: Any) -> bytes:
    try:
        step = max(1, frame.shape[0] // _ACROSS)
        grid = frame[::step, ::step, 1] if frame.ndim > 2 else frame[::step, ::step]
        return grid.tobytes()
    except Exception:
        return b""


class BusProbe:
    """Reports each `sync_read` of a bus to ``append``: its section, and one event.

    The event is: bus, start, end, lost, damaged, waiting, cpu, waited, arm.
    lost, damaged: tries that ended without an answer, and with one that could not be read. waiting: bytes that lay in
    the port's input before the question, -1 where the port does not tell. cpu, waited: nanoseconds that the thread ran,
    and that it waited for a CPU, -1 unknown. arm: its name, where the robot has several; '' else.
    """

    def __init__(self, bus: object, append: Callable[[Row], None], section: str, arm: str = "") -> None:
        self._section, self._arm = section, arm
        self._port = getattr(getattr(bus, "port_handler", None), "ser", None)
        self._append = append
        self._lost = self._damaged = 0

    def reading(self, inner: Call) -> Call:
        """Around the bus's ``sync_read``."""
        append, cpu, ident, section = self._append, time.thread_time_ns, threading.get_ident, self._section

        @functools.wraps(inner)
        def call(*args: object, **kwargs: object) -> object:
            waiting = self._waiting()
            self._lost = self._damaged = 0
            begun = waited_ns()
            start, ran = host_ns(), cpu()
            try:
                return inner(*args, **kwargs)
            finally:
                ran, end = cpu() - ran, host_ns()
                ended = waited_ns()
                waited = UNKNOWN if begun is None or ended is None else ended - begun
                tries = self._lost, self._damaged
                append((_bus_rows, section, start, end, ident(), *tries, waiting, ran, waited, self._arm))

        return call

    def trying(self, inner: Call) -> Call:
        """Around the SDK's ``txRxPacket``, which the bus calls for each try."""

        @functools.wraps(inner)
        def call(*args: object, **kwargs: object) -> object:
            code = inner(*args, **kwargs)
            self._lost += code in TIMEOUT
            self._damaged += code in CORRUPT
            return code

        return call

    def _waiting(self) -> int:
        try:
            return self._port.in_waiting  # type: ignore[union-attr]
        except Exception:  # another kind of port, or one that is gone: the read itself will say so
            return UNKNOWN


def _bus_rows(section: str, start: int, end: int, thread: int, *counts: int | str) -> list[Row]:
    return [("s", section, start, end, thread), ("bus", start, end, *counts)]


def cpu_use() -> tuple[int, int, int]:
    """Return nanoseconds so far: this thread's wait for a CPU (-1 unknown), CPU time of the process, of the machine."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    inside = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # counted in user time already
    waited = waited_ns()
    everyone = round((sum(times) - idle - inside) * 1e9)
    return UNKNOWN if waited is None else waited, time.process_time_ns(), everyone


def device_type(device: Any) -> str:
    """Return the type of a robot or leader, as its flag names it; where it keeps no config, its own name."""
    return str(getattr(getattr(device, "config", None), "type", None) or device.name)


def robot_cameras(robot: object) -> dict[str, object]:
    """Return the robot's cameras by their names in an observation; none where it keeps them elsewhere.

    In a robot of several arms, the name of an arm's own camera begins with the arm's.
    """
    own = getattr(robot, "cameras", None)
    parts = [(name, getattr(arm, "cameras", None)) for name, arm in _robot_arms(robot, "send_action").items()]
    arms = {name: cameras for name, cameras in parts if isinstance(cameras, dict)}
    if len(arms) < 2:
        return dict(own) if isinstance(own, dict) else {}
    shared = getattr(getattr(robot, "config", None), "cameras", None) or {}  # one of the arms opens them
    return {
        name if name in shared else f"{arm}_{name}": camera
        for arm, each in arms.items()
        for name, camera in each.items()
    }


def motor_buses(robot: object, method: str = "send_action") -> dict[str, Any]:
    """Return the motor buses of a robot or leader by the arm's name; '' is the robot itself, or its only arm.

    Args:
        method: that a part has which is an arm.
    """
    buses: dict[str, Any] = {}
    for name, part in ({"": robot} | _robot_arms(robot, method)).items():
        bus = getattr(part, "bus", None)
        if hasattr(bus, "sync_read") and all(bus is not other for other in buses.values()):
            buses[name] = bus
    return buses if len(buses) > 1 else dict(zip([""], buses.values(), strict=False))


def joint_limits(robot: object) -> dict[str, tuple[float, float]]:
    """Return the ends of each joint's range by its name in an action: by its driver's unit, in degrees by its file."""
    limits = {}
    for arm, bus in motor_buses(robot).items():
        for motor, described in (getattr(bus, "motors", None) or {}).items():
            unit, half = getattr(getattr(described, "norm_mode", None), "name", ""), 100.0
            with suppress(Exception):  # no calibration, or another kind of bus
                if unit == "DEGREES":
                    file, counts = bus.calibration[motor], bus.model_resolution_table[described.model] - 1
                    half = (file.range_max - file.range_min) / 2 * 360 / counts
                if unit in ("DEGREES", "RANGE_M100_100", "RANGE_0_100"):
                    limits[f"{arm}_{motor}.pos".lstrip("_")] = (0.0 if unit == "RANGE_0_100" else -half, half)
    return limits


def _robot_arms(robot: object, method: str) -> dict[str, object]:
    return {name.strip("_").removesuffix("_arm"): part for name, part in vars(robot).items() if hasattr(part, method)}
