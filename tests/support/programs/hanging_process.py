"""A process that starts another one and hangs; it imports nothing that takes time."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path


def starts_another(file: str) -> None:
    """Start a process that lives long, note its number in ``file``, and hang."""
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    written = Path(f"{file}.part")
    written.write_text(str(other.pid))
    written.rename(file)  # whole, as soon as it is there
    time.sleep(600)
