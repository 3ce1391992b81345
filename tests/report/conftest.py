"""The page in a real browser, where there is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.browser import Browse, Browser


@pytest.fixture
def browse(browser: Browser, tmp_path: Path) -> Browse:
    """Open a page and return what its document has become once it has settled."""

    def open_page(source: str, **window: Any) -> str:
        page = tmp_path / "page.html"
        page.write_text(source, encoding="utf-8")
        return browser.document(page.as_uri(), **window)

    return open_page
