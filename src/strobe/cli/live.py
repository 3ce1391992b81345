"""Progress on the terminal: what is being done, how far it is, how long it will take."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from strobe.measure.sampling import Progress as Sampled


class Live:
    """A progress line on stderr, gone when the work is done; plain lines where stderr is no terminal."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._what = ""

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
        self._what = what
        if self._bar is None:
            self.console.print(f"… {what}", markup=False, highlight=False)
            return
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(what, total=None)

    def progress(self, progress: Sampled) -> None:
        if self._bar is None or self._task is None:
            return
        left = f", about {progress.seconds_left:.0f} s left" if progress.seconds_left is not None else ""
        self._bar.update(
            self._task,
            completed=progress.done,
            total=progress.expected,
            description=f"{self._what}: {progress.done} rounds{left}",
        )
