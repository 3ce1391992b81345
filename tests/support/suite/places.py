"""Where the repository and its tests lie, for tests in whatever folder."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parents[2]
ROOT = TESTS.parent


def find_only_run(folder: Path) -> Path:
    (found,) = [path.parent for path in folder.rglob("result.json")]
    return found
