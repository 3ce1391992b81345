"""Every policy of LeRobot in this environment and in a newer one: the same actions, the first stage, the time.

    python benchmarks/upgrade_table.py --python=.venv-next/bin/python --markdown=docs/families-next.md
    python benchmarks/upgrade_table.py --python=.venv-next/bin/python --types=act,pi05 --size=full --dtype=bfloat16
    python benchmarks/upgrade_table.py --quick            this environment against itself: two types

Each type is built with random weights and compared as `strobe compare --variant 'next: python=…'` does: rounds in
alternation, actions on 16 observations, the first stage that differs, loss and gradient. A row of earlier runs stays
where its type is not among --types. Bar: every type that both environments can run has a verdict on its actions and
its time; with --quick also: nothing differs.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from common.shared import finish, need

from strobe.core.errors import UserError, error_line
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.results.answer import CompareResult
from strobe.core.studies.shared.measuring import Options
from strobe.core.studies.shared.progress import Silent
from strobe.environments.run import compare_environments
from strobe.environments.side import SideOptions
from strobe.environments.sides import SidesOptions
from strobe.lerobot.policies.lerobot_policies import known_types
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import PolicyOptions, Size

BEGIN, END = "<!-- upgrade: begin -->", "<!-- upgrade: end -->"
HEAD = ("type", "size", "acts the same", "RMS (σ)", "rounding (σ)", "first stage that differs", "gradient", "time")
PLUGINS = ("act_relative_rtc",)  # ours
QUICK = ("act", "pi05")


@dataclass(frozen=True)
class Row:
    """A type's cells, in the order of HEAD; ``judged``: whether its actions and its time have a verdict."""

    cells: tuple[str, ...]
    judged: bool
    differs: bool


def compare_type(kind: str, size: Size, dtype: str, python: str, seconds: float) -> Row:
    """Compare one type. What cannot run is a row too."""
    overrides = ["--device=cpu", *([f"--dtype={dtype}"] if dtype else [])]
    sides = [SideOptions("here"), SideOptions("next", python)]
    measuring = Options(SamplingBudget(seconds=seconds), counted=False)
    try:
        with tempfile.TemporaryDirectory() as folder:
            result = compare_environments(
                lambda: load_subject(PolicyOptions(type=kind, size=size, overrides=overrides)),
                SidesOptions(sides),
                measuring,
                Path(folder),
                Silent(),
            )
    except (UserError, NotImplementedError) as error:
        why = error_line(error, 160).replace("|", "/")
        return Row((kind, size, f"not compared: {why}", *["–"] * (len(HEAD) - 3)), False, False)
    finally:
        gc.collect()
    return make_row(kind, f"{size} {dtype}".strip(), result)


def make_row(kind: str, size: str, result: CompareResult) -> Row:
    """Return the row of a comparison."""
    (pair,), (one,) = result.comparisons, result.passes
    outcome = pair.outcome or "not judged"
    same, moved = pair.agreement, next(iter(result.yardsticks), None)
    first = "none" if one.first is None and one.compared else one.note
    if one.first is not None:
        first = f"{one.first.stage}: {one.first.place}"
    interval = pair.verdict.interval
    change = f"{_percent(pair.verdict.ratio)} [{_percent(interval.low)}, {_percent(interval.high)}]"
    gradient = "–" if pair.gradient is None or pair.gradient.error is None else f"{pair.gradient.error:.1e}"
    cells = (
        kind,
        size,
        outcome if outcome != "not judged" else f"not judged: {pair.unjudged}",
        "–" if same is None or same.rms is None else f"{same.rms:.1e}",
        "–" if moved is None else f"{moved.rms:.1e}",
        first.replace("|", "/")[:120],
        gradient,
        f"{pair.verdict.kind}: {change}",
    )
    return Row(cells, outcome != "not judged", one.first is not None or bool(one.settings))


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


def markdown_lines(rows: list[tuple[str, ...]]) -> list[str]:
    """Return a Markdown table."""
    return [_line(HEAD), _line(["---"] * len(HEAD)), *map(_line, rows)]


def _line(cells: tuple[str, ...] | list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def put(file: Path, rows: list[Row], about: str) -> None:
    """Put the rows between the file's markers; a row of the same type and size takes the place of an older one."""
    text = file.read_text()
    before, _, rest = text.partition(BEGIN)
    inside, _, after = rest.partition(END)
    old = [
        tuple(cell.strip() for cell in line.strip("|\n ").split("|")) for line in inside.splitlines() if line[:1] == "|"
    ]
    table = {(cells[0], cells[1].split()[0]): cells for cells in old[2:]}
    table |= {(row.cells[0], row.cells[1].split()[0]): row.cells for row in rows}
    made = "\n".join(markdown_lines([table[key] for key in sorted(table, key=lambda key: (key[1] != "tiny", key[0]))]))
    file.write_text(f"{before}{BEGIN}\n{about}\n\n{made}\n{END}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="", help="the other environment's interpreter (default: this one's)")
    parser.add_argument("--types", default="", help="some types, separated by commas (default: all)")
    parser.add_argument("--size", default="tiny", choices=("tiny", "full"))
    parser.add_argument("--dtype", default="", help="of the weights, where the policy's config has that setting")
    parser.add_argument("--seconds", type=float, default=10.0, help="for the rounds of a type")
    parser.add_argument("--markdown", type=Path, help="a file with markers, which gets the table")
    parser.add_argument("--about", default="", help="a line above the table: versions and machine")
    parser.add_argument("--quick", action="store_true", help="this environment against itself: two types")
    asked = parser.parse_args()
    need("pi")
    own = QUICK if asked.quick else tuple(kind for kind in known_types() if kind not in PLUGINS)
    rows: list[Row] = []
    for kind in [kind for kind in asked.types.split(",") if kind] or own:
        began = time.monotonic()
        rows.append(compare_type(kind, asked.size, asked.dtype, "" if asked.quick else asked.python, asked.seconds))
        print(f"{_line(rows[-1].cells)}  {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        if asked.markdown is not None:
            put(asked.markdown, rows, asked.about)
    print("\n".join(markdown_lines([row.cells for row in rows])))
    judged, differ = sum(row.judged for row in rows), sum(row.differs for row in rows)
    holds = judged == len(rows) and not (asked.quick and differ)
    finish({"quick": asked.quick, "types": len(rows), "judged": judged, "differ": differ}, holds)


if __name__ == "__main__":
    main()
