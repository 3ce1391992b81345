"""strobe budget: how many denoising steps fit a target rate, and what has to become faster?

Reads measured runs and starts no new measurement. It says how many denoising steps are in time for --target-hz, fits
the line a + b × steps with its interval, and shows how short each part would have to become. For asynchronous execution
(Real-Time Chunking, RTC) it gives the delay in control ticks, the fewest actions to execute of each chunk, and the
observation age.

A RUN is the folder of a sweep over denoising steps, of a breakdown, a comparison or an optimization of a policy with
denoising steps, or a table (.csv) of latencies in milliseconds: steps,total,<part>,<part> …

Examples:
  strobe budget runs/sweep_breakdown_pi05 --target-hz 20
  strobe budget latencies.csv --target-hz 20 --control-hz 50 --output budget.html

More:
The sweep comes from: strobe sweep breakdown --policy.type=pi05 --grid policy.num_inference_steps=1,2,5,10

A target is reached if enough chunks are shown to be in time (--in-time, 95 % by default). A robot waits for each late
chunk, even if the median is short. Runs and sweeps contain each chunk's time; a table contains only medians.

With --output-dir the budget is saved as a run, and `strobe report` shows it again.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from strobe.budget import figures as measure
from strobe.budget.results import Budget, Latency
from strobe.core.cli.bounds import exclusive_minimum_bound, open_interval_bound, positional
from strobe.core.cli.flags import PageFlags
from strobe.core.cli.live import Live
from strobe.core.cli.runner import Command, Studied
from strobe.core.errors import UserError
from strobe.core.results.answer import Result
from strobe.core.results.measurement import Measurement, top_level
from strobe.core.runs import store
from strobe.core.untrusted import contents
from strobe.ladder.in_time import REQUIRED, judge_in_time
from strobe.ladder.results import Need, OptimizeResult, Try
from strobe.sweep.results import Cell, Sweep
from strobe.version import __version__

STEPS = ("num_inference_steps", "num_steps")  # settings of policies
TOTAL = "total"
AROUND = ("preprocessing", "postprocessing", "decode")  # parts that treatments of the whole policy do not touch
# What can be tried on a part, by words of its name: treatments as `strobe compare --variant` takes them.
ENGINE = "engine=openvino (CPU) or tensorrt (CUDA; engine.precision=fp8 too) with engine.part=…"
# TensorRT has not been tried on parts that a key-value cache goes through.
ENGINE_OF_CACHES = "engine=openvino (CPU) with engine.part=…"
NARROWER = "int8=weights, or fp8=dynamic (Hopper)"
TREATMENTS = {
    ("vision", "image"): ["cameras=batched", "precision=bf16 with precision.part=…, or --precision=auto",
                          "projections=fused", ENGINE, NARROWER, "fewer or smaller cameras"],
    ("prefix", "cache", "kv"): ["padding=trimmed", "prefix_tail=skipped", "projections=fused", "attention=sdpa",
                                "--precision=auto", ENGINE_OF_CACHES, NARROWER, "graph=chunk (CUDA)",
                                "a shorter prompt, fewer image tokens"],
    ("denois", "expert"): ["prefix_cache=static", "timesteps=precomputed", "masks=once", "graph=chunk or loop (CUDA)",
                           "compile with compile.part=model.denoise_step", ENGINE_OF_CACHES, NARROWER,
                           "fewer steps: policy.num_inference_steps=…"],
    ("guidance", "rtc"): ["guidance=closed form"],
    ("preprocess", "resize"): ["smaller images from the cameras", "preprocessing=device (not on a CPU)"],
}  # fmt: skip


@dataclass(frozen=True)
class Timed:
    """One latency, and the milliseconds of its chunks; none if only the median is known."""

    latency: Latency
    times: Sequence[float] = ()


def budget(runs: Sequence[Path], target_hz: float, control_hz: float, asked: float = REQUIRED) -> Budget:
    """Return the budget of ``runs``: run folders, sweeps over denoising steps, or tables (.csv).

    Args:
        asked: share of chunks that must be in time, 0 to 1.

    Raises:
        UserError: a path without latencies of chunks; a table without the columns it needs.
    """
    every: list[Timed] = []
    titles: list[str] = []
    tries: list[Try] = []
    notes: list[str] = []
    for path in runs:
        title, latencies, tried = _read_table(path) if path.suffix.lower() == ".csv" else _read_run(path)
        if not latencies:
            raise UserError(f"{path} has no inference with a known number of denoising steps: use a sweep over them")
        every += latencies
        tries += tried
        titles.append(title)
    target_ms = 1e3 / target_hz
    timed = _merge_repeats(every)
    for each in timed:
        each.latency.in_time = judge_in_time(each.times, target_ms, asked) if len(each.times) else None
    latencies = [each.latency for each in timed]
    if len(latencies) == 1:
        notes.append("One number of denoising steps gives no line. Measure several: strobe sweep breakdown … "
                     "--grid policy.num_inference_steps=1,2,5,10")  # fmt: skip
    repeated = measure.denoise_part(latencies[0])
    total = measure.line(TOTAL, [(latency.steps, latency.total_ms) for latency in latencies])
    steps = [(latency.steps, latency.parts[repeated]) for latency in latencies if repeated in latency.parts]
    judged = latencies[0]
    wanted = Need.list_needs(judged.parts, judged.total_ms, target_ms)
    for need in wanted:
        need.treatments = _part_outcomes(tries, need.part) or _applicable(need.part, judged.steps)
    return Budget(
        strobe_version=__version__,
        title=" and ".join(dict.fromkeys(titles)),
        target_hz=target_hz,
        control_hz=control_hz,
        asked=asked,
        latencies=latencies,
        total=total,
        denoise=measure.line(repeated, steps) if repeated and steps else None,
        most_steps=measure.most_steps(total, latencies, target_ms),
        judged=judged,
        needs=wanted,
        asynchrony=[measure.asynchrony(each.latency, control_hz, each.times, asked) for each in timed],
        notes=notes,
    )


def _part_outcomes(tries: Sequence[Try], part: str) -> list[str]:
    """Return the outcome of each treatment tried that applies to ``part``, in words; the last try of each counts."""
    whole = part not in AROUND
    last = {attempt.treatment: attempt for attempt in tries if part in attempt.parts or (whole and not attempt.parts)}
    return [f"{attempt.treatment}: {attempt.explanation}" for attempt in last.values()]


def _applicable(part: str, steps: int) -> list[str]:
    name = part.lower()
    ways = [what for words, tried in TREATMENTS.items() if any(w in name for w in words) for what in tried]
    return [what for what in ways if steps > 1 or not what.startswith("fewer steps")]


def _merge_repeats(timed: Sequence[Timed]) -> list[Timed]:
    by_steps: dict[int, list[Timed]] = {}
    for each in timed:
        by_steps.setdefault(each.latency.steps, []).append(each)
    middle = [sorted(many, key=lambda each: each.latency.total_ms)[(len(many) - 1) // 2] for many in by_steps.values()]
    return sorted(middle, key=lambda each: each.latency.steps)


def _read_run(path: Path) -> tuple[str, list[Timed], list[Try]]:
    answer = store.load_answer(path)
    if isinstance(answer, Sweep):
        folder = path if path.is_dir() else path.parent
        return answer.title, [timed for cell in answer.cells for timed in _time_cell(cell, folder)], []
    if isinstance(answer, OptimizeResult) and answer.ladder is not None:  # its rungs are other policies, and no line
        last = [m for m in answer.measurements if m.name == answer.ladder.chosen]
        timed = [each for m in last if (each := _time_measurement(m)) is not None]
        if answer.ladder.alone is not None:  # the chosen rung by itself, as a robot runs it
            timed = [Timed(each.latency, answer.ladder.alone.values) for each in timed]
        return answer.title, timed, answer.ladder.tries
    if isinstance(answer, Result):
        return answer.title, [each for m in answer.measurements if (each := _time_measurement(m)) is not None], []
    raise UserError(f"{path} has no latencies: use a breakdown, a comparison or a sweep over denoising steps")


def _time_measurement(m: Measurement) -> Timed | None:
    own = [value for name in STEPS if (value := m.traits.setting(name)) is not None]
    steps = own[-1] if own else m.traits.denoising_steps
    if m.phase != "inference" or not isinstance(steps, int) or isinstance(steps, bool):
        return None
    parts = {tuple(c.path): c.summary.median for c in m.components if not c.other}
    latency = Latency(steps=steps, total_ms=m.samples.summary.median, parts=top_level(parts), source=m.name)
    return Timed(latency, m.samples.values)


def _time_cell(cell: Cell, folder: Path) -> Iterator[Timed]:
    steps = next((cell.settings[key] for name in STEPS if (key := f"policy.{name}") in cell.settings), None)
    for row in cell.rows:
        if row.phase == "inference" and steps is not None and steps.isdecimal():
            parts = {tuple(part.path): part.ms for part in row.parts if not part.other}
            latency = Latency(
                steps=int(steps), total_ms=median(row.repeats), parts=top_level(parts), source=f"{steps} steps"
            )
            yield Timed(latency, _chunk_times(row.measurement, cell, folder))


def _chunk_times(name: str, cell: Cell, folder: Path) -> list[float]:
    values: list[float] = []
    for run in (run for run in cell.runs if run.status == "done"):
        try:
            answer = store.load_answer(folder / run.folder)
        except UserError:
            return []
        if isinstance(answer, Result):
            values += [value for m in answer.measurements if m.name == name for value in m.samples.values]
    return values


def _read_table(path: Path) -> tuple[str, list[Timed], list[Try]]:
    """Read a table with the columns 'steps', 'total' and one for each part, in milliseconds."""
    try:
        rows = list(csv.DictReader(contents(path).decode().splitlines()))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from None
    if not rows or not {"steps", TOTAL} <= {(name or "").strip() for name in rows[0]}:
        raise UserError(f"{path}: a table of latencies has the columns steps, total and one for each part, in ms")
    timed = []
    for number, row in enumerate(rows, start=2):
        try:
            figures = {(name or "").strip(): float(value) for name, value in row.items() if value not in (None, "")}
            steps, total = figures.pop("steps"), figures.pop(TOTAL)
            if steps < 1 or steps != int(steps) or not total > 0 or min(figures.values(), default=0.0) < 0:
                raise ValueError
        except (TypeError, ValueError, KeyError):
            raise UserError(f"{path}, line {number}: steps and milliseconds must be numbers above 0") from None
        source = f"{path.name}, line {number}"
        timed.append(Timed(Latency(steps=int(steps), total_ms=total, parts=figures, source=source)))
    return path.stem, timed, []


@dataclass
class BudgetConfig(PageFlags):
    """Arguments and flags of `strobe budget`."""

    # Folders of runs or sweeps, or tables (.csv).
    runs: list[Path] = field(default_factory=list, metadata=positional("RUN…"))
    # The target, in chunks per second.
    target_hz: float = field(default=20.0, metadata=exclusive_minimum_bound(0, finite=True))
    # The robot's control rate in Hz.
    control_hz: float = field(default=30.0, metadata=exclusive_minimum_bound(0, finite=True))
    # Share of chunks that must be ready within one period of the target.
    in_time: float = field(default=0.95, metadata=open_interval_bound(0, 1))


def study(config: BudgetConfig, live: Live) -> Studied:
    """Compute the budget of the runs. Raises UserError."""
    answer = budget(config.runs, config.target_hz, config.control_hz, config.in_time)
    return Studied(answer, vars(config), config.output_dir, page=config.output)


run = Command("budget", __doc__, BudgetConfig, None, study, bar=False)
