"""The folder of data that Strobe saves for later runs. It may be deleted at any time."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return STROBE_CACHE, else ``strobe`` in XDG_CACHE_HOME or ``~/.cache``. It need not exist."""
    if own := os.environ.get("STROBE_CACHE"):
        return Path(own)
    users = os.environ.get("XDG_CACHE_HOME")
    return (Path(users) if users else Path.home() / ".cache") / "strobe"
