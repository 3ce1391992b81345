"""Energy of a device: of a counter that it has, or of its power, sampled.

A counter moves in steps (NVML's every 20 to 100 ms), and many calls are shorter. So it is read between rounds, and the
energy of a call is that of all measured rounds, divided by them. It is the whole device's: its idle share and other
programs are in it. Only rounds of one variant can be read like that.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from strobe.core.errors import UserError, error_line, os_error_reason
from strobe.core.results.measurement import Energy

if TYPE_CHECKING:
    import torch

FEWEST_STEPS = 20  # steps of a counter, or samples, in the measured rounds: their two ends are off by a tenth at most
MOST_W = 20_000.0  # more is no device's power
WRAP_W = 1_000.0  # more is no CPU package's power, so its counter wraps once at most in the time that this takes
LATE_S = 1.0  # a counter shows what was used up to so long before
SAMPLED_S = 0.05
# Rails of a Jetson's sensors that feed the module in parallel; others feed a part of it a second time. Labels of
# NVIDIA's device trees (tegra210 to tegra234).
_MODULES = ("VDD_IN", "POM_5V_IN", "VDD_GPU_SOC VDD_CPU_CV VIN_SYS_5V0", "GPU CPU SOC CV VDDRQ SYS5V")


class Meter(NamedTuple):
    """A reader of one device's joules since some moment; they change every ``step_s`` seconds or more often."""

    source: str
    step_s: float
    joules: Callable[[], float]
    close: Callable[[], object] = lambda: None


def find_meter(
    device: torch.device, powercap: Path = Path("/sys/class/powercap"), hwmon: Path = Path("/sys/class/hwmon")
) -> Meter:
    """Return the meter of ``device``. Raises UserError where there is none, and what NVML's library raises.

    Args:
        powercap, hwmon: the folders in which Linux shows counters of energy, and sensors.
    """
    labels = [file for file in sorted(hwmon.glob("hwmon*/in[123]_label")) if "ina3221" in _word(file.with_name("name"))]
    if labels:
        return _jetson({_word(file): file for file in labels})
    if device.type == "cuda":
        return _card(device)
    if device.type == "cpu":
        return _packages(powercap)
    raise UserError(f"no counter of the energy of {device.type} is known")


def _packages(root: Path) -> Meter:
    zones = [file.parent for file in sorted(root.glob("intel-rapl:*/name")) if _word(file).startswith("package")]
    if not zones:
        raise UserError("this machine shows no counter of the CPU's energy (RAPL)")
    ranges = [_number(zone / "max_energy_range_uj") for zone in zones]
    then, before, total = time.perf_counter(), [_number(zone / "energy_uj") for zone in zones], 0

    def joules() -> float:
        nonlocal then, before, total
        now, values = time.perf_counter(), [_number(zone / "energy_uj") for zone in zones]
        if (now - then) * WRAP_W * 1e6 > min(ranges):
            raise UserError(f"in {now - then:.0f} s, as a round took, RAPL's counter may start again more than once")
        used = [(new - old) % largest for new, old, largest in zip(values, before, ranges, strict=True)]
        if max(used) > (now - then + LATE_S) * WRAP_W * 1e6:  # it went back without having reached its end
            raise UserError("RAPL's counter started again while it was read")
        then, before, total = now, values, total + sum(used)
        return total / 1e6

    return Meter("RAPL: the CPU's packages, without memory", 0.001, joules)


def _card(device: torch.device) -> Meter:
    import torch

    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        raise UserError("a card's energy is read with pynvml: pip install nvidia-ml-py") from None
    nvml.nvmlInit()
    # By its UUID: torch counts the visible cards, NVML all of them.
    card = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
    counter, power = nvml.nvmlDeviceGetTotalEnergyConsumption, nvml.nvmlDeviceGetPowerUsage
    try:
        counter(card)
    except nvml.NVMLError:  # before Volta
        return _sampling_meter("NVML, power sampled: the whole card", lambda: power(card) / 1e3)
    return Meter("NVML's counter: the whole card", 0.1, lambda: counter(card) / 1e3)


