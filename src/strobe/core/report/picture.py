"""The main figure of an answer as a PNG, drawn by the browser that is there."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from strobe.core.errors import UserError, os_error_reason
from strobe.core.report import html
from strobe.core.report.charts import Plot
from strobe.core.report.document import Document

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
WIDTH, ABOVE, MARGIN = 1200, 700, 32  # pixels: the picture's width; headline, caption, machine; below them
SETTLED_MS = 20_000  # time by the page's own clock, which runs as fast as it can
PATIENCE_S = 120
FACTS = ("Subject", "Machine")


def write(path: Path, document: Document, plots: Mapping[str, Sequence[Plot]]) -> None:
    """Write the first figure with its headline.

    Raises:
        UserError: the answer has no figure, there is no browser, or the file cannot be written.
    """
    section = next((section for section in document.sections if plots.get(section.key)), None)
    if section is None:
        raise UserError("this answer has no figure")
    figure = plots[section.key][0]
    figure_only = replace(
        document,
        answers=document.answers[:1],
        findings=[],
        sections=[replace(section, table=None, text=[], clips=())],
        notes=[],
        facts=[pair for pair in document.facts if pair[0] in FACTS],
        raw=[],
    )
    if not os.access(path.parent, os.W_OK):
        raise UserError(f"cannot write {path}: the folder does not exist, or you may not write there")
    page = html.render(figure_only, {section.key: [figure]})
    drawn = photograph(page, WIDTH, int(figure.layout.get("height", 450)) + ABOVE)
    try:
        _write_trimmed(drawn, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {os_error_reason(error)}") from None


def photograph(page: str, width: int, height: int) -> bytes:
    """Return a PNG of the first ``height`` pixels of an HTML page, ``width`` pixels wide, once its plots are drawn.

    Raises:
        UserError: there is no browser, or it draws nothing.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise UserError("Chromium or Chrome draws the picture, and neither is on the PATH: apt-get install chromium")
    with tempfile.TemporaryDirectory() as scratch:
        source, drawn = Path(scratch) / "page.html", Path(scratch) / "figure.png"
        source.write_text(page, encoding="utf-8")
        command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        command += ["--hide-scrollbars", f"--user-data-dir={scratch}/profile", f"--window-size={width},{height}"]
        command += [f"--virtual-time-budget={SETTLED_MS}", f"--screenshot={drawn}", source.as_uri()]
        try:
            subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False)
        except subprocess.TimeoutExpired:
            raise UserError(f"{browser} drew nothing within {PATIENCE_S} s") from None
        if not drawn.is_file():
            raise UserError(f"{browser} drew nothing")
        return drawn.read_bytes()


def _write_trimmed(drawn: bytes, path: Path) -> None:
    """Write a picture without the empty ground below what is drawn."""
    from PIL import Image, ImageChops

    with Image.open(io.BytesIO(drawn)) as picture:
        whole = picture.convert("RGB")
    ground = Image.new("RGB", whole.size, whole.getpixel((0, 0)))
    drawn_on = ImageChops.difference(whole, ground).getbbox()
    bottom = whole.height if drawn_on is None else min(whole.height, drawn_on[3] + MARGIN)
    whole.crop((0, 0, whole.width, bottom)).save(path, format="PNG")
