"""The content of a file that may be anybody's: a plain file of bounded size, or an error in place of a hang."""

from __future__ import annotations

import os
import stat
from pathlib import Path

MOST = 2**25  # bytes; JSON of one-letter values takes twenty times as much memory


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
