"""Where the repository and its tests lie, for tests in whatever folder."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
