"""The pictures of docs/images, taken of reports in headless Chromium.

    python scripts/screenshots.py [NAME …]     all of them, or those named, e.g. report.png

A report is rendered again from its result.json, so that a picture shows what the page looks like today.
"""

from __future__ import annotations

import argparse
import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from PIL import Image, ImageChops

from strobe.core.errors import UserError
from strobe.core.kinds import document, figures, page
from strobe.core.report import html
from strobe.core.report.charts import Plot
from strobe.core.report.document import Document
from strobe.core.runs import store

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
EXAMPLES = ROOT / "docs" / "examples"
WIDTH = 1100  # pixels
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FIGURE_WIDTH, ABOVE, MARGIN = 1200, 700, 32  # pixels: the picture's width; headline, caption, machine; below them
SETTLED_MS = 20_000  # time by the page's own clock, which runs as fast as it can
PATIENCE_S = 120
FACTS = ("Subject", "Machine")
# Name of the picture → the run that it shows and the picture's height in pixels; None for the main figure alone.
PICTURES: dict[str, tuple[Path, int | None]] = {
    "report.png": (EXAMPLES / "optimize-act", None),
    "evaluate.png": (EXAMPLES / "evaluate-button", 1400),
    "rehearsal.png": (EXAMPLES / "rehearse-smolvla", 1750),
    "rehearsal-findings.png": (EXAMPLES / "rehearse-smolvla", 900),
}


def main() -> int:
    """Take every picture; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PICTURES)} (default: all)")
    asked = parser.parse_args()
    for name in asked.names or PICTURES:
        if name not in PICTURES:
            parser.error(f"no picture {name}: {', '.join(PICTURES)}")
        run, height = PICTURES[name]
        answer = store.load_answer(run)
        try:
            if height is None:
                draw_main_figure(IMAGES / name, document(answer), figures(answer))
            else:
                (IMAGES / name).write_bytes(photograph(page(answer, None, run), WIDTH, height))
        except UserError as error:
            print(error, file=sys.stderr)
            return 2
        print(f"{IMAGES / name}: {run}")
    return 0


def draw_main_figure(path: Path, document: Document, plots: Mapping[str, Sequence[Plot]]) -> None:
    """Write the first figure with its headline.

    Raises:
        UserError: the answer has no figure, or there is no browser.
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
    page = html.render(figure_only, {section.key: [figure]})
    _write_trimmed(photograph(page, FIGURE_WIDTH, int(figure.layout.get("height", 450)) + ABOVE), path)


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
    with Image.open(io.BytesIO(drawn)) as picture:
        whole = picture.convert("RGB")
    ground = Image.new("RGB", whole.size, whole.getpixel((0, 0)))
    drawn_on = ImageChops.difference(whole, ground).getbbox()
    bottom = whole.height if drawn_on is None else min(whole.height, drawn_on[3] + MARGIN)
    whole.crop((0, 0, whole.width, bottom)).save(path, format="PNG")


if __name__ == "__main__":
    sys.exit(main())
