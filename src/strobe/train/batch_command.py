"""strobe batch: which is the largest training batch that fits, and from which size on is a larger one no faster?

Each size is a full training step (forward, backward, clipping, optimizer) in a process of its own. A size that runs out
of memory is a row of the table, and the search goes on. Two small batches predict the memory of larger ones. The search
doubles the sizes, tries the predicted size, and bisects the rest, up to --largest.

The table shows predicted and measured memory, milliseconds per step and samples per second. The limit is the device's
memory; on the CPU it is the free memory, or --memory_gib. It takes some seconds per size.

Examples:
  strobe batch --policy.type=act --dataset.root=DATASET
  strobe batch --policy.type=diffusion --policy.device=cuda --policy.use_amp=true

More:
Each size is saved when it ends: the same command continues an interrupted search. The free memory is that of the
machine, the container or the job. The other flags are those of `strobe breakdown`.
"""

from __future__ import annotations

import contextlib
import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from statistics import linear_regression

from strobe.core.cli.bounds import exclusive_minimum_bound, minimum_bound, open_interval_bound
from strobe.core.cli.live import Live, importing
from strobe.core.cli.parse import format_argument, pairs, parse
from strobe.core.cli.runner import Command, Studied
from strobe.core.errors import UserError
from strobe.core.measure.memory import available_bytes
from strobe.core.measure.verdicts import pairwise_level, unpaired_verdict
from strobe.core.processes.command import CommandLimits
from strobe.core.processes.fork_server import Server
from strobe.core.results.numerals import significant
from strobe.core.runs import store
from strobe.sweep import grid
from strobe.sweep import table as sweeps
from strobe.sweep.execute import Job, Outcome, execute
from strobe.sweep.results import Best, Cell, Sweep
from strobe.sweep.run import CellsLive, lock_sweep, sweep_name
from strobe.sweep.table import execution_folder, read_cell_outcome

FIRST = (2, 8)  # the two small batches: not 1, which takes other ways through some policies


@dataclass
class Search:
    """The largest batch that fits: which size to try next, from what the sizes tried so far took.

    Memory grows as a + b · batch, so two small batches predict where it ends. Sizes are doubled as far as that line
    allows, the size that it predicts is tried itself, and the range between the largest that fitted and the
    smallest that did not is halved.

    Args:
        most: the largest size that may be tried; the smallest is 1.
        within: the gap, relative to the largest that fits, at which the search ends.
        limit: the bytes that there are, where that is known.
    """

    most: int
    within: float = 0.05
    limit: int | None = None
    fitted: dict[int, int | None] = field(default_factory=dict)  # size → bytes at its peak
    failed: set[int] = field(default_factory=set)

    def record_attempt(self, size: int, fits: bool, memory: int | None = None) -> None:
        """Record whether ``size`` fitted, and the bytes at its peak where they are known."""
        if fits:
            self.fitted[size] = memory
        else:
            self.failed.add(size)

    @property
    def largest(self) -> int | None:
        """The largest size that fitted."""
        return max(self.fitted, default=None)

    def next(self) -> int | None:
        """The size to try next; None if the answer is known."""
        good, bad = self.largest or 0, min(self.failed, default=self.most + 1)
        small = [size for size in FIRST if good < size < bad and not self.fitted.keys() & {size}]
        if small and len(self.fitted) < len(FIRST):
            return small[0]
        gap = max(1, int(self.within * good))
        if good >= self.most or (self.failed and bad - good <= gap):
            return None
        predicted = self._predicted_limit()
        if predicted is not None and good < predicted < bad and (self.failed or 2 * good > predicted):
            return predicted
        if self.failed:
            return (good + bad) // 2
        if predicted is not None and good - gap <= predicted <= good:  # show that the next does not fit
            return min(good + gap, self.most)
        return min(max(2 * good, 1), self.most)

    def predict(self, size: int) -> int | None:
        """The bytes that ``size`` will take, by the line through the sizes that fitted."""
        line = self._line()
        return None if line is None else round(line[0] + line[1] * size)

    def _predicted_limit(self) -> int | None:
        line = self._line()
        if line is None or self.limit is None or line[1] < 1:  # less than a byte a sample: no line to go by
            return None
        return max(0, int((self.limit - line[0]) / line[1]))

    def _line(self) -> tuple[float, float] | None:
        known = [(size, memory) for size, memory in self.fitted.items() if memory is not None]
        if len(known) < 2:
            return None
        slope, start = linear_regression([size for size, _ in known], [memory for _, memory in known])
        return start, slope