def _jetson(rails: dict[str, Path]) -> Meter:
    names = next((names for names in map(str.split, _MODULES) if rails.keys() >= set(names)), None)
    if names is None:
        raise UserError(f"which of the rails {', '.join(rails)} feed the whole module is not known")
    inputs = [(rails[name].parent, rails[name].name[2]) for name in names]

    def watts() -> float:  # millivolts and milliamperes
        return sum(_number(at / f"in{n}_input") * _number(at / f"curr{n}_input") for at, n in inputs) / 1e6

    return _sampling_meter(f"INA3221, power sampled: the module ({' + '.join(names)})", watts)


def _sampling_meter(source: str, watts: Callable[[], float]) -> Meter:
    """Return a meter that adds up power which a thread samples."""
    then, before, total, stop = time.perf_counter(), watts(), 0.0, threading.Event()
    failed: list[Exception] = []

    def sample() -> None:
        nonlocal then, before, total
        try:
            while not stop.wait(SAMPLED_S):
                now, power = time.perf_counter(), watts()
                total += (now - then) * (power + before) / 2
                then, before = now, power
        except Exception as error:  # a driver's own, too
            failed.append(error)

    def joules() -> float:
        if failed:
            raise failed[0]
        return total

    thread = threading.Thread(target=sample, name="strobe energy", daemon=True)
    thread.start()
    return Meter(source, 2 * SAMPLED_S, joules, lambda: (stop.set(), thread.join()))


def _word(file: Path) -> str:
    """Return what a file of sysfs holds, which is short. Raises UserError."""
    try:
        with file.open(errors="replace") as opened:
            return opened.read(40).strip()
    except OSError as error:
        root = "; on most machines only root may" if isinstance(error, PermissionError) else ""
        raise UserError(f"cannot read {file}: {os_error_reason(error)}{root}") from None


def _number(file: Path) -> int:
    text = _word(file)
    if not (text.isascii() and text.isdecimal()):
        raise UserError(f"{file} is not a whole number")
    return int(text)


class EnergyOfRounds:
    """Reads the energy of ``device`` after rounds, at most once in a step of its figure, until it is closed.

    What cannot be read costs no measurement: it is not judged, with the reason in a line.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._why = device, ""
        self._meter: Meter | None = None
        self._rounds = 0
        self._readings: list[tuple[int, float, float]] = []  # rounds that are done, seconds, joules

    def read_due_counter(self) -> None:
        """Read once more, if the figure can have moved."""
        self._rounds += 1
        try:
            if not self._why:
                self._meter = self._meter or find_meter(self._device)
                now = time.perf_counter()
                if not self._readings or now - self._readings[-1][1] >= self._meter.step_s:
                    self._readings.append((self._rounds, now, self._meter.joules()))
        except Exception as error:  # a driver's own, too
            self._why = error_line(error)

    def close(self) -> None:
        """End the readings."""
        if self._meter is not None:
            self._meter.close()

    def energy_per_call(self, warmup: int) -> Energy:
        """Return the energy of one call of the rounds after ``warmup``, which is their number."""
        if self._why or self._meter is None:
            return Energy(not_judged=self._why or "no round was made")
        source, step = self._meter.source, self._meter.step_s
        steady = [reading for reading in self._readings if reading[0] >= warmup > 0]
        if not steady or steady[-1][1] - steady[0][1] < FEWEST_STEPS * step:
            too_short = (
                f"the measured rounds took less than the {FEWEST_STEPS * step:g} s that are needed: more --seconds"
            )
            return Energy(source=source, not_judged=too_short)
        calls, seconds, joules = (last - first for first, last in zip(steady[0], steady[-1], strict=True))
        back = any(later[2] < earlier[2] for earlier, later in pairwise(steady))
        if back or not 0 < joules <= MOST_W * seconds:
            return Energy(source=source, not_judged=f"{joules:.3g} J in {seconds:.3g} s is no reading")
        watts = joules / seconds
        return Energy(joules=joules / calls, within=2 * step * watts / calls, watts=watts, source=source)
