"""A stored answer as the class that a test expects."""

from __future__ import annotations

from pathlib import Path

from strobe.core.results.answer import Answer
from strobe.core.runs import store


def stored[A: Answer](kind: type[A], path: Path | str) -> A:
    """Return the answer of a run, which must be of this class."""
    answer = store.load_answer(path)
    assert isinstance(answer, kind), f"{type(answer).__name__}, not {kind.__name__}"
    return answer
