"""The pictures of docs/images, taken of reports in headless Chromium.

    python scripts/screenshots.py [NAME …]     all of them, or those named, e.g. report.png

A report is rendered again from its result.json, so that a picture shows what the page looks like today.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from strobe.core.cli import report
from strobe.core.errors import UserError
from strobe.core.kinds import page
from strobe.core.report.picture import photograph
from strobe.core.runs import store

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
EXAMPLES = ROOT / "docs" / "examples"
WIDTH = 1100  # pixels
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
        if height is None:
            report.run([str(run), "--format=png", f"--output={IMAGES / name}"])
            continue
        try:
            (IMAGES / name).write_bytes(photograph(page(store.load_answer(run), None, run), WIDTH, height))
        except UserError as error:
            print(error, file=sys.stderr)
            return 2
        print(f"{IMAGES / name}: {run}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
