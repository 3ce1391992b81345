"""A real browser for the page, where there is one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.browser import NAMES, Browser, installed

Browse = Callable[..., str]
SETTLED = "document.documentElement.dataset.settled === 'true' || 'errors' in document.documentElement.dataset"


@pytest.fixture
def browse(tmp_path: Path) -> Browse:
    """Open a page in headless Chromium and return what its document has become once it has settled."""
    if installed() is None:
        pytest.skip(f"no Chromium on the PATH (looked for {', '.join(NAMES)}): apt-get install chromium")

    def open_page(source: str, *flags: str) -> str:
        page = tmp_path / "page.html"
        page.write_text(source, encoding="utf-8")
        with Browser(tmp_path, *flags) as browser:
            return browser.document(page.as_uri(), SETTLED)

    return open_page
