"""Hostile files that no chance would make, each with a sound twin, for `hostile_files.py`.

A hostile one must be refused in a line, or told to be damaged or incomplete; or, where it only costs much, be read
within the limits. Its twin differs in the fault alone, and must be read as the sound file is.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from common.hostile_kinds import DAMAGED

from strobe.loops.reader import OLDER

Change = Callable[[Path], None]


@dataclass(frozen=True)
class Planted:
    """A fault in a sound file of ``kind``, one of `hostile_kinds.KINDS`.

    Args:
        hostile, twin: what changes the sound file.
        costs: whether it may be read, and is hostile by what that costs.
    """

    name: str
    kind: str
    hostile: Change
    twin: Change
    costs: bool = False


def _change_manifest(**other: Any) -> Change:
    """Return what changes an export's manifest, and seals it again."""

    def change(file: Path) -> None:
        from strobe.export.folder import seal

        file.write_text(json.dumps(json.loads(file.read_text()) | other))
        if "files" not in other:
            seal(file.parent)

    return change


def _neighbour(name: str) -> Change:
    def change(file: Path) -> None:
        place = file.parent / name
        place.parent.mkdir(exist_ok=True)
        place.write_text("raise SystemExit('imported')")

    return change


def _image(low: float) -> Change:
    """Return what gives an export an image from ``low`` to 1; the file then holds what it said."""

    def change(file: Path) -> None:
        from strobe.core.errors import UserError
        from strobe.export.carried import policy

        program = object.__new__(policy.Policy)
        wanted = {"name": "observation.images.front", "shape": [1, 3, 8, 8], "dtype": "float32"}
        program.about = {"inputs": [wanted], "prompt": None}
        try:
            program.prepare_inputs({wanted["name"]: np.linspace(low, 1, 192, dtype=np.float32).reshape(1, 3, 8, 8)})
        except ValueError as error:
            raise UserError(str(error)) from None

    return change


def _figure(value: Any) -> Change:
    """Return what changes the first median of a result."""

    def change(file: Path) -> None:
        answer = json.loads(file.read_text())
        answer["measurements"][0]["samples"]["summary"]["median"] = value
        file.write_text(json.dumps(answer))

    return change


def _study(name: str) -> Change:
    def change(file: Path) -> None:
        file.write_text(json.dumps(json.loads(file.read_text()) | {"study": name}))

    return change


def _write_again(change: Callable[[list[Any]], list[Any]], *, ends: bool = True) -> Change:
    """Return what changes a recording's events, and writes them with an end that fits; without ``ends``, as of old."""

    def write(file: Path) -> None:
        from strobe.loops.event_log import _End

        header, *batches, _ = map(json.loads, file.read_text().splitlines())
        if not ends:
            header.pop("ends")
        end = _End()
        events = change([event for batch in batches for event in batch])
        lines = [end.add(json.dumps(part)) for part in (header, *([one] for one in events))]
        file.write_bytes(b"".join(lines) + (json.dumps(end.to_json()).encode() + b"\n" if ends else b""))

    return write


def _turn_back(events: list[Any]) -> list[Any]:
    """Return the events with the ticks of the second half an hour earlier."""
    late = [place for place, event in enumerate(events) if event[0] == "tick"]
    for place in late[len(late) // 2 :]:
        events[place][1] -= 3_600 * 10**9
    return events


def _negative_length(events: list[Any]) -> list[Any]:
    span = next(event for event in events if event[0] == "s")
    span[2], span[3] = span[3], span[2]
    return events


def _array(dtype: str, count: int, numbers: bytes) -> Change:
    def change(file: Path) -> None:
        npy = io.BytesIO()
        np.lib.format.write_array_header_1_0(npy, {"shape": (count,), "fortran_order": False, "descr": dtype})
        packed = msgpack.packb({"x": {"__ndarray_class__": True, "as_npy": npy.getvalue() + numbers}})
        file.write_bytes(packed or b"")

    return change


def _flags(lines: str) -> Change:
    def change(file: Path) -> None:
        file.write_text(f"study: breakdown\nflags: {{policy.type: act, {lines}}}\ngrid: {{seconds: [1, 2]}}\n")

    return change


def _write_nested(depth: int) -> Change:
    """Return what writes a trace of calls inside calls."""

    def change(file: Path) -> None:
        whole = 4 * depth
        events = [{"ph": "X", "pid": 1, "tid": 1, "cat": "user_annotation", "name": f"part {level % 7}",
                   "ts": 1e6 + level, "dur": whole - 2 * level} for level in range(depth)]  # fmt: skip
        file.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))

    return change


def _bomb(mebibytes: int) -> Change:
    """Return what packs a trace with so much of nothing in it, under its own name."""

    def change(file: Path) -> None:
        blank = b" " * (mebibytes << 20)
        file.write_bytes(gzip.compress(file.read_bytes()[:-1] + blank + b"}"))

    return change


def _keep(_: Path) -> None:
    """Change nothing."""


PLANTED = (
    Planted("an export without digests", "export", _change_manifest(files={}), _change_manifest(author="me")),
    Planted("an export's noise of 10¹² numbers", "export",
            _change_manifest(noise=[{"kind": "normal", "shape": [10**6, 10**6]}]),
            _change_manifest(noise=[{"kind": "uniform", "shape": [1, 100, 32]}])),
    Planted("json.py beside an export", "export", _neighbour("json.py"), _neighbour("my_robot.py")),
    Planted("a package beside an export", "export", _neighbour("numpy/__init__.py"), _neighbour("code/notes.py")),
    Planted("images from −1 to 1", "export", _image(-1.0), _image(0.0)),
    Planted("a median of −5", "result of a rollout", _figure(-5.0), _figure(5)),
    Planted("a median of true", "result of a rollout", _figure(True), _figure(5.0)),
    Planted("a median in a text", "result of a rollout", _figure("5"), _keep),
    Planted("an answer of no study", "result", _study("no study"), _keep),
    Planted("time that runs back", "recording", _write_again(_turn_back), _write_again(list)),
    Planted("a call that ends before it begins", "recording", _write_again(_negative_length), _write_again(list)),
    Planted("half a recording of an older Strobe", "recording",
            _write_again(lambda events: events[: len(events) // 2], ends=False), _write_again(list)),
    Planted("an array of 10¹² empty texts", "message of a server", _array("|S0", 10**12, b""), _array("|S1", 2, b"ab")),
    Planted("a sweep that names code", "sweep", _flags("policy.factory: 'evil.py:make'"), _flags("seed: 1")),
    Planted("a sweep that names a launcher", "sweep", _flags("launcher: ray"), _flags("threads: 1")),
    Planted("calls 10,000 deep", "trace", _write_nested(10_000), _write_nested(60), costs=True),
    Planted("a trace that unpacks to 400 MB", "trace", _bomb(400), _bomb(1)),
)  # fmt: skip


def judge(planted: Planted, says: Any) -> str | None:
    """Return what is wrong with a hostile file that was read, and says so; None for nothing."""
    told = planted.costs or (isinstance(says, str) and says.startswith((DAMAGED, OLDER)))
    return None if told else f"read as if it were sound: {str(says)[:60]}"
