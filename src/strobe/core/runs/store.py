"""Save an answer in its folder and read it again: ``result.json``, ``trace.json.gz``, ``report.html``."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from pydantic import ValidationError

from strobe.core.errors import UserError, legible, nearest, os_error_reason
from strobe.core.results import units
from strobe.core.results.data import SCHEMA_VERSION
from strobe.core.untrusted import contents, parse_json

if TYPE_CHECKING:  # the classes of all answers, which a list of summaries does without
    from strobe.core.results.answer import Answer, Result

RESULT = "result.json"
TRACE = "trace.json.gz"
REPORT = "report.html"


def new_run(root: Path, study: str, subject: str) -> Path:
    """Make a new folder for one run, such as ``2026-11-21_0412_breakdown_act``; never an existing one."""
    stem = "_".join([datetime.now().strftime("%Y-%m-%d_%H%M"), _slug(study), _slug(subject)])
    root.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, 10_000):
        folder = root / (stem if attempt == 1 else f"{stem}-{attempt}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise UserError(f"{root} contains too many runs called {stem}: name another folder for runs")


def save(
    answer: Answer,
    folder: Path,
    trace: dict[str, object] | None = None,
    files: Mapping[str, bytes] | None = None,
) -> None:
    """Write the run's files so that a reader sees each one old or new, never half.

    Args:
        files: name → content of profilers' files, for their own viewers.
    """
    # Lists can be changed behind pydantic's back; what is written must be readable again.
    type(answer).model_validate(answer.model_dump())
    text = answer.model_dump_json(indent=1, fallback=str)
    packed = None if trace is None else gzip.compress(json.dumps(trace, allow_nan=False).encode(), mtime=0)
    folder.mkdir(parents=True, exist_ok=True)
    if packed is not None:
        replace(folder / TRACE, packed)
    for name, content in (files or {}).items():
        replace(folder / name, content)
    replace(folder / RESULT, text.encode())


def replace(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write ``path`` completely or not at all, and unless ``durable`` is false, so that it outlives a power cut."""
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text whole or not at all. Raises UserError where there is no such place."""
    try:
        replace(path, text.encode())
    except OSError as error:
        raise UserError(f"cannot write {path}: {os_error_reason(error)}") from None


def load(path: Path | str) -> Result:
    """Read the result of a run, given its folder or its ``result.json``. Raises UserError for any other answer."""
    from strobe.core.results.answer import Result

    answer = load_answer(path)
    if not isinstance(answer, Result):
        raise UserError(f"{path} is a {answer.called}: `strobe report` shows it")
    return answer


def load_answer(path: Path | str) -> Answer:
    """Read the answer of any study, given its folder or its ``result.json``. Raises UserError."""
    file = _find(Path(path))
    document = _parse(file)
    _refuse_other_schemas(file, document)
    kind, gone = _answer_class(file, document.get("study")), list[str]()
    try:
        try:
            return _validate(kind, document)
        except ValidationError as error:
            faults = error.errors(include_url=False)
            if any(fault["type"] != "extra_forbidden" for fault in faults):
                raise
            gone += [legible(_drop_field(document, fault["loc"])) for fault in faults]
        answer = _validate(kind, document)
    except ValidationError as error:
        raise UserError(f"{file} is not a valid result: {_first(error)}: run the study again") from None
    answer.notes.append(f"fields that this Strobe does not know were left out: {units.join_names(gone, 4)}")
    return answer


def _validate(kind: type[Answer], document: dict[str, object]) -> Answer:
    # As JSON, strictly: true is no number, and "5" is none either.
    return kind.model_validate_json(json.dumps(document), strict=True)


def _drop_field(document: object, place: Sequence[str | int]) -> str:
    """Remove a field of a nested document, if it is there. Return its path."""
    for step in place[:-1]:
        if isinstance(document, dict):
            document = document.get(step)
        elif isinstance(document, list) and isinstance(step, int):
            document = document[step]
    if isinstance(document, dict):
        document.pop(place[-1], None)
    return ".".join(str(step) for step in place)


def _answer_class(file: Path, study: object) -> type[Answer]:
    from strobe.core import slices

    kind = slices.kinds().get(study) if isinstance(study, str) else None
    if kind is None:
        raise UserError(f"{file} is of {study!r:.40}, which this Strobe does not have: use the one that made it")
    return slices.load(kind.answer)


def iter_results(folder: Path, *, parts: bool = True) -> Iterator[tuple[str, Path]]:
    """Yield every result below ``folder`` with the name of its run: the path of its folder from there.

    Args:
        parts: whether results that are part of another are among them, such as a sweep's cells.
    """
    for where, folders, files in os.walk(folder):
        folders.sort()
        if RESULT in files:
            name = where[len(str(folder)) :].strip(os.sep).replace(os.sep, "/")
            yield name or folder.name, Path(where, RESULT)
            if not parts:
                folders.clear()


def _refuse_other_schemas(file: Path, document: dict[str, object]) -> None:
    """Raise UserError unless ``document`` is a result of this version's schema."""
    version = document.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool) or "strobe_version" not in document:
        raise UserError(f"{file} is JSON, but not a result of Strobe: name a run folder or its {RESULT}")
    if version != SCHEMA_VERSION:
        reads = f"it has schema {version}, this Strobe reads schema {SCHEMA_VERSION}"
        raise UserError(f"{file} was written by another version of Strobe ({reads}): run the study again")


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")[:60] or "run"


def _find(path: Path) -> Path:
    if path.is_dir():
        if (path / RESULT).is_file():
            return path / RESULT
        runs = _runs(path)
        if runs:
            raise UserError(f"{path} contains several runs, name one of them: {', '.join(runs[-6:])}")
        raise UserError(f"{path} holds no {RESULT}: name the folder of a saved run")
    if path.exists():
        return path
    siblings = _runs(path.parent)
    hint = nearest(path.name, siblings) if siblings else "name the folder of a saved run"
    raise UserError(f"no run at {path}: {hint}")


def _runs(root: Path) -> list[str]:
    try:
        return sorted(child.name for child in root.iterdir() if (child / RESULT).is_file())
    except OSError:
        return []


def _parse(file: Path) -> dict[str, object]:
    try:
        document = parse_json(contents(file))
    except OSError as error:
        raise UserError(f"cannot read {file}: {os_error_reason(error)}") from None
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        where = f" (line {error.lineno}: {error.msg})" if isinstance(error, json.JSONDecodeError) else ""
        raise UserError(f"{file} is truncated or not JSON{where}: run the study again") from None
    return document if isinstance(document, dict) else {}


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "the whole"
    return f"{field}: {first['msg'][:1].lower()}{first['msg'][1:]}"
