"""A real browser for the page, where there is one."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
QUIET = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)

Browse = Callable[..., str]
PATIENCE_S = 150


@pytest.fixture
def browse(tmp_path: Path) -> Browse:
    """Open a page in headless Chromium and return what its document has become."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no Chromium on the PATH (looked for {', '.join(NAMES)}): apt-get install chromium")

    def open_page(source: str, *flags: str) -> str:
        page = tmp_path / "page.html"
        page.write_text(source, encoding="utf-8")
        command = [found, *QUIET, f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=20000", *flags]
        dom, end = "", time.monotonic() + PATIENCE_S
        # Chromium's virtual time does not wait for the thread that inflates Plotly: it often ends too soon.
        while time.monotonic() < end:
            done = subprocess.run(
                [*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120, check=True
            )
            dom = done.stdout
            if 'data-settled="true"' in dom or "data-errors=" in dom:
                break
        return dom

    return open_page
