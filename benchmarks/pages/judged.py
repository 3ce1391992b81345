"""Faults of how a command of a page ended: its exit code, a traceback, silence, fields that are not there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pages.collected import ROOT

# Other exit codes than 0, where the page says them: a gate that a made-up policy need not hold.
GATES = {"doctor": (1,), "preflight": (1,), "verify": (1, 3), "export": (1, 3)}
GATED = {
    "compare": "python=|exported=",
    "diff": "fail-on-regression",
    "history": "fail-on-regression",
    "rehearse": "--fault=(dead|lost|error-bits)",  # a servo that is gone ends LeRobot's own loop
}
FIELDS = re.compile(r"^\| `strobe ([a-z]+)` \|[^|]*\| ([^|]*) \|", re.MULTILINE)


@dataclass
class Ran:
    """A command that has ended; its code is None where it was stopped at the limit."""

    argv: list[str]
    code: int | None
    seconds: float
    out: str
    err: str


def list_faults(ran: Ran, answers: Sequence[Path]) -> list[str]:
    """Return what is wrong, in words; ``answers`` are the files of results that it left."""
    name, *rest = ran.argv
    faults = []
    if ran.code is None:
        return [f"not within {ran.seconds:.0f} s"]
    allowed = (0, *GATES.get(name, ()))
    if (gate := GATED.get(name)) and re.search(gate, " ".join(rest)):
        allowed = (0, 1, 3)
    lines = [line.strip() for line in [*ran.out.splitlines(), *ran.err.splitlines()] if line.strip()]
    if "Traceback (most recent call last)" in ran.out + ran.err:
        faults.append("a traceback")
    if ran.code not in allowed:
        said = [line for line in lines if line.startswith("strobe: ")] or lines[-2:]
        faults.append(f"exit code {ran.code}: {' '.join(said)[:400]}")
    if not ran.out.strip() and not (name == "sweep" and lines):
        faults.append("it prints nothing on stdout")
    if "--json" in rest and not faults:
        faults += [] if _is_json(ran.out) else ["--json: stdout is not one line of JSON"]
    for file in answers:
        faults += [f"no field {field} in its answer" for field in missing_fields(name, json.loads(file.read_text()))]
    return faults


def missing_fields(command: str, answer: dict[str, Any]) -> Iterator[str]:
    """Yield the fields of docs/assistants.md that an answer of ``command`` lacks. An empty list has all fields."""
    page = (ROOT / "docs" / "assistants.md").read_text(encoding="utf-8")
    promised = {name: re.findall(r"`([^`]+)`", fields) for name, fields in FIELDS.findall(page)}
    for field in promised.get(command, ()):
        if answer.get("study") in (command, None) and not _has(answer, field.split(".")):
            yield field


def _has(value: Any, path: Sequence[str]) -> bool:
    if not path or value is None:
        return True
    name, is_list, _ = path[0].partition("[")
    if not isinstance(value, dict) or name not in value:
        return False
    inner = value[name]
    return all(_has(one, path[1:]) for one in inner or ()) if is_list else _has(inner, path[1:])


def _is_json(text: str) -> bool:
    try:
        return len(text.splitlines()) == 1 and isinstance(json.loads(text), dict)
    except ValueError:
        return False
