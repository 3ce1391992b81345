"""Text that a person has approved, one file for each under ``tests/approved``.

``make approve`` writes all of them again: read the diff before you commit it.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.suite.places import ROOT, TESTS

APPROVED = TESTS / "approved"
CASES = APPROVED / "cases"
APPROVING = "STROBE_APPROVE" in os.environ  # what `make approve` sets
MOST = 60  # lines of a difference that are shown


def approve_cases(name: str, texts: Mapping[str, str]) -> None:
    """Do as `approve`, with several texts in one file, each under the words for its case.

    Of a text that mostly repeats an earlier one the file has the lines that differ.
    """
    known: dict[str, list[str]] = {}
    parts: list[str] = []
    for case, text in texts.items():
        title, shown = case, text.strip().splitlines()
        known[case] = shown
        for other, before in list(known.items())[:-1]:
            difference = list(difflib.unified_diff(before, known[case], n=0, lineterm=""))[2:]
            changes = [line for line in difference if not line.startswith("@@")]
            if len(changes) < len(shown):
                title, shown = f"{case}: as {other}, but", changes
        parts.append("\n".join([f"{f' {title} ':=^120}", "", *shown]))
    approve("\n\n".join(parts), CASES / f"{name}.txt")


def approve(text: str, file: Path) -> None:
    """Fail with the difference where ``text`` is not what ``file`` holds, or there is no such file.

    While approving, the file is written instead.
    """
    lines = text.rstrip("\n").splitlines()
    if APPROVING:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return
    name = str(file.relative_to(ROOT))
    if not file.exists():
        pytest.fail(f"{name} is missing: write it with `make approve`, and read it", pytrace=False)
    before = file.read_text(encoding="utf-8").splitlines()
    if lines == before:
        return
    difference = list(difflib.unified_diff(before, lines, name, "now", lineterm="", n=1))
    more = [f"… and {len(difference) - MOST} lines more"] if len(difference) > MOST else []
    advice = "If the new text is better, `make approve` writes it; commit it with the change."
    pytest.fail("\n".join([*difference[:MOST], *more, "", advice]), pytrace=False)
