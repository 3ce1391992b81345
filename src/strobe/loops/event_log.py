"""The way of a run's events from its threads to a file: no lock, little memory, little lost in a crash.

The threads append tuples to a deque, which is one step of the interpreter. A thread of its own takes them out and
writes them, a few at a time, so that it never holds the interpreter for long. One call of a probe may be several
events: it appends one tuple, a function and its arguments, and the writing thread calls that for the events.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import logging
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from strobe.errors import UserError, in_words
from strobe.loops.events import Row
from strobe.loops.header import Header
from strobe.timeline import sections
from strobe.timeline.clock import host_ns

EVERY_S = 0.5  # between two rounds of writing: a crash loses no more than this
BATCH = 16  # events, about, that become one line; json keeps the interpreter for about 50 µs
PAUSE_S = 0.002  # between two batches, in which the loop may run
MOST_HELD = 200_000  # tuples in memory where the file cannot be written: the latest ten minutes or so


class Log:
    """Writes events to ``file`` as they come: a header as a line of JSON, then lists of events, a line each.

    Attributes:
        append: takes an event from any thread, or a function that returns events and its arguments; never waits.
        failed: why the file could not be written, in words; '' where it could. The latest events then stay in memory.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.failed = ""
        self._held: deque[Row] = deque(maxlen=MOST_HELD)
        self.append = self._held.append
        self._header: Header | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write, name="strobe-log", daemon=True)

    def start(self, header: Header) -> None:
        """Begin to write."""
        self._header = header
        self._thread.start()

    def stop(self) -> None:
        """Write the remaining events, and end."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def read(self) -> tuple[Header | None, Iterator[Row]]:
        """Return the header, None where the run never began, and every event in the order written; after `stop`."""
        rows: Iterator[Row] = iter(())
        with contextlib.suppress(UserError):
            rows = read(self.file)[1]
        return self._header, chain(rows, (row for held in self._held for row in _rows(held)))

    def remove(self) -> None:
        """Delete the file, once its answer is saved."""
        with contextlib.suppress(OSError):
            self.file.unlink()

    def _write(self) -> None:
        assert self._header is not None
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("x") as file:
                file.write(f"{json.dumps(self._header.to_json())}\n")
                while not self._ended.wait(EVERY_S):
                    for line in self._lines():
                        file.write(line)
                        self._ended.wait(PAUSE_S)
                    file.flush()
                for line in self._lines():
                    file.write(line)
        except (OSError, ValueError, TypeError) as error:
            self.failed = in_words(error) if isinstance(error, OSError) else str(error)

    def _lines(self) -> Iterator[str]:
        while self._held:
            batch: list[Row] = []
            while self._held and len(batch) < BATCH:
                batch += _rows(self._held.popleft())
            if batch:
                yield f"{json.dumps(batch)}\n"


def _rows(held: Row) -> list[Row]:
    """Return the events of one tuple that a probe appended."""
    if isinstance(held[0], str):
        return [held]
    make, *rest = held
    try:
        return make(*rest)
    except Exception:  # one call that cannot be described must not end the writing of all others
        return []


def read(file: Path) -> tuple[Header, Iterator[Row]]:
    """Return header and events of a log, also of a packed one (.gz); a last line that was cut off is left out.

    The events are read while they are taken: those of an hour are half a gigabyte.

    Raises:
        UserError: there is no such file, or it is no log of a rollout.
    """
    lines = _lines_of(file)
    try:
        header = Header.from_json(json.loads(next(lines, "")))
    except OSError as error:
        raise UserError(f"cannot read {file}: {in_words(error)}") from None
    except ValueError:
        raise UserError(f"{file} is not the log of a rollout: name the .events file that a killed run left") from None
    return header, _events_of(lines)


def _lines_of(file: Path) -> Iterator[str]:
    """Yield the lines of a log, up to where it is cut off or damaged. Raises OSError where it cannot be opened."""
    with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8") as text:
        try:
            yield from text
        except (gzip.BadGzipFile, EOFError, zlib.error, UnicodeDecodeError):
            return


def _events_of(lines: Iterator[str]) -> Iterator[Row]:
    for line in lines:
        try:
            batch = json.loads(line)
        except ValueError:
            return
        yield from map(tuple, batch)


def opener(append: Callable[[Any], None]) -> sections.Opener:
    """Return a maker of sections that go to ``append`` when they end."""
    ident = threading.get_ident

    class LoggedSection:
        __slots__ = ("name", "start")

        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            self.start = host_ns()

        def __exit__(self, kind: object, error: object, traceback: object) -> None:
            append(("s", self.name, self.start, host_ns(), ident()))

    return LoggedSection


class LastError(logging.Handler):
    """Holds the last error that the inference thread logged.

    Args:
        logged: called at each error, on the thread that logs it; must return at once.
    """

    def __init__(self, logged: Callable[[], None] = lambda: None) -> None:
        super().__init__(logging.ERROR)
        self.logged = logged
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(Exception):
            self.logged()
            lines = [line for line in record.getMessage().splitlines() if line.strip()]
            if len(lines) == 1:  # the others are tracebacks
                self.text = lines[0].strip()
