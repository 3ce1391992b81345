"""The energy of a call: sensors as folders, a library made for the test, read between rounds; never a made-up 0."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.fakes.sleeper import Clock, Planted, Sleeper

from strobe.core import kinds
from strobe.core.errors import UserError
from strobe.core.measure import energy
from strobe.core.measure.energy import EnergyOfRounds, Meter, find_meter
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.report import markdown
from strobe.core.results.answer import BreakdownResult
from strobe.core.results.measurement import Energy
from strobe.core.studies.breakdown import breakdown
from strobe.core.studies.shared.measuring import Options, measure
from strobe.core.treatments.treatment import Variant

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
UJ = 1_000_000


class Zones:
    """Linux's powercap with counters that a test turns: two packages, a part of the first, and the whole platform."""

    LARGEST = 65_532_610_987  # of a server: 65.5 kJ

    def __init__(self, root: Path) -> None:
        self.root = root
        self.uj = {"intel-rapl:0": 10 * UJ, "intel-rapl:1": 20 * UJ, "intel-rapl:0:0": 5 * UJ, "intel-rapl:2": 90 * UJ}
        for zone, name in zip(self.uj, ("package-0", "package-1", "core", "psys"), strict=True):
            (root / zone).mkdir(parents=True)
            (root / zone / "name").write_text(name + "\n")
            (root / zone / "max_energy_range_uj").write_text(f"{self.LARGEST}\n")
        self.turn(0)

    def turn(self, joules: float) -> None:
        for zone in self.uj:
            self.uj[zone] = (self.uj[zone] + round(joules * UJ)) % self.LARGEST
            (self.root / zone / "energy_uj").write_text(f"{self.uj[zone]}\n")


def rounds(device: torch.device, step: Callable[[], None], count: int = 12, warmup: int = 2) -> Energy:
    with closing(EnergyOfRounds(device)) as reading:
        for _ in range(count):
            step()
            reading.read_due_counter()
    return reading.energy_per_call(warmup)


@pytest.fixture
def zones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Zones:
    zones = Zones(tmp_path / "powercap")
    places = {"powercap": zones.root, "hwmon": tmp_path / "none"}
    monkeypatch.setattr(energy, "find_meter", lambda device: find_meter(device, **places))
    return zones


@pytest.mark.parametrize("before_wrap", [0, 31])
def test_rapl_adds_up_its_packages_also_where_a_counter_starts_again(zones, clock, before_wrap):
    if before_wrap:
        zones.uj["intel-rapl:1"] = zones.LARGEST - before_wrap * UJ
        zones.turn(0)

    def step() -> None:
        clock.now += 0.5
        zones.turn(6)

    seen = rounds(CPU, step)
    assert seen.joules == pytest.approx(12, rel=1e-4)  # 6 of each package
    assert seen.watts == pytest.approx(24, rel=1e-4)
    assert 0 < (seen.within or 0) < 0.01
    assert "RAPL" in seen.source
    assert seen.not_judged == ""


def test_a_counter_that_ran_back_is_not_judged(zones, library, clock):
    def step_by(joules: int) -> None:
        clock.now += 0.5
        zones.turn(joules)
        library.mj += 1000 * joules

    for device, says in ((CPU, "started again"), (CUDA, "no reading")):
        moved = iter([6, 6, 6, 6, -9, *[6] * 7])
        assert says in rounds(device, lambda moved=moved: step_by(next(moved))).not_judged


def test_the_first_round_may_take_longer_than_a_counter_lasts_and_no_other(zones, clock):
    def step(seconds: float) -> Callable[[], None]:
        waits = iter([300.0, 0.5, seconds])

        def advance_clock() -> None:
            clock.now += next(waits, 0.5)
            zones.turn(6)

        return advance_clock

    assert rounds(CPU, step(0.5)).joules == pytest.approx(12, rel=1e-4)
    seen = rounds(CPU, step(100.0))
    assert seen.joules is None
    assert "start again" in seen.not_judged


@pytest.mark.parametrize("content", ["", "nan", "-5", "1e9", "12 34", "\x00\xff", "9" * 5000, "²"])
def test_a_counter_that_holds_no_number_of_its_kind_is_not_judged(zones, clock, content):
    def step() -> None:
        clock.now += 0.5
        (zones.root / "intel-rapl:0" / "energy_uj").write_text(content)

    seen = rounds(CPU, step)
    assert seen.joules is None
    assert seen.not_judged


