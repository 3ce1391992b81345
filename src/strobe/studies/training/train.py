"""Train: run a real ``lerobot-train`` and watch what its steps wait for."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from strobe.errors import UserError
from strobe.measure.kernel import kernel_use
from strobe.measure.memory import peak_process
from strobe.results.answer import TrainResult
from strobe.studies.training.answer import STEP, answer_of
from strobe.studies.training.batches import worker_facts
from strobe.subjects import training_loop as loop
from strobe.subjects.dataset_faults import broken_table, broken_video, require_shared_memory
from strobe.subjects.refusals import of_others, ran_out, refused
from strobe.subjects.train_config import lent
from strobe.timeline.timeline import Section

__all__ = ["STEP", "Trained", "WatchOptions", "train"]


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
    """The result, without findings, and the sections of its last steps."""

    result: TrainResult
    sections: list[Section] = field(default_factory=list)


def train(
    arguments: Sequence[str], options: WatchOptions, progress: Callable[[int, int], None] | None = None
) -> Trained:
    """Run ``lerobot-train`` with ``arguments`` in this process, and watch it.

    A run that fails, or that Ctrl-C ends, keeps what was recorded.

    Raises:
        UserError: the run ended before its second step, with what ended it; a broken dataset is named.
        KeyboardInterrupt: it was interrupted before its second step.
    """
    watch = loop.Watch(options.depth, options.most_steps, options.serialised, progress)
    watch.used = kernel_use
    watch.before_loading = lambda _: _require_memory(watch)
    ended: BaseException | None = None
    told = ""
    with ExitStack() as stack:
        held = stack.enter_context(peak_process())
        stack.enter_context(lent(arguments))
        try:
            with watch:
                (options.profiler or _plainly)(loop.loop.main)
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            ended, told = error, _of_others(error)  # while its frames still hold what was asked for
            traceback.clear_frames(error.__traceback__)  # they hold the workers, which report when they end
    gc.collect()
    if watch.timeline is not None:
        watch.timeline.stop()
    reason = _reason(ended, watch, told) if ended is not None else ""
    if watch.timeline is None or watch.steps < 2:
        if isinstance(ended, KeyboardInterrupt):
            raise ended
        raise UserError(reason or "the run ended before its second step: nothing to show") from ended
    sections = watch.timeline.sections()
    return Trained(answer_of(watch, sections, options.planned_steps, held.bytes, ended, reason), sections)


def _plainly(run: Callable[[], None]) -> None:
    run()


def _require_memory(watch: loop.Watch) -> None:
    config = watch.config
    if not config.dataset.streaming:
        require_shared_memory(watch.dataset, config.batch_size, config.num_workers, config.prefetch_factor)


def _of_others(error: BaseException) -> str:
    """Return in a line the fault of a missing package, the Hub or the policy's own code; '' for none of them."""
    if isinstance(error, UserError | KeyboardInterrupt | SystemExit) or ran_out(error):
        return ""
    return str(refused(error, "")) if isinstance(error, ImportError) else of_others(error)


def _reason(error: BaseException, watch: loop.Watch, told: str) -> str:
    """The reason why the run ended early, in a line; ``told``: what others did wrong."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    root = Path(watch.config.dataset.root) if watch.config is not None and watch.config.dataset.root else None
    if watch.dataset is not None:
        root = Path(watch.dataset.root)
    broken = [*watch.broken, *(one["broken"] for one in worker_facts(watch) if "broken" in one)]
    if broken and root is not None:
        return broken_video(broken[0], root)
    if watch.timeline is None and root is not None and (table := broken_table(root)) is not None:
        return f"the dataset {root} is broken: {table}"
    if told:
        return f"lerobot-train failed: {told}"[:400]
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"lerobot-train failed: {type(error).__name__}: {lines[-1] if lines else 'it says nothing more'}"[:400]
