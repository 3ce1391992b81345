"""What a run has stored: its answer as the class that a test expects, its folder, its episodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from strobe.core.results.answer import Answer
from strobe.core.runs import store


def load_stored[A: Answer](kind: type[A], path: Path | str) -> A:
    """Return the answer of a run, which must be of this class."""
    answer = store.load_answer(path)
    assert isinstance(answer, kind), f"{type(answer).__name__}, not {kind.__name__}"
    return answer


def sole_run(folder: Path) -> Path:
    """Return the one run in a folder."""
    (found,) = folder.iterdir()
    return found


def logged_episodes(run: Path) -> list[dict[str, Any]]:
    """Return the episodes that a run has logged, in order."""
    from strobe.evaluate.episode_log import NAME

    lines = [json.loads(line) for line in (run / NAME).read_text().splitlines()]
    return [line for line in lines if "asked" not in line]