def test_a_counter_of_root_names_root(zones, clock, monkeypatch):
    whole = Path.open

    def refuse(path: Path, *args: Any, **kwargs: Any) -> Any:
        if path.name == "energy_uj":
            raise PermissionError(13, "Permission denied")
        return whole(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", refuse)
    seen = rounds(CPU, lambda: None)
    assert seen.joules is None
    assert "root" in seen.not_judged
    assert "\n" not in seen.not_judged


def test_what_no_sensor_shows_is_not_judged_and_never_0(zones, clock, tmp_path):
    still = rounds(CPU, lambda: setattr(clock, "now", clock.now + 0.5))
    assert still.joules is None
    assert "0 J" in still.not_judged
    short = rounds(CPU, lambda: zones.turn(6))
    assert short.joules is None
    assert "--seconds" in short.not_judged
    assert rounds(CPU, lambda: None, count=1).joules is None
    assert rounds(CPU, lambda: None, warmup=0).joules is None
    with pytest.raises(UserError, match="RAPL"):
        find_meter(CPU, tmp_path / "nothing", tmp_path / "nothing")
    assert "mps" in rounds(torch.device("mps"), lambda: None).not_judged


class NVMLError(Exception):
    """As pynvml's, of which each kind of failure has its own."""


class Library:
    """Stands for pynvml with one card, whose counter holds ``mj`` millijoules; None: it has no counter."""

    NVMLError = NVMLError

    def __init__(self) -> None:
        self.mj: int | None = 5_000_000
        self.mw = 70_000
        self.asked: list[str] = []

    def nvmlInit(self) -> None:  # noqa: N802
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        self.asked.append(uuid)
        return "card"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:  # noqa: N802
        if self.mj is None:
            raise NVMLError("Not Supported")
        return self.mj

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:  # noqa: N802
        return self.mw


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, zones: Zones) -> Library:
    library = Library()
    monkeypatch.setitem(sys.modules, "pynvml", library)  # type: ignore[arg-type]
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="ab-cd"))
    return library


def test_a_cards_counter_is_read_by_the_cards_uuid(library, clock):
    def step() -> None:
        clock.now += 0.5
        assert library.mj is not None
        library.mj += 150_000

    seen = rounds(CUDA, step)
    assert seen.joules == pytest.approx(150)
    assert seen.watts == pytest.approx(300)
    assert seen.within == pytest.approx(2 * 0.1 * 300 / 10)
    assert library.asked == ["GPU-ab-cd"]


