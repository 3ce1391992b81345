"""Results on disk, as earlier versions of Strobe wrote them: the committed examples, and those frozen for tests.

What lies under ``tests/golden`` has the form that an earlier version wrote, and no newer one writes it again. Long
series in it are thinned to the ticks, parts and cells that its figures need.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from strobe.core.runs import store
from support.suite.places import TESTS as TESTS

EXAMPLES = sorted((TESTS.parent / "docs" / "examples").glob("*/result.json"))
GOLDEN = sorted((TESTS / "golden").glob("*/result.json"))
ALL = [*EXAMPLES, *GOLDEN]
BY_STUDY = {str(json.loads(file.read_bytes())["study"]): file for file in ALL}  # one result of each study


def result_name(file: Path) -> str:
    """Return the name of a result: its folder's, and where that lies."""
    return f"{file.parent.parent.name}/{file.parent.name}"


def golden(name: str) -> Any:
    """Return the answer in a folder of this name."""
    (file,) = (file for file in ALL if file.parent.name == name)
    return store.load_answer(file)
