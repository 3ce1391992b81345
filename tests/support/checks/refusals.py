"""Wrong input: it ends a command in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from strobe.core.cli.main import main

# Progress; and what diffusers says of the torchao that is installed, once in a process.
OTHERS = ("…", "Unable to import `torchao`")


def assert_refused(argv: list[str], words: str, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """Fail unless the command ends with code 2, in one line that holds ``words``, and leaves ``folder`` empty."""
    assert main(argv) == 2
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if line and not line.startswith(OTHERS)]
    line, *more = lines
    assert not more or more[-1].startswith("Corrected: strobe "), lines
    assert line.startswith("strobe: ")
    assert words in line
    assert list(folder.iterdir()) == [], "something half-written"
