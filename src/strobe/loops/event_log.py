"""Events of a rollout on their way from its threads to a file: no lock, little memory, little lost in a crash.

The threads append tuples to a deque, which is one step of the interpreter. A thread of its own takes them out and
writes them, a few at a time, so that it never holds the interpreter for long. What a probe sees in one call may be
several events: it appends one tuple, a function and its arguments, and the writing thread makes the events from it.
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
from pathlib import Path
from typing import Any

from strobe.errors import UserError, in_words
from strobe.timeline import sections
from strobe.timeline.clock import host_ns

Event = tuple[Any, ...]

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
        self._held: deque[Event] = deque(maxlen=MOST_HELD)
        self.append = self._held.append
        self._header: dict[str, Any] | None = None
        self._headed = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write, name="strobe-log", daemon=True)

    def start(self, header: dict[str, Any]) -> None:
        """Begin to write."""
        self._header = header
        self._thread.start()

    def stop(self) -> None:
        """Write what is left, and end."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def read(self) -> tuple[dict[str, Any] | None, list[Event]]:
        """The header, None where the run never began, and every event in the order written; after `stop`."""
        kept: list[Event] = []
        with contextlib.suppress(OSError, UserError):
            kept = read(self.file)[1]
        return self._header, [*kept, *(event for held in self._held for event in _events(held))]

    def remove(self) -> None:
        """Delete the file, once its answer is kept."""
        with contextlib.suppress(OSError):
            self.file.unlink()

    def _write(self) -> None:
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("x") as file:
                file.write(f"{json.dumps(self._header)}\n")
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
            batch: list[Event] = []
            while self._held and len(batch) < BATCH:
                batch += _events(self._held.popleft())
            if batch:
                yield f"{json.dumps(batch)}\n"


def _events(held: Event) -> list[Event]:
    """The events of one tuple that a probe appended."""
    if isinstance(held[0], str):
        return [held]
    make, *rest = held
    try:
        return make(*rest)
    except Exception:  # one call that cannot be told must not end the writing of all others
        return []


def read(file: Path) -> tuple[dict[str, Any], list[Event]]:
    """Header and events of a log, also of a packed one (.gz); a last line that was cut off is left out.

    Raises:
        UserError: there is no such file, or it is no log of a rollout.
    """
    try:
        content = file.read_bytes()
        lines = (gzip.decompress(content) if file.suffix == ".gz" else content).decode().splitlines()
    except (gzip.BadGzipFile, EOFError, zlib.error, UnicodeDecodeError):
        lines = []
    except OSError as error:
        raise UserError(f"cannot read {file}: {in_words(error)}") from None
    try:
        header = json.loads(lines[0])
        _ = header["fps"], header["subject"]
    except (IndexError, ValueError, KeyError, TypeError):
        raise UserError(f"{file} is not the log of a rollout: name the .events file that a killed run left") from None
    events: list[Event] = []
    for line in lines[1:]:
        try:
            events += [tuple(event) for event in json.loads(line)]
        except ValueError:
            break
    return header, events


def opener(append: Callable[[Any], None]) -> sections.Opener:
    """A maker of sections that go to ``append`` when they end."""
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
    """Keeps the last error that the inference thread logged."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(Exception):
            lines = [line for line in record.getMessage().splitlines() if line.strip()]
            if len(lines) == 1:  # the others are tracebacks
                self.text = lines[0].strip()
