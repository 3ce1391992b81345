"""Read files and JSON that anybody may have written: plain files of bounded size, JSON that is not nested too deep."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

MOST = 2**25  # bytes; JSON of one-letter values takes twenty times as much memory
JsonObject = dict[str, Any]  # what a JSON object becomes in Python


def contents(file: Path, most: int = MOST) -> bytes:
    """Return the bytes of ``file``. Raises OSError where it is no plain file, or has more than ``most`` bytes."""
    # Without waiting for whoever may write into a pipe.
    with open(os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb") as opened:
        status = os.fstat(opened.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{file.name} is no plain file")
        if status.st_size > most:
            raise OSError(f"{file.name} has more than {most:,} bytes")
        return opened.read(most)


def parse_json(text: str | bytes) -> Any:
    """Return what ``text`` says. Raises ValueError for what is no JSON, or is nested deeper than Python can follow."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
