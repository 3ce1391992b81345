"""A file of torch.profiler (Kineto), as `export_chrome_trace` and `tensorboard_trace_handler` write it, plain or gzip.

It is read event by event, so that its text is never whole in memory. Nothing here judges the events. What is no whole
trace is refused in a line: of a file that is cut off nobody knows what was in the rest, and a device without its last
kernels looks idle.
"""

from __future__ import annotations

import codecs
import gzip
import json
import mmap
import re
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strobe.core.errors import UserError, os_error_reason
from strobe.core.runs.store import RESULT

ENDINGS = (".json", ".json.gz")
LARGEST = 2 * 2**30  # bytes of JSON
MOST_UNPACKED = 40, 2**24  # times the packed size, at least so many bytes: a trace packs to a tenth
_GZIP = b"\x1f\x8b"
_PIECE = 2**22
_TOKEN = 64  # characters: what is wrong so close to the end of a piece may be right with the next one
_EVENTS = re.compile(r'\A\s*\[|"traceEvents"\s*:\s*\[')
_BLANK = re.compile(r"\s*")
_DECODER = json.JSONDecoder(strict=False)
_AGAIN = "write it again, with export_chrome_trace after the profiler has stopped"


@dataclass
class TraceFile:
    """A trace, and what its head says: known once its events have been read."""

    path: Path
    rank: int | None = None  # of the process in its group
    ranks: int | None = None  # processes in the group
    devices: Mapping[str, str] = field(default_factory=dict)  # a device's number → its name
    count: int = 0  # of the events that were read


def is_trace(path: Path) -> bool:
    """Return whether a file is meant as a trace: it is packed, or JSON that has a list of events and is no result."""
    if not path.is_file() or path.name == RESULT:
        return False
    try:
        with path.open("rb") as file:
            start = file.read(2)
            if start == _GZIP or path.name.endswith(".gz") or start[:1] == b"[":
                return True
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return content.find(b'"traceEvents"') >= 0
    except (OSError, ValueError):  # it is empty
        return False


def find_traces(folder: Path) -> list[Path]:
    """Return the traces of a folder without results, by name; () where it has none."""
    try:
        files = sorted(file for file in folder.iterdir() if file.name.endswith(ENDINGS))
    except OSError:
        return []
    return [file for file in files if is_trace(file)]


def read_events(file: TraceFile, progress: Callable[[Path, int, int], None] = lambda *_: None) -> Iterator[Any]:
    """Yield the events of a trace as its JSON has them, and fill in its head.

    Calls ``progress`` with the path and the bytes read of all. Raises UserError for what is no whole trace.
    """
    path, pieces, head, rest = file.path, _pieces(file.path, progress), "", ""
    try:
        for piece in pieces:
            head += piece
            if begun := _EVENTS.search(head, max(len(head) - len(piece) - _TOKEN, 0)):
                rest = yield from _each_event(head[begun.end() :], pieces, file)
                head = head[: begun.end()]
                break
        if not head.strip():
            raise UserError(f"{path} is empty: {_AGAIN}")
        document = json.loads(head + rest, strict=False)
    except json.JSONDecodeError as error:
        whole = error.doc.rstrip()
        if not next(pieces, "") and (whole[-1:] not in "]}" or error.pos >= len(whole)):
            raise UserError(f"{path} is cut off: {_AGAIN}") from None
        raise UserError(f"{path} is not JSON ({error.msg}, after {file.count:,} events)") from None
    except RecursionError:
        raise UserError(f"{path} is nested too deep for a trace") from None
    except ValueError as error:  # a number of thousands of digits
        raise UserError(f"{path} is no trace: {str(error).split(':')[0]}") from None
    if not isinstance(document.get("traceEvents") if isinstance(document, dict) else document, list):
        raise UserError(f"{path} is JSON, but no trace of torch.profiler: it has no list of traceEvents")
    about = document if isinstance(document, dict) else {}
    info = about.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    file.rank, file.ranks, file.devices = _count(info.get("rank")), _count(info.get("world_size")), _devices(about)


def _each_event(text: str, pieces: Iterator[str], file: TraceFile) -> Generator[Any, None, str]:
    """Yield the events of a list that has begun before ``text``; return what comes after them.

    Raises:
        JSONDecodeError: of the text that is in memory.
    """
    at = _BLANK.match(text).end()  # type: ignore[union-attr]
    while not text.startswith("]", at):
        try:
            event, end = _DECODER.raw_decode(text, at)
            end = _BLANK.match(text, end).end()  # type: ignore[union-attr]
            if not text.startswith((",", "]"), end):  # a number may go on
                raise json.JSONDecodeError("Expecting ',' delimiter", text, end)
        except json.JSONDecodeError as error:
            more, least = "", len(text) - at  # read at least as much again
            if error.pos >= len(text) - _TOKEN or error.msg.startswith("Unterminated"):
                while least >= 0 and (piece := next(pieces, "")):
                    more, least = more + piece, least - len(piece)
            if not more:
                raise
            text = text[at:] + more
            at = _BLANK.match(text).end()  # type: ignore[union-attr]
        else:
            file.count += 1
            at = _BLANK.match(text, end + text.startswith(",", end)).end()  # type: ignore[union-attr]
            yield event
    return text[at:] + "".join(pieces)


def _pieces(path: Path, progress: Callable[[Path, int, int], None]) -> Iterator[str]:
    """Yield the text of a file, which gzip may have packed. Raises UserError."""
    try:
        with path.open("rb") as stored:
            packed, whole, read = stored.read(2) == _GZIP, path.stat().st_size, 0
            stored.seek(0)
            times, least = MOST_UNPACKED
            most = min(LARGEST, max(least, times * whole)) if packed else LARGEST
            why = "no trace packs so well" if most < LARGEST else "trace fewer steps (torch.profiler.schedule)"
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            with gzip.open(stored) if packed else stored as file:
                progress(path, 0, whole)
                while piece := file.read(_PIECE):
                    read += len(piece)
                    if read > most:
                        raise UserError(f"{path} has more than {most // 2**20:,} MiB of JSON: {why}")
                    if text := decoder.decode(piece):
                        yield text
                    if stored.tell() < whole:
                        progress(path, stored.tell(), whole)
                yield decoder.decode(b"", final=True)
    except EOFError:
        raise UserError(f"{path} is cut off: {_AGAIN}") from None
    except (gzip.BadGzipFile, zlib.error):
        raise UserError(f"{path} is damaged: gzip cannot unpack it") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {os_error_reason(error)}") from None


def _devices(head: Mapping[str, object]) -> dict[str, str]:
    listed = head.get("deviceProperties")
    found = {}
    for device in listed if isinstance(listed, Sequence) and not isinstance(listed, str) else ():
        if isinstance(device, dict) and isinstance(device.get("name"), str):
            found[str(device.get("id"))[:20]] = device["name"].encode("utf-8", "replace").decode()[:80]
    return found


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else None
