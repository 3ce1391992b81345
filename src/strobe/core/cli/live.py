"""Progress on the terminal: what is being done, how far it is, how long it will take."""

from __future__ import annotations

import contextlib
import gc
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from typing_extensions import Self

from strobe.core import demo, slices
from strobe.core.cli.display import quiet
from strobe.core.torch_there import has_torch

if TYPE_CHECKING:
    from strobe.core.measure.sampling import Progress as Sampled


# Where stderr is no terminal: seconds from a stage's beginning to its first line, and from line to line.
FIRST_S, EVERY_S = 1.0, 30.0
# Seconds of a stage without a line, after which one says that it still goes on; and how often that is looked at.
QUIET_S, LOOK_S = 10.0, 0.5
# Seconds of work that is usually over at once, such as saving, after which a line says that it goes on.
SLOW_S = 2.0


_before_imports: list[Callable[[], None]] = []


@contextlib.contextmanager
def call_ahead_of_imports(do: Callable[[], None]) -> Iterator[None]:
    """Have ``do`` called before the first import that takes seconds, if there is one meanwhile."""
    _before_imports.append(do)
    try:
        yield
    finally:
        _before_imports.clear()


def prepare_imports() -> str:
    """Prepare what slices import besides torch. Return its name for a message: ' and LeRobot', or empty."""
    prepare = slices.Offer[Callable[[], str]]("imports").find()
    return prepare() if prepare is not None else ""


@contextlib.contextmanager
def importing(*, announced: bool = False) -> Iterator[None]:
    """Announce imports that take seconds, and collect no garbage during them.

    Python would look through what was imported again and again, a sixth of the time, and find none. One look at the end
    counts it as old, so that no collection falls into what is measured afterwards.

    Args:
        announced: whether the command has said already what it does.
    """
    while _before_imports:
        _before_imports.pop()()
    library = prepare_imports()
    if not has_torch() or ("lerobot.policies" if library else "torch") in sys.modules or not gc.isenabled():
        yield
        return
    if not announced:
        Console(stderr=True, quiet=quiet()).print(f"… importing torch{library}", markup=False, highlight=False)
    gc.disable()
    # A command that has announced it shows how long its stage takes by itself.
    watched = contextlib.nullcontext() if announced else shown_if_slow(f"importing torch{library}", QUIET_S)
    try:
        with watched:
            yield
    finally:
        gc.enable()
        gc.collect()


@contextlib.contextmanager
def shown_if_slow(what: str, after_s: float | None = None) -> Iterator[None]:
    """Say on stderr that ``what`` goes on, once it has taken ``after_s`` (default: `SLOW_S`), then every `EVERY_S`."""
    ended, began = threading.Event(), time.monotonic()
    console = Console(file=sys.stderr, quiet=quiet())  # as it is now: what is redirected meanwhile is another's

    def watch() -> None:
        wait_s = SLOW_S if after_s is None else after_s
        while not ended.wait(wait_s):
            wait_s = EVERY_S
            line = f"… {what}: {time.monotonic() - began:.0f} s so far"
            console.print(line, markup=False, highlight=False, soft_wrap=True)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


T = TypeVar("T")


class Bar:
    """A progress bar on stderr, gone when the work is done; None where stderr is no terminal."""

    def __init__(self, repaints_per_s: float) -> None:
        self.console = Console(stderr=True, quiet=quiet())
        self._repaints_per_s = repaints_per_s
        self._bar: Progress | None = None

    def _start(self) -> None:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=self.console, transient=True, refresh_per_second=self._repaints_per_s)
        self._bar.start()

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


class Live(Bar):
    """A progress line on stderr; a plain line now and then where stderr is no terminal."""

    def __init__(self) -> None:
        super().__init__(2)  # slow repaints: a progress bar must not take the time that it reports on
        self._task: TaskID | None = None
        self._what = ""
        self._due = 0.0  # of `time.monotonic`: when a line says how far the stage is
        self._began = 0.0
        self._quiet_until = math.inf
        self._latest: Sampled | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.before: Callable[[], None] | None = None  # called once, before the first stage

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._start()
        else:  # one call may take minutes, and reports nothing before it ends
            self._ended.clear()
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        super().__exit__(*error)

    @contextlib.contextmanager
    def suspend_threads(self) -> Iterator[None]:
        """Show nothing, and have no thread, in the block: a profiler of Python takes other threads for the program."""
        shown = self._thread is not None or self._bar is not None
        self.__exit__()
        self._thread = self._bar = self._task = None
        try:
            yield
        finally:
            if shown:
                self.__enter__()

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_S):
            self.look()

    def look(self) -> None:
        """Print that the stage still goes on, where it has printed nothing for long."""
        now, latest = time.monotonic(), self._latest
        if now < self._quiet_until:
            return
        self._quiet_until = self._due = now + EVERY_S
        since, far = now - self._began, f" ({latest.done} {latest.unit} done)" if latest is not None else ""
        self.say(f"… {self._what}: {since:.0f} s so far{far}")

    def _begin(self, what: str) -> None:
        before, self.before = self.before, None
        if before is not None:
            before()
        self._what, self._began, self._latest = what, time.monotonic(), None
        self._due, self._quiet_until = self._began + FIRST_S, self._began + QUIET_S

    def stage(self, what: str) -> None:
        what = demo.restore_typed_name(what)
        self._begin(what)
        if self._bar is None:
            self.console.print(f"… {what}", markup=False, highlight=False)
            return
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(what, total=None)

    def doing(self, what: str) -> None:
        """Begin a stage that is shown on a terminal only: its outcome is printed anyway."""
        if self._bar is not None:
            self.stage(what)
            return
        self._begin(what)
        self._due = self._quiet_until

    def say(self, line: str) -> None:
        """Print a line that stays."""
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def each(self, what: str, items: Sequence[T], unit: str) -> Iterator[T]:
        """Yield ``items`` in their order; once that takes over a second, show how far it is."""
        began = first = time.monotonic()
        if self._bar is not None:
            self.stage(what)
        else:
            self._begin(what)
        for done, item in enumerate(items):
            yield item
            now = time.monotonic()
            if done == 0:
                first = now  # it imports what all need
            elif now - began > FIRST_S:
                from strobe.core.measure.sampling import Progress  # brings NumPy, which a short list does without

                remaining = (now - first) / done * (len(items) - done - 1)
                self.progress(Progress(done + 1, len(items), now - began, remaining, unit))

    def progress(self, progress: Sampled) -> None:
        time_left = f", about {progress.seconds_left:.0f} s left" if progress.seconds_left is not None else ""
        if self._bar is None:
            self._latest = progress
            if time.monotonic() >= self._due:
                self._due = self._quiet_until = time.monotonic() + EVERY_S
                many = f"{progress.done} of {progress.expected}" if progress.expected else progress.done
                self.say(f"… {self._what}: {many} {progress.unit}{time_left}")
            return
        if self._task is None:
            return
        self._bar.update(
            self._task,
            completed=progress.done,
            total=progress.expected,
            description=f"{self._what}: {progress.done} {progress.unit}{time_left}",
        )