def knee(sizes: Sequence[tuple[int, bool]]) -> int | None:
    """Return the smallest size from which on larger batches bring next to nothing: all of them nearly reach the best.

    ``sizes``: (size, whether it is shown to be slower than the best by next to nothing). Slower sizes at the upper end
    (memory that swaps, a worse kernel) do not count. None if no size is left.
    """
    ranked = sorted(sizes, reverse=True)
    while ranked and not ranked[0][1]:
        ranked.pop(0)
    smallest = None
    for size, as_fast in ranked:
        if not as_fast:
            break
        smallest = size
    return smallest


STUDY = "breakdown"
PHASE = "--phases=[training step]"
LENGTH = "--interval=0.03"  # a third of `FLAT`, and as long as the fewest steps that can be judged
REFUSED = {
    "--batch_size": "the search chooses it",
    "--phases": "it always measures a training step",
    "--output_dir": "the search's folder is --sweep_dir",
    "--recipe": "recipes are for inference, and it measures a training step",
    "--skip_counting": "the search needs the memory",
}
FLAT = 0.10  # share of throughput: a batch from which on larger ones are shown to gain no more is large enough
DID_NOT = ("out of memory", "timed out")


@dataclass
class BatchConfig:
    """Flags of `strobe batch`."""

    # The largest size that the search tries.
    largest: int = field(default=1024, metadata=minimum_bound(1))
    # The search stops when the gap between the largest size that fits and the smallest that does not is below this
    # fraction of the size that fits.
    within: float = field(default=0.05, metadata=open_interval_bound(0, 1))
    # Resident memory that a size may take, in GiB (default: 90 % of the free memory when the search starts).
    memory_gib: float | None = field(default=None, metadata=exclusive_minimum_bound(0))
    # Seconds that a size may take. A size that takes longer counts as one that does not fit.
    timeout: float = field(default=600.0, metadata=minimum_bound(1))
    # Try sizes again that did not fit.
    retry: bool = False
    # The search's folder (default: runs/sweep_batch_POLICY).
    sweep_dir: Path | None = None
    flags: list[str] = field(init=False, default_factory=list)  # the breakdown's


_OWN = tuple(item.name for item in fields(BatchConfig) if item.init)


def read(argv: Sequence[str]) -> BatchConfig:
    """Return the search's flags, and the breakdown's, checked. Raises UserError."""
    from strobe.commands import breakdown
    from strobe.policy_cli.subject_flags import check_values

    own, rest = [], []
    for name, value in pairs(argv):
        (own if name.removeprefix("--") in _OWN else rest).append(format_argument(name, value))
    config = parse(BatchConfig, own)
    named = {flag.split("=", 1)[0] for flag in rest}
    for flag, why in REFUSED.items():
        if flag in named:
            raise UserError(f"{flag} does not fit here: {why}")
    config.flags = [*rest, PHASE, *([] if {"--seconds", "--iterations", "--interval"} & named else [LENGTH])]
    checked = breakdown.read(config.flags).subject
    with importing():
        check_values(checked)
    return config


