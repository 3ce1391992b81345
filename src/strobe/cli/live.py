"""Progress on the terminal: what is being done, how far it is, how long it will take."""

from __future__ import annotations

import contextlib
import gc
import sys
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from strobe.cli.showing import quiet
from strobe.lerobot.quiet import shorten_warnings

if TYPE_CHECKING:
    from strobe.measure.sampling import Progress as Sampled
    from strobe.sweeps.execute import Job, Outcome


# Where stderr is no terminal: seconds from a stage's beginning to its first line, and from line to line.
FIRST_S, EVERY_S = 1.0, 30.0


@contextlib.contextmanager
def importing(*, told: bool = False) -> Iterator[None]:
    """Import inside what takes seconds: the command says that it lives, and objects are not collected meanwhile.

    Python looks at what was imported again and again for garbage, which is a sixth of the time, and nothing of it is.
    One look at the end counts it as old, so that none falls into what is measured afterwards.

    Args:
        told: whether the command has said already what it does.
    """
    shorten_warnings()
    if "lerobot.policies" in sys.modules or not gc.isenabled():
        yield
        return
    if not told:
        Console(stderr=True, quiet=quiet()).print("… importing torch and LeRobot", markup=False, highlight=False)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()


class Live:
    """A progress line on stderr, gone when the work is done; a plain line now and then where stderr is no terminal."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, quiet=quiet())
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._what = ""
        self._due = 0.0  # of `time.monotonic`: when a line says how far the stage is

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
            # Slow repaints: a progress bar must not take the time that it reports on.
            self._bar = Progress(*columns, console=self.console, transient=True, refresh_per_second=2)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def stage(self, what: str) -> None:
        self._what, self._due = what, time.monotonic() + FIRST_S
        if self._bar is None:
            self.console.print(f"… {what}", markup=False, highlight=False)
            return
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(what, total=None)

    def doing(self, what: str) -> None:
        """Like a stage, but nothing where stderr is no terminal: what came of it will be said."""
        if self._bar is not None:
            self.stage(what)

    def said(self, line: str) -> None:
        """A line that stays."""
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def progress(self, progress: Sampled) -> None:
        left = f", about {progress.seconds_left:.0f} s left" if progress.seconds_left is not None else ""
        if self._bar is None:
            if time.monotonic() >= self._due:
                self._due = time.monotonic() + EVERY_S
                many = f"{progress.done} of {progress.expected}" if progress.expected else progress.done
                self.said(f"… {self._what}: {many} {progress.unit}{left}")
            return
        if self._task is None:
            return
        self._bar.update(
            self._task,
            completed=progress.done,
            total=progress.expected,
            description=f"{self._what}: {progress.done} {progress.unit}{left}",
        )


class CellsLive:
    """The progress of a sweep: cells done, running and left, and the time that they will take.

    ``cells`` is None where what comes next depends on what has ended.
    """

    def __init__(self, cells: int | None, known: int) -> None:
        self.console = Console(stderr=True, quiet=quiet())
        self._cells, self._known = cells, known
        self._done, self._failed = 0, 0
        self._took: list[float] = []
        self._afresh: set[str] = set()
        self._running: dict[tuple[str, int], str] = {}
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def __enter__(self) -> Self:
        known = f", {self._known} there already" if self._known else ""
        if self._cells is not None:
            self._print(f"{self._cells} runs to go{known}")
        if self.console.is_terminal and self._cells != 0:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, console=self.console, transient=True, refresh_per_second=1)
            self._bar.start()
            self._task = self._bar.add_task("", total=self._cells)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def began(self, job: Job, node: str = "") -> None:
        self._running[job.key, job.repeat] = f"{job.label}{f' on {node}' if node else ''}"
        self._update("")

    def said(self, job: Job, line: str) -> None:
        self._update(line)

    def lost(self, job: Job, why: str) -> None:
        self._running.pop((job.key, job.repeat), None)
        self._print(f"lost  {job.label}: {why}; it will run again")

    def ended(self, job: Job, outcome: Outcome) -> None:
        """A cell has ended, whatever became of it."""
        self._running.pop((job.key, job.repeat), None)
        self._done += 1
        self._failed += outcome.status != "done"
        self._took.append(outcome.duration_s)
        if outcome.afresh and outcome.node not in self._afresh:
            self._afresh.add(outcome.node)
            where = f" on {outcome.node}" if outcome.node else ""
            self._print(f"each cell{where} is a process of its own, with imports of its own: {outcome.afresh}")
        reason = f": {outcome.reason}" if outcome.reason else ""
        self._print(f"{self._place()}  {job.label}  {outcome.status}, {outcome.duration_s:.0f} s{reason}")
        self._update("")

    def _place(self) -> str:
        return str(self._done) if self._cells is None else f"{self._done}/{self._cells}"

    def _update(self, line: str) -> None:
        if self._bar is None:
            return
        failed = f", {self._failed} failed" if self._failed else ""
        time_left = ""
        if self._took and self._cells is not None:
            left = self._cells - self._done
            seconds = left * sum(self._took) / len(self._took) / max(1, len(self._running))
            time_left = f", about {seconds / 60:.0f} min left" if seconds >= 90 else f", about {seconds:.0f} s left"
        running = "; ".join(self._running.values())
        said = f" ({line.removeprefix('… ')[:60]})" if line else ""
        self._bar.update(
            self._task,
            completed=self._done,
            description=f"{self._place()} cells{failed}{time_left}; {running}{said}",
        )

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False)
