"""The help that a user reads first is short: `strobe COMMAND --help` as it was approved."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.checks.approval import APPROVED

HELPS = sorted(path for path in (APPROVED / "help").glob("*.txt") if path.stem != "strobe")
PROSE, EXAMPLES, FLAGS = 12, 2, 20  # at most


@pytest.mark.parametrize("file", HELPS, ids=lambda path: path.stem)
def test_a_help_has_few_lines_two_examples_and_the_flags_that_most_need(file: Path) -> None:
    head, _, rest = file.read_text().partition("\nExamples:\n")
    examples = rest.partition("\n\n")[0]
    assert len([line for line in head.splitlines()[1:] if line.strip()]) <= PROSE
    assert sum(line.startswith("  strobe") for line in examples.splitlines()) <= EXAMPLES
    assert sum(line.startswith("  --") for line in rest.splitlines()) <= FLAGS