def study(config: BatchConfig, live: Live) -> Studied:
    """Try sizes, in the search's folder. Raises UserError; KeyboardInterrupt if no size has ended by then."""
    root = config.sweep_dir or Path("runs") / sweep_name("batch", [_cell(config.flags, 1)])
    with contextlib.ExitStack() as stack:
        stack.enter_context(lock_sweep(root))
        search, predicted, ended = look(config, root)
        sweep = answer(config, search, predicted, root)
        sweep.status = "complete" if ended else "interrupted"

        def continue_hint(_: Path | None) -> Iterator[str]:
            if not ended:
                yield f"stopped before the answer; continue with the same command:\n  {shlex.join(sweep.command)}"

        options = {"batch": config, "flags": config.flags}
        held = stack.pop_all()
        return Studied(sweep, options, None, None, folder=root, after=continue_hint, held=held)


def look(config: BatchConfig, root: Path) -> tuple[Search, dict[int, int], bool]:
    """Try sizes until the answer is known. Return the search, size → predicted bytes, and whether it was completed.

    Raises UserError where a size failed for another reason than memory or time.
    """
    allowed = int(config.memory_gib * 2**30) if config.memory_gib is not None else int(0.9 * available_bytes())
    limits = CommandLimits(config.timeout, allowed)
    search = Search(config.largest, config.within, allowed)
    predicted: dict[int, int] = {}
    with CellsLive(None, 0) as live, Server() as server:
        try:
            while (size := search.next()) is not None:
                if (bytes_ := search.predict(size)) is not None:
                    predicted[size] = bytes_
                cell = _cell(config.flags, size)
                folder = execution_folder(root, cell, 1)
                outcome = read_cell_outcome(root, cell, 1)
                if outcome is None or (config.retry and outcome.status != "done"):
                    memory = "" if bytes_ is None else f" ({bytes_ / 2**30:.2f} GiB predicted)"
                    job = Job(cell.key, 1, STUDY, cell.argv, f"batch_size={size}{memory}", folder, limits)
                    live.began(job)
                    outcome = execute(job, lambda line, job=job: live.say(job, line), server=server)
                    live.report_ended(job, outcome)
                _record(search, size, outcome, folder)
        except KeyboardInterrupt:
            return search, predicted, False
    return search, predicted, True


def answer(config: BatchConfig, search: Search, predicted: dict[int, int], root: Path) -> Sweep:
    """Return the table of the sizes tried, with the answer in sentences."""
    sizes = sorted([*search.fitted, *search.failed])
    if not sizes:
        raise KeyboardInterrupt
    cells = [_cell(config.flags, size) for size in sizes]
    sweep = sweeps.answer(STUDY, cells, 1, {}, root)
    sweep.title = f"{sweep.title.split(':')[0]}: the largest batch of a training step"
    for cell in sweep.cells:
        cell.predicted_bytes = predicted.get(_size(cell))
    results = {size: store.load(execution_folder(root, _cell(config.flags, size), 1)) for size in search.fitted}
    samples = {size: result.measurements[0].samples.values for size, result in results.items()}
    sweep.best = [judge_largest(config, search, sweep), *_flat(sweep, samples)]
    if bad := [size for size, result in results.items() if result.measurements[0].losses_not_finite]:
        sizes_shown = f"a batch of {', '.join(map(str, sorted(bad)))}"
        sentence = f"The loss is infinite or not a number at {sizes_shown}: no rate is given."
        sweep.best = [sweep.best[0].model_copy(update={"details": [sentence]})]
    sweep.findings = [finding for finding in sweep.findings if finding.rule not in ("cells-failed", "throughput-flat")]
    return sweep


