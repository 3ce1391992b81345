"""The pictures of docs/images, taken of reports in headless Chromium.

    python scripts/screenshots.py [NAME …]     all of them, or those named, e.g. report.png

A report is rendered anew from its result.json, so that a picture shows what the page looks like today.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from strobe.kinds import page
from strobe.results import store

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
EXAMPLES = ROOT / "docs" / "examples"
WIDTH = 1100  # pixels
# Name of the picture → the run that it shows and the picture's height in pixels.
PICTURES = {
    "report.png": (EXAMPLES / "optimize-act", 1500),
    "evaluate.png": (EXAMPLES / "evaluate-button", 1400),
    "rehearsal.png": (EXAMPLES / "rehearse-smolvla", 1750),
}
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SETTLES_MS = 20_000  # of the page's own clock, which runs ahead while nothing is left to do


def main() -> int:
    """Take every picture; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PICTURES)} (default: all)")
    asked = parser.parse_args()
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print("no Chromium or Chrome on PATH", file=sys.stderr)
        return 2
    for name in asked.names or PICTURES:
        if name not in PICTURES:
            parser.error(f"no picture {name}: {', '.join(PICTURES)}")
        run, height = PICTURES[name]
        taken(browser, run, IMAGES / name, height)
        print(f"{IMAGES / name}: {run}")
    return 0


def taken(browser: str, run: Path, image: Path, height: int) -> None:
    """Write a picture of the first ``height`` pixels of a run's report. Raises CalledProcessError, TimeoutExpired."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.html"
        report.write_text(page(store.load_answer(run), None, run))
        command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        command += ["--hide-scrollbars", f"--user-data-dir={folder}/profile", f"--window-size={WIDTH},{height}"]
        command += [f"--virtual-time-budget={SETTLES_MS}", f"--screenshot={image}", report.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=300)


if __name__ == "__main__":
    sys.exit(main())
