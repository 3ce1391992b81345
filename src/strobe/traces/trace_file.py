"""A file of torch.profiler (Kineto), as `export_chrome_trace` and `tensorboard_trace_handler` write it, plain or gzip.

Nothing here judges the events. What is no whole trace is refused in a line: of a file that is cut off nobody knows what
was in the rest, and a device without its last kernels looks idle.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strobe.core.errors import UserError, os_error_reason
from strobe.core.json_text import JsonObject
from strobe.core.runs.store import RESULT

ENDINGS = (".json", ".json.gz")
LARGEST = 2 * 2**30  # bytes of JSON: up to 25 times as much memory reads it
MOST_UNPACKED = 40, 2**24  # times the packed size, at least so many bytes: a trace packs to a tenth
_GZIP = b"\x1f\x8b"
_KEY = b'"traceEvents"'
_PIECE = 2**22
# Arrows between events, moments such as allocations, and counters: most of some traces, and no part of what is asked.
_NOT_READ = frozenset("sftiIC")
_AGAIN = "write it again, with export_chrome_trace after the profiler has stopped"


@dataclass(frozen=True)
class TraceFile:
    """A trace's events as its JSON has them, and what its head says.

    Args:
        rank: of the process in its group; None if the head has none.
        ranks: processes in the group.
        devices: a device's number → its name.
    """

    path: Path
    events: list[Any]
    rank: int | None = None
    ranks: int | None = None
    devices: Mapping[str, str] = field(default_factory=dict)


def is_trace(path: Path) -> bool:
    """Return whether a file is meant as a trace: it is packed, or JSON that has a list of events and is no result."""
    if not path.is_file() or path.name == RESULT:
        return False
    try:
        with path.open("rb") as file:
            start = file.read(2)
            if start == _GZIP or path.name.endswith(".gz"):
                return True
            tail = start
            while piece := file.read(_PIECE):
                if _KEY in tail + piece:
                    return True
                tail = piece[-len(_KEY) :]
    except OSError:
        return False
    return start[:1] == b"["


def find_traces(folder: Path) -> list[Path]:
    """Return the traces of a folder without results, by name; () where it has none."""
    try:
        files = sorted(file for file in folder.iterdir() if file.name.endswith(ENDINGS))
    except OSError:
        return []
    return [file for file in files if is_trace(file)]


def read_trace(path: Path) -> TraceFile:
    """Read a trace. Raises UserError, with the file and the reason, for what is no whole trace."""
    content = _read_unpacked(path)
    if not content.strip():
        raise UserError(f"{path} is empty: {_AGAIN}")
    try:
        document = json.loads(content.decode("utf-8", "replace"), object_hook=_event, strict=False)
    except json.JSONDecodeError as error:
        if content.rstrip()[-1:] not in b"]}" or error.pos >= len(error.doc.rstrip()):
            raise UserError(f"{path} is cut off: {_AGAIN}") from None
        raise UserError(f"{path} is not JSON (line {error.lineno}: {error.msg})") from None
    except RecursionError:
        raise UserError(f"{path} is nested too deep for a trace") from None
    except ValueError as error:  # a number of thousands of digits
        raise UserError(f"{path} is no trace: {str(error).split(':')[0]}") from None
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list):
        raise UserError(f"{path} is JSON, but no trace of torch.profiler: it has no list of traceEvents")
    head = document if isinstance(document, dict) else {}
    info = head.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    return TraceFile(path, events, _count(info.get("rank")), _count(info.get("world_size")), _devices(head))


def _read_unpacked(path: Path) -> bytes:
    """Return the content of a file, which gzip may have packed. Raises UserError."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP
        times, least = MOST_UNPACKED
        most = min(LARGEST, max(least, times * path.stat().st_size)) if packed else LARGEST
        pieces, size = [], 0
        with gzip.open(path) if packed else path.open("rb") as file:
            while piece := file.read(_PIECE):
                pieces.append(piece)
                size += len(piece)
                if size > most:
                    why = "trace fewer steps (torch.profiler.schedule)" if most == LARGEST else "no trace packs so well"
                    raise UserError(f"{path} has more than {most // 2**20:,} MiB of JSON: {why}")
        return b"".join(pieces)
    except EOFError:
        raise UserError(f"{path} is cut off: {_AGAIN}") from None
    except (gzip.BadGzipFile, zlib.error):
        raise UserError(f"{path} is damaged: gzip cannot unpack it") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {os_error_reason(error)}") from None


def _event(fields: JsonObject) -> Any:
    """Return an object of the JSON; None for an event that is not read, so that it takes no memory."""
    phase = fields.get("ph")
    return None if isinstance(phase, str) and phase in _NOT_READ else fields


def _devices(head: Mapping[str, object]) -> dict[str, str]:
    listed = head.get("deviceProperties")
    found = {}
    for device in listed if isinstance(listed, Sequence) and not isinstance(listed, str) else ():
        if isinstance(device, dict) and isinstance(device.get("name"), str):
            found[str(device.get("id"))[:20]] = device["name"].encode("utf-8", "replace").decode()[:80]
    return found


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else None