def judge_largest(config: BatchConfig, search: Search, sweep: Sweep) -> Best:
    """Return the largest size that fitted, as far as the search knows it, in words."""
    if search.largest is None:
        smallest = min(sweep.cells, key=_size)
        return Best(
            asked="largest batch",
            key=None,
            sentence="No batch fits.",
            details=[f"A batch of {_size(smallest)} {_failure_reason(smallest)}."],
        )
    cell = next(cell for cell in sweep.cells if _size(cell) == search.largest)
    row = cell.rows[0]
    memory = f", {row.memory_bytes / 2**30:.2f} GiB at its peak" if row.memory_bytes else ""
    figures = f"{significant(row.ms.median)} ms per step, {significant(row.throughput)} samples/s{memory}"
    failed = min((cell for cell in sweep.cells if cell.status in DID_NOT), key=_size, default=None)
    sentence, more = f"The largest batch that fits is {search.largest}.", ""
    if failed is not None:
        more = f"; a batch of {_size(failed)} {_failure_reason(failed)}"
        if search.next() is not None:
            sentence = f"A batch of {search.largest} fits; the search was stopped between it and {_size(failed)}."
    else:
        sentence = f"A batch of {search.largest} fits; larger batches were not tried."
        more = f"; {config.largest} was the limit of the search" if search.largest >= config.largest else ""
    details = [f"{figures}{more}."]
    if not more or failed is None:
        details.append(f"Next: strobe batch … --largest={4 * search.largest}")
    return Best(
        asked="largest batch",
        key=cell.key,
        settings=cell.settings,
        measurement=row.measurement,
        sentence=sentence,
        details=details,
    )


def _flat(sweep: Sweep, samples: dict[int, list[float]]) -> list[Best]:
    """Return the size from which on a larger batch is shown to gain less than `FLAT`; nothing if no size fitted.

    Args:
        samples: size → milliseconds of a step, raw.
    """
    ran = {_size(cell): cell for cell in sweep.cells if cell.rows}
    if not ran:
        return []
    top = max(ran, key=lambda size: ran[size].rows[0].throughput)
    each = {size: [value / size for value in values] for size, values in samples.items()}
    level = pairwise_level(len(ran))
    ends = {size: unpaired_verdict(each[top], each[size], level=level).interval for size in ran}
    # What is not known to gain less may gain more: too few samples for an interval are not the same as no faster.
    most = {size: end.high - 1 if end.level >= level else math.inf for size, end in ends.items()} | {top: 0.0}
    start = knee([(size, most[size] <= FLAT) for size in ran])
    rates = {size: f"{significant(cell.rows[0].throughput, 4)} samples/s" for size, cell in ran.items()}
    if start is None or start >= top:
        sentence = f"Throughput is best at a batch of {top}: {rates[top]}."
    else:
        gain = max(most[size] for size in ran if start <= size <= top)
        sentence = (
            f"From a batch of {start} on, a larger one gains at most {100 * gain:.2g} %: {rates[start]} there, "
            f"{rates[top]} at {top}. Level: 95 % for all sizes together, if runs of one size differ by at most 2 %."
        )
    cell = ran[start or top]
    return [Best(asked="throughput", key=cell.key, settings=cell.settings, sentence=sentence)]


def _record(search: Search, size: int, outcome: Outcome, folder: Path) -> None:
    if outcome.status in DID_NOT:
        search.record_attempt(size, False)
        return
    if outcome.status != "done":
        log = f" (see {folder})" if folder.is_dir() else ""  # one that could not be kept has no folder
        raise UserError(f"batch_size={size}: {outcome.status}: {outcome.reason}{log}")
    result = store.load(folder)
    memory = result.measurements[0].memory if result.measurements else None
    if memory is not None and memory.peak_device is not None and result.machine.device_memory_bytes:
        search.limit = result.machine.device_memory_bytes
    search.record_attempt(size, True, (memory.peak_device or memory.peak_process) if memory is not None else None)


def _cell(flags: Sequence[str], size: int) -> grid.Cell:
    return grid.cells(STUDY, flags, {"batch_size": [str(size)]})[0]


def _size(cell: Cell) -> int:
    return int(cell.settings["batch_size"])


def _failure_reason(cell: Cell) -> str:
    return f"{'ran out of memory' if cell.status == 'out of memory' else cell.status} ({cell.reason})"


run = Command("batch", __doc__, BatchConfig, read, study, bar=False, bare=True, heavy="timed")