def test_calls_shorter_than_the_counters_steps_are_judged_over_many_of_them_or_not_at_all(library, clock):
    def step() -> None:
        clock.now += 0.005
        library.mj = round((clock.now // 0.1) * 0.1 * 200e3)  # 200 W, in steps of a tenth of a second

    few = rounds(CUDA, step, count=100)
    assert few.joules is None
    assert "2 s" in few.not_judged
    many = rounds(CUDA, step, count=2002)
    assert many.joules is not None
    assert abs(many.joules - 1.0) <= (many.within or 0) < 0.05


def test_a_card_that_fails_in_the_middle_or_has_no_library_says_so(library, clock, monkeypatch):
    calls = iter(range(100))

    def step() -> None:
        clock.now += 0.5
        library.mj = None if next(calls) > 5 else 1_000 * next(calls)

    assert rounds(CUDA, step).not_judged == "Not Supported"
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "nvidia-ml-py" in rounds(CUDA, lambda: None).not_judged


def sample_joules(meter: Meter, clock: Clock, seconds: float, least: float) -> float:
    """Let the meter's thread see that the clock has gone on; return the joules."""
    clock.now += seconds
    deadline = time.monotonic() + 60
    while meter.joules() < least and time.monotonic() < deadline:
        time.sleep(0.01)
    return meter.joules()


def test_a_card_without_a_counter_has_its_power_sampled(library, clock, tmp_path):
    library.mj = None
    meter = find_meter(CUDA, tmp_path, tmp_path)
    assert sample_joules(meter, clock, 10, 700) == pytest.approx(700)
    meter.close()
    assert "sampled" in meter.source


def jetson(root: Path, *sensors: dict[str, tuple[int, int]]) -> Path:
    """Linux's hwmon with INA3221 sensors: label → millivolts and milliamperes of each channel."""
    for number, rails in enumerate(sensors):
        sensor = root / f"hwmon{number + 3}"
        sensor.mkdir(parents=True)
        (sensor / "name").write_text("ina3221\n")
        (sensor / "in7_label").write_text("sum of shunt voltages\n")
        for channel, (label, (volts, amperes)) in enumerate(rails.items(), 1):
            (sensor / f"in{channel}_label").write_text(label + "\n")
            (sensor / f"in{channel}_input").write_text(f"{volts}\n")
            (sensor / f"curr{channel}_input").write_text(f"{amperes}\n")
    other = root / "hwmon0"
    other.mkdir(parents=True, exist_ok=True)
    (other / "name").write_text("nvme\n")
    (other / "in1_label").write_text("VDD_IN\n")
    return root


ORIN_NX = {"VDD_IN": (5000, 2000), "VDD_CPU_GPU_CV": (5000, 600), "VDD_SOC": (5000, 400)}
AGX_ORIN = {"VDD_GPU_SOC": (20_000, 500), "VDD_CPU_CV": (20_000, 250), "VIN_SYS_5V0": (5000, 1000)}


@pytest.mark.parametrize(
    ("sensors", "watts"), [([ORIN_NX], 10.0), ([AGX_ORIN, {"NC": (0, 0), "VDDQ_VDD2_1V8AO": (5000, 300)}], 20.0)]
)
@pytest.mark.parametrize("device", [CPU, CUDA])
def test_a_jetsons_module_is_the_rails_that_hold_each_other_once(tmp_path, clock, sensors, watts, device):
    meter = find_meter(device, tmp_path / "none", jetson(tmp_path / "hwmon", *sensors))
    assert sample_joules(meter, clock, 10, watts * 10) == pytest.approx(watts * 10)
    meter.close()
    assert "INA3221" in meter.source


def test_a_sensor_that_breaks_and_rails_of_an_unknown_board_are_not_judged(tmp_path, clock):
    root = jetson(tmp_path / "a", ORIN_NX)
    meter = find_meter(CPU, tmp_path, root)
    (root / "hwmon3" / "curr1_input").write_text("much\n")
    deadline = time.monotonic() + 60
    with pytest.raises(UserError, match="curr1_input"):  # noqa: PT012
        while time.monotonic() < deadline:
            meter.joules()
            time.sleep(0.01)
    meter.close()
    with pytest.raises(UserError, match="VDD_NEW"):
        find_meter(CPU, tmp_path, jetson(tmp_path / "b", {"VDD_NEW": (1, 1)}))


OPTIONS = Options(SamplingBudget(iterations=8), counted=False)


def test_breakdown_gives_the_energy_of_a_call_and_its_page_says_of_what(clock, monkeypatch):
    closed = []
    made = Meter("a sensor: the whole board", 0.001, lambda: clock.now * 50, lambda: closed.append(True))
    monkeypatch.setattr(energy, "find_meter", lambda device: made)
    subject: Any = Sleeper(clock)
    result, _ = breakdown(subject, ["inference"], OPTIONS)
    seen = result.measurements[0].energy
    assert seen is not None
    assert seen.watts == pytest.approx(50)
    assert seen.joules == pytest.approx(50 * 0.012, rel=0.02)
    assert closed == [True]
    again = BreakdownResult.model_validate_json(result.model_dump_json())
    assert again.measurements[0].energy == seen
    shown = markdown.render(kinds.document(again))
    assert "0.6" in shown
    assert " J (±" in shown
    assert "a sensor: the whole board; this includes idle power and other programs" in shown


def test_a_machine_without_sensors_loses_nothing_and_says_nothing_on_the_page(clock, monkeypatch):
    def missing(device: torch.device) -> Meter:
        raise UserError("no sensor")

    monkeypatch.setattr(energy, "find_meter", missing)
    subject: Any = Sleeper(clock)
    result, _ = breakdown(subject, ["inference"], OPTIONS)
    assert result.measurements[0].energy == Energy(not_judged="no sensor")
    assert " J (±" not in markdown.render(kinds.document(result))


def test_variants_that_take_turns_have_no_energy(clock, monkeypatch):
    monkeypatch.setattr(energy, "find_meter", lambda device: pytest.fail("no reading could be told from another"))
    subject: Any = Sleeper(clock)
    variants = [Variant("a"), Variant("b", (Planted("b"),))]
    for each in measure(subject, "inference", variants, OPTIONS).measurements:
        assert each.energy is None


def test_a_counter_is_read_no_more_often_than_it_moves(library, clock, monkeypatch):
    asked = []
    whole = library.nvmlDeviceGetTotalEnergyConsumption
    monkeypatch.setattr(
        library, "nvmlDeviceGetTotalEnergyConsumption", lambda card: (asked.append(card), whole(card))[1]
    )

    def step() -> None:
        clock.now += 0.01
        library.mj += 2_000

    assert rounds(CUDA, step, count=1000, warmup=7).joules == pytest.approx(2)
    assert len(asked) < 110
