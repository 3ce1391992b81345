"""The way of a run's events from its threads to a file: no lock, little memory, little lost in a crash.

The threads append tuples to a deque, which is one step of the interpreter. A thread of its own takes them out and
writes them, a few at a time, so that it never holds the interpreter for long. One call of a probe may be several
events: it appends one tuple, a function and its arguments, and the writing thread calls that for the events.

The last line is the log's end: what all lines before it add up to. Without it, or with a line that it does not fit, a
file is a shorter run than the one that ran, and whoever reads it says so.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import logging
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

from strobe.core.errors import UserError, os_error_reason
from strobe.core.timeline import sections
from strobe.core.timeline.clock import host_ns
from strobe.core.untrusted import parse_json
from strobe.loops.events import Row
from strobe.loops.header import Header

EVERY_S = 0.5  # interval between two rounds of writing: a crash loses no more than this
BATCH = 16  # events, about, that become one line; json keeps the interpreter for about 50 µs
PAUSE_S = 0.002  # pause between two batches, so that the loop can run
LONGEST = 2**22  # bytes of a line that is read: those of a log are a thousandth of that
MOST_UNPACKED = 100, 2**24  # times the packed size, at least so many bytes: events pack to a tenth or so
MOST_HELD = 200_000  # tuples in memory where the file cannot be written: the latest ten minutes or so


class _End:
    """The number of lines in a log, and their checksum."""

    def __init__(self) -> None:
        self.lines = self.checksum = 0

    def add(self, line: str | bytes) -> bytes:
        """Return the line as it lies in the file, once it is counted."""
        whole = f"{line}\n".encode() if isinstance(line, str) else line
        self.lines, self.checksum = self.lines + 1, zlib.crc32(whole, self.checksum)
        return whole

    def to_json(self) -> dict[str, int]:
        return {"lines": self.lines, "crc32": self.checksum}


class Log:
    """Writes events to ``file`` as they come: a header in a line of JSON, then lists of events, then the end.

    Attributes:
        append: takes an event from any thread, or a function that returns events and its arguments; never waits.
        failed: why the file could not be written, in words. The latest events then stay in memory.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.failed: str | None = None
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

    def read(self) -> tuple[Header | None, Rows]:
        """Return the header, None if the run never began, and every event in the order written; after `stop`."""
        written, lost = Rows(()), None
        with contextlib.suppress(UserError):
            written = read(self.file)[1]
        if self.failed:
            lost = f"events could not be written ({self.failed}), and the earliest may be missing"
        elif not self._held:
            return self._header, written
        return self._header, Rows(chain(written, (row for held in self._held for row in _rows(held))), lost)

    def remove(self) -> None:
        """Delete the file, once its answer is saved."""
        with contextlib.suppress(OSError):
            self.file.unlink()

    def _write(self) -> None:
        assert self._header is not None
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("xb") as file:
                end = _End()
                file.write(end.add(json.dumps(replace(self._header, ends=True).to_json())))
                while not self._ended.wait(EVERY_S):
                    for line in self._lines():
                        file.write(end.add(line))
                        self._ended.wait(PAUSE_S)
                    file.flush()
                for line in self._lines():
                    file.write(end.add(line))
                file.write(f"{json.dumps(end.to_json())}\n".encode())
        except (OSError, ValueError, TypeError) as error:
            self.failed = os_error_reason(error) if isinstance(error, OSError) else str(error)

    def _lines(self) -> Iterator[str]:
        while self._held:
            batch: list[Row] = []
            while self._held and len(batch) < BATCH:
                batch += _rows(self._held.popleft())
            if batch:
                yield json.dumps(batch)


def _rows(held: Row) -> list[Row]:
    if isinstance(held[0], str):
        return [held]
    make, *rest = held
    try:
        return make(*rest)
    except Exception:  # one call that cannot be described must not end the writing of all others
        return []


class Rows:
    """The events of a log, to be taken once: those of an hour are half a gigabyte.

    Attributes:
        lost: what of the log is missing or damaged, in words, once all were taken.
        ends: whether its last line tells that it is the last; of a log of an older Strobe nobody knows.
    """

    def __init__(self, rows: Iterable[Row], lost: str | None = None, *, ends: bool = True) -> None:
        self._rows, self.lost, self.ends = rows, lost, ends

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)


class _Lines:
    """The lines of a file of events, up to where it cannot be read further; then ``lost`` says why."""

    def __init__(self, file: Path) -> None:
        self.file, self.lost = file, None
        self.end = _End()  # of those lines that were read

    def __iter__(self) -> Iterator[bytes]:
        times, least = MOST_UNPACKED
        most = max(least, times * self.file.stat().st_size)
        with gzip.open(self.file, "rb") if self.file.suffix == ".gz" else self.file.open("rb") as opened:
            try:
                while line := opened.readline(LONGEST):
                    if len(line) == LONGEST or opened.tell() > most:
                        self.lost = "it has more bytes than a recording"
                        return
                    yield line
            except (gzip.BadGzipFile, EOFError, zlib.error):
                self.lost = "gzip cannot unpack all of it"


def read(file: Path) -> tuple[Header, Rows]:
    """Return header and events of a log, also of a packed one (.gz). A line that cannot be read is left out.

    Raises:
        UserError: there is no such file, or it is no log of a rollout.
    """
    lines = _Lines(file)
    rest = iter(lines)
    try:
        first = next(rest, b"")
        header = Header.from_json(parse_json(first))
    except OSError as error:
        raise UserError(f"cannot read {file}: {os_error_reason(error)}") from None
    except ValueError:
        raise UserError(f"{file} is not the log of a rollout: name the .events file that a killed run left") from None
    lines.end.add(first)
    rows = Rows((), ends=header.ends)
    rows._rows = _read_events(rest, lines, rows)
    return header, rows


def _read_events(rest: Iterator[bytes], lines: _Lines, rows: Rows) -> Iterator[Row]:
    end, bad = None, 0
    for line in rest:
        try:
            batch = parse_json(line)
        except ValueError:
            batch = None
        if isinstance(batch, dict) and end is None:
            end = batch
        elif isinstance(batch, list) and end is None:
            lines.end.add(line)
            yield from (tuple(row) if isinstance(row, list) else (row,) for row in batch)
        else:
            bad += 1
    if bad and not lines.lost:
        rows.lost = f"{bad:,} of its lines cannot be read" if bad > 1 else "one of its lines cannot be read"
    elif rows.ends and end is None and not lines.lost:
        rows.lost = "it breaks off before its end"
    elif end is not None and end != lines.end.to_json() and not lines.lost:
        rows.lost = "some of it is not as it was written"
    else:
        rows.lost = lines.lost


def opener(append: Callable[[Row], None]) -> sections.Opener:
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
