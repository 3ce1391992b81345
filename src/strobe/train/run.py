"""Train: run a real ``lerobot-train`` and watch what its steps wait for."""

from __future__ import annotations

import gc
import os
import shutil
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError
from typing_extensions import Self

from strobe.core.errors import UserError
from strobe.core.measure import machine
from strobe.core.measure.compilations import summarize_compilation
from strobe.core.measure.components import Iteration, components, spans
from strobe.core.measure.memory import kernel_use, peak_process, require_shared_memory
from strobe.core.measure.statistics import describe, find_warmup, summarise
from strobe.core.results.data import Samples
from strobe.core.results.measurement import MeasuredPhase, Measurement, Memory, Span
from strobe.core.results.subject import Ceiling, SubjectInfo
from strobe.core.results.traits import LoaderTraits, Traits
from strobe.core.runs import store
from strobe.core.timeline.timeline import Section
from strobe.lerobot.datasets import finder
from strobe.lerobot.flags.lerobot_flags import patched_arguments
from strobe.lerobot.policies import lerobot_policies
from strobe.lerobot.refusals import make_refusal, outside_error_line, ran_out
from strobe.loops.header import make_subject
from strobe.train.results import Rank, TrainResult
from strobe.train.summary import (
    WatchedTraining,
    step_kernel_use,
    training_mfu,
    training_record,
    training_summary,
    worker_facts,
    worker_names,
)
from strobe.train.utilisation import peak
from strobe.train.watch import TrainingWatch, loop
from strobe.version import __version__

STEP, LOADING = "training step", "loading a batch"
PATIENCE_S = 60.0  # time that the first rank waits for the others, once it has ended


@dataclass(frozen=True)
class WatchOptions:
    """How to watch a training.

    Args:
        depth: levels of the policy's parts.
        most_steps: steps that are recorded; the run goes on without Strobe after them.
        planned_steps: of the training that is planned, for its hours.
        serialised: synchronise the device around every part; see `Timeline`.
        profiler: calls the function that it is given, which trains, under a profiler of Python.
    """

    depth: int = 1
    most_steps: int = 1000
    planned_steps: int = 100_000
    serialised: bool = False
    profiler: Callable[[Callable[[], None]], None] | None = None


@dataclass
class Trained:
    """The result, without findings, and the sections of its last steps.

    ``mistake``: the dataset ended the run.
    """

    result: TrainResult
    sections: list[Section] = field(default_factory=list)
    mistake: bool = False


