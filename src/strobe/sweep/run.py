"""The progress of a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.progress import TaskID
from typing_extensions import Self

from strobe.core.cli.live import Bar

if TYPE_CHECKING:
    from strobe.sweep.execute import Job, Outcome


class CellsLive(Bar):
    """The progress of a sweep: cells done, running and left, and the time that they will take.

    ``cells`` is None if what comes next depends on what has ended.
    """

    def __init__(self, cells: int | None, known: int) -> None:
        super().__init__(1)
        self._cells, self._known = cells, known
        self._done, self._failed = 0, 0
        self._took: list[float] = []
        self._afresh: set[str] = set()
        self._running: dict[tuple[str, int], str] = {}
        self._task = TaskID(0)

    def __enter__(self) -> Self:
        known = f", {self._known} already done" if self._known else ""
        if self._cells is not None:
            self._print(f"{self._cells} runs to go{known}")
        if self.console.is_terminal and self._cells != 0:
            self._start()
            assert self._bar is not None
            self._task = self._bar.add_task("", total=self._cells)
        return self

    def began(self, job: Job, node: str = "") -> None:
        self._running[job.key, job.repeat] = f"{job.label}{f' on {node}' if node else ''}"
        self._update("")

    def say(self, job: Job, line: str) -> None:
        self._update(line)

    def lost(self, job: Job, why: str) -> None:
        self._running.pop((job.key, job.repeat), None)
        self._print(f"lost  {job.label}: {why}; Strobe runs it again")

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
            remaining = self._cells - self._done
            seconds = remaining * sum(self._took) / len(self._took) / max(1, len(self._running))
            time_left = f", about {seconds / 60:.0f} min left" if seconds >= 90 else f", about {seconds:.0f} s left"
        running = "; ".join(self._running.values())
        detail = f" ({line.removeprefix('… ')[:60]})" if line else ""
        self._bar.update(
            self._task,
            completed=self._done,
            description=f"{self._place()} cells{failed}{time_left}; {running}{detail}",
        )

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False)
