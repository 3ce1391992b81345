"""The picture of the tour in README.md: what `make tour` prints, as an SVG of a terminal.

    python scripts/tour_svg.py [--stops=2,3] [--of FOLDER]

The tour runs in a temporary folder, as `make tour` runs it, until the last of the stops is done. --of takes the runs
that a tour has left in a folder, such as runs/tour, and shows them as they are printed today.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from strobe.core.kinds import document
from strobe.core.report.console import render_brief
from strobe.core.runs import store

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "tour.svg"
COLUMNS = 110
MOST_KB = 150  # a README should load at once
FOLDER = "runs/tour"  # where the tour leaves its runs
# Stop → its heading, and the end of its run's name.
STOPS = {
    2: ("where does ACT's time go?", "breakdown_act"),
    3: ("is ACT faster in OpenVINO, and does it act the same?", "compare_act"),
}
SHOWN = "2,3"


def main() -> int:
    """Run the tour, or read what one has left, and draw it; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = ", ".join(map(str, STOPS))
    parser.add_argument("--stops", default=SHOWN, metavar="N,…", help=f"of {known} (default: {SHOWN})")
    parser.add_argument("--of", type=Path, metavar="FOLDER", help="the folder of a tour that has run")
    asked = parser.parse_args()
    try:
        stops = [(number, *STOPS[number]) for number in map(int, asked.stops.split(","))]
    except (ValueError, KeyError):
        parser.error(f"--stops={asked.stops}: of {known}, separated by commas")
    if asked.of:
        drawn = picture(asked.of, stops)
    else:
        with tempfile.TemporaryDirectory() as folder:
            run_tour(Path(folder), max(number for number, _, _ in stops))
            drawn = picture(Path(folder) / FOLDER, stops)
    if len(drawn.encode()) > 1000 * MOST_KB:
        print(f"the picture would have {len(drawn) / 1000:.0f} kB, more than {MOST_KB}: fewer stops", file=sys.stderr)
        return 1
    PICTURE.write_text(drawn)
    print(f"{PICTURE.relative_to(ROOT)}: {len(drawn.encode()) / 1000:.0f} kB")
    return 0


def run_tour(folder: Path, last: int) -> None:
    """Run the tour in ``folder`` until stop ``last`` is done. Raises RuntimeError where it fails."""
    command = [sys.executable, "-u", str(ROOT / "scripts" / "tour.py")]  # a pipe would hold the headings back
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as tour:
        assert tour.stdout is not None
        for line in tour.stdout:
            heading = re.match(r"─+ (\d+)  ", line)
            if heading and int(heading[1]) > last:
                tour.kill()
                return
            print(line, end="", flush=True)
    if tour.returncode:
        raise RuntimeError(f"the tour failed with exit code {tour.returncode}")


def picture(folder: Path, stops: list[tuple[int, str, str]]) -> str:
    """The stops of the tour in ``folder`` as an SVG of a terminal. Raises UserError where a run is missing."""
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    console.print("$ make tour", style="bold", highlight=False)
    for number, heading, name in stops:
        runs = sorted(folder.glob(f"*_{name}"))
        answer = store.load_answer(runs[-1] if runs else folder / name)
        console.print()
        console.rule(f"{number}  {heading}")
        command = shlex.join(answer.command).replace(str(folder), FOLDER)
        console.print(Text(f"$ {command}"), highlight=False)
        render_brief(document(answer), console)
    drawn = console.export_svg(title="make tour", unique_id="tour")
    # Without its fonts from the network: a reader's own does.
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)


if __name__ == "__main__":
    sys.exit(main())