def train(
    arguments: Sequence[str],
    options: WatchOptions,
    progress: Callable[[int, int], None] | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> Trained:
    """Run ``lerobot-train`` with ``arguments`` in this process, and watch it.

    A run that fails, or that Ctrl-C ends, keeps what was recorded.

    Args:
        report: given what a glance finds wrong with the dataset, line by line, before the first step.

    Raises:
        UserError: the run ended before its first step was done, with what ended it; a broken dataset is named.
        KeyboardInterrupt: it was interrupted before that.
    """
    watch = TrainingWatch(options.depth, options.most_steps, options.serialised, progress)
    watch.used = kernel_use
    wrong: list[str] = []

    def check_before_loading(_: object) -> None:
        _require_memory(watch)
        given = watch.config.dataset
        if not given.streaming:
            found = finder.search(
                watch.dataset.root, given.repo_id, given.episodes, tolerance_s=watch.config.tolerance_s
            )
            wrong.extend(text for _, text in found.sentences)
        for fault in wrong:
            report(f"the dataset at {watch.dataset.root}: {fault}")

    watch.before_loading = check_before_loading
    ended: BaseException | None = None
    others = None
    with ExitStack() as stack:
        held = stack.enter_context(peak_process())
        stack.enter_context(patched_arguments(arguments))
        try:
            with watch:
                (options.profiler or (lambda run: run()))(loop.main)
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            ended, others = error, _fault_of_others(error)  # while its frames still hold what it requested
            traceback.clear_frames(error.__traceback__)  # they hold the workers, which report when they end
    gc.collect()
    if watch.timeline is not None:
        watch.timeline.stop()
    broken = _broken_dataset(ended, watch) if ended is not None else None
    reason = broken or (_reason(ended, others) if ended is not None else None)
    if watch.timeline is None or watch.steps < 1:
        if isinstance(ended, KeyboardInterrupt):
            raise ended
        raise UserError(reason or "the run ended before its first step was done: nothing to show") from ended
    sections = watch.timeline.sections()
    result = make_answer(training_record(watch, sections), options.planned_steps, held.bytes, ended, reason)
    result.caveats += [
        f"the dataset at {watch.dataset.root}: {fault}" for fault in wrong if fault not in (reason or "")
    ]
    return Trained(result, sections, bool(broken))


def _require_memory(watch: TrainingWatch) -> None:
    config = watch.config
    if not config.dataset.streaming:
        require_shared_memory(watch.dataset, config.batch_size, config.num_workers, config.prefetch_factor)
    elif getattr(watch.dataset, "num_shards", 1) < 1:  # LeRobot 0.6.1 makes as many as there are workers
        raise UserError("--dataset.streaming=true with --num_workers=0: nothing is read; set --num_workers=1")


def _fault_of_others(error: BaseException) -> str | None:
    """Return in a line the fault of a missing package, the Hub or the policy's own code."""
    if isinstance(error, UserError | KeyboardInterrupt | SystemExit) or ran_out(error):
        return None
    return str(make_refusal(error, "")) if isinstance(error, ImportError) else outside_error_line(error)


def _broken_dataset(error: BaseException, watch: TrainingWatch) -> str | None:
    """Return in a line what is wrong with the dataset, if ``error`` comes of reading it."""
    config = watch.config
    if config is None or isinstance(error, UserError | KeyboardInterrupt | SystemExit) or ran_out(error):
        return None
    given = config.dataset
    root = watch.dataset.root if watch.dataset is not None else given.root
    broken = [*watch.broken, *(worker["broken"] for worker in worker_facts(watch) if "broken" in worker)]
    if root is None or given.streaming or not (broken or _while_reading(error)):
        return None
    about = int(broken[0]["episode"]) if broken else None
    fault = finder.stopping(root, given.repo_id, given.episodes, tolerance_s=config.tolerance_s, about=about)
    if fault or not broken:
        return fault
    file = Path(str(broken[0]["file"]))
    shown = file.relative_to(root) if file.is_relative_to(root) else file
    # With FFmpeg 5.1 torchcodec does not find the last frames of some files that PyAV reads whole.
    backend = str(given.video_backend)
    way = "try --dataset.video_backend=pyav, or " if shown.suffix == ".mp4" and backend != "pyav" else ""
    decoder = f" by {backend}" if way else ""
    return (
        f"the dataset at {root}: episode {about} cannot be read{decoder}: {shown}: {broken[0]['reason']}; Strobe found "
        f"no fault in its files: {way}leave it out (--dataset.episodes)"
    )


def _while_reading(error: BaseException) -> bool:
    names = [str(frame.f_globals.get("__name__", "")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(name.startswith(("lerobot.datasets", "torch.utils.data", "datasets.")) for name in names)


def _reason(error: BaseException, others: str | None) -> str:
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if others:
        return f"lerobot-train failed: {others}"[:400]
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"lerobot-train failed: {type(error).__name__}: {lines[-1] if lines else 'it says nothing more'}"[:400]


def make_answer(
    recorded: WatchedTraining, planned_steps: int, peak_process: int, ended: BaseException | None, reason: str | None
) -> TrainResult:
    """Return the answer, without findings.

    Args:
        planned_steps: of the training that is planned, for its hours.
        peak_process: the most memory that the process held, in bytes.
        ended: the exception that ended the run early, with its ``reason`` in a line; None if none did.
    """
    watch, steps, batches = recorded.watch, recorded.steps, recorded.batches
    config, info, described = watch.config, _info(watch), machine.describe(watch.device)
    described.ceiling = Ceiling() if ended is not None else peak(watch.counted, watch.device)
    training = training_summary(recorded, planned_steps, reason)
    training.mfu = training_mfu(recorded, described.ceiling)
    result = TrainResult(
        strobe_version=__version__,
        title=f"{info.name}: where {len(steps):,} steps of lerobot-train spend their time",
        subject=info,
        machine=described,
        status="complete" if ended is None else "interrupted" if isinstance(ended, KeyboardInterrupt) else "failed",
        training=training,
        measurements=[_step(recorded, info, peak_process)],
    )
    if batches and config.num_workers:
        warm = find_warmup([batch.ms for batch in batches])
        result.measurements.append(_measurement(LOADING, "loading", batches, batches[warm:]))
    if watch.steps < config.steps and ended is None:
        result.notes.append(f"{watch.steps:,} of {config.steps:,} steps were recorded; the others ran without Strobe")
    if recorded.warmup < watch.counted.warmup:
        result.caveats.append("the run ended with the step whose FLOP were counted: its times are too long")
    return result


def _step(recorded: WatchedTraining, info: SubjectInfo, peak_process: int) -> Measurement:
    watch, steady = recorded.watch, recorded.steady
    config = watch.config
    step = _measurement(STEP, "training step", recorded.steps, steady)
    step.memory = Memory(weights=info.weight_bytes, peak_process=peak_process, peak_device=watch.peak_device)
    step.memory.kernel_ms, step.memory.page_faults = step_kernel_use(recorded)
    step.compilation = summarize_compilation(watch.compiles, step.samples.warmup)
    loader = LoaderTraits(workers=config.num_workers, video_backend=config.dataset.video_backend)
    if config.num_workers:
        loader.prefetched_batches = config.prefetch_factor
        loader.start_method = config.dataloader_multiprocessing_context
    every = list(watch.policy.parameters()) if watch.policy is not None else []
    step.traits = Traits(
        device=str(watch.device),
        batch_size=config.batch_size,
        loader=loader,
        trained_share=sum(p.numel() for p in every if p.requires_grad) / max(1, sum(p.numel() for p in every)),
    )
    # What earlier runs of this process could not see is none of this one's.
    lost = {f"worker {worker['worker']}" for worker in worker_facts(watch)}
    unseen = {} if watch.timeline is None else watch.timeline.unseen
    step.unseen = {name: why for name, why in unseen.items() if name in watch.parts or name in lost}
    if config.num_workers and step.clock == "host":
        middle = min(steady, key=lambda run: abs(run.ms - step.samples.summary.median))
        step.spans += _worker_spans(middle, recorded.batches, worker_names(watch))
    if watch.serialised:
        step.notes.append("serialised: the device was synchronised around every part, nothing overlapped")
    return step


def _measurement(
    name: str, phase: MeasuredPhase, runs: Sequence[Iteration], steady: Sequence[Iteration]
) -> Measurement:
    values = [run.ms for run in steady]
    summary = summarise(values)
    return Measurement(
        name=name,
        phase=phase,
        clock="host" if runs[0].whole.device_ms is None else "device",
        samples=Samples(
            warmup=[run.ms for run in runs[: len(runs) - len(steady)]],
            values=values,
            summary=summary,
            notes=describe(values) if phase == "training step" else [],
        ),
        components=components(steady),
        spans=spans(min(steady, key=lambda run: abs(run.ms - summary.median))),
    )


def _worker_spans(run: Iteration, batches: Sequence[Iteration], names: Mapping[str, str]) -> list[Span]:
    start, end = run.whole.start_ns, run.whole.end_ns
    shown = []
    for batch in batches:
        for part in (batch.whole, *batch.parts):
            begin, until = max(part.start_ns, start), min(part.end_ns, end)
            if begin < until and part.depth <= 2:
                span = Span(
                    name=part.name,
                    start_ms=(begin - start) / 1e6,
                    duration_ms=(until - begin) / 1e6,
                    depth=part.depth,
                    thread=names.get(part.thread, part.thread),
                )
                shown.append(span)
    return shown


def _info(watch: TrainingWatch) -> SubjectInfo:
    policy, config, dataset = watch.policy, watch.config.trainable_config, watch.dataset
    assert policy is not None
    path = config.pretrained_path
    frames = f"{dataset.num_frames:,} frames in {dataset.num_episodes:,} episodes"
    return make_subject(
        config.type,
        "random weights" if path is None else Path(str(path)).name,
        f"the dataset {watch.config.dataset.repo_id}, {frames}",
        **lerobot_policies.count(policy),
    )


@dataclass
class Meeting:
    """Where the ``processes`` of one training meet: each leaves what it recorded, and the first gathers it.

    All of them see ``folder``; ``rank`` is this one.
    """

    folder: Path
    rank: int
    processes: int
    patience_s: float = PATIENCE_S

    @classmethod
    def from_environment(cls, root: Path) -> Self | None:
        """The meeting that torchrun's or accelerate's variables describe; None if this process trains alone."""
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        if processes < 2:
            return None
        # The same for all processes of a launch, and no other's: two launches at once have two ports.
        name = f".ranks-{os.environ.get('MASTER_ADDR', 'here')}-{os.environ.get('MASTER_PORT', '0')}"
        meeting = cls(root / name, int(os.environ.get("RANK", "0")), processes)
        meeting._file(meeting.rank).unlink(missing_ok=True)  # of an earlier launch
        return meeting

    def hand_over(self, own: Rank) -> list[Rank] | None:
        """Leave ``own``. Returns those of all processes that came, to the first process; None to the others."""
        self.folder.mkdir(parents=True, exist_ok=True)
        store.replace(self._file(self.rank), own.model_dump_json().encode())
        if self.rank:
            return None
        end = time.monotonic() + self.patience_s
        while len(self._present()) < self.processes and time.monotonic() < end:
            time.sleep(0.1)
        present = self._present()
        shutil.rmtree(self.folder, ignore_errors=True)
        return sorted(present, key=lambda rank: rank.rank)

    def missing(self, met: Sequence[Rank]) -> list[str]:
        """A note on the ranks that did not come."""
        absent = sorted(set(range(self.processes)) - {rank.rank for rank in met})
        return [f"nothing came from rank {', '.join(map(str, absent))}: it ended early or sees other files"] * bool(
            absent
        )

    def _file(self, rank: int) -> Path:
        return self.folder / f"rank-{rank}.json"

    def _present(self) -> list[Rank]:
        present = []
        for rank in range(self.processes):
            try:
                present.append(Rank.model_validate_json(self._file(rank).read_bytes()))
            except (OSError, ValidationError):
                continue
        return present
