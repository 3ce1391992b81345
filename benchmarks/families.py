"""Every type of policy that the installed LeRobot has, and what Strobe can do with it: one row each, measured here.

For each type, on its tiny version: a chunk and a training forward pass with their named parts and the time and FLOP
that is in none of them; every exact treatment that Strobe offers it, compared with the baseline; Real-Time
Chunking; the longest stretch of it that a CUDA graph holds, played on the CPU. At full size, with random weights: the
memory of its weights, and its first chunk where they fit. Nothing is read from the Hub.

    python benchmarks/families.py [--quick] [--types=act,pi05] [--markdown=docs/families.md]

The last line is JSON. `--quick` leaves the full sizes out. `--markdown` puts the table between the file's markers; with
`--types` only those rows are made again.
Bars: each type gives a chunk and, where its loss is a policy's own, a training forward pass; at most 1 % of the FLOP
are in no named part, and at full size at most 5 % of the time; each exact treatment is exact; RTC guides wherever
LeRobot says it does.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

from common.shared import finish
from policies.families_table import Looked, check_guidance, compare_treated, find_longest_capture, look

from strobe.core.errors import UserError
from strobe.core.processes import isolate
from strobe.core.treatments import catalogue
from strobe.lerobot.policies.lerobot_policies import known_types

UNSEEN, OTHER = 0.01, 0.05
LIMIT_S, FULL_S = 300.0, 300.0
BEGIN, END = "<!-- families: begin -->", "<!-- families: end -->"


@dataclass
class Row:
    """One type: what it showed, and what is wrong with it, each in words."""

    kind: str
    tiny: Looked | None = None
    full: Looked | None = None
    memory: str = ""
    exact: dict[str, str] = field(default_factory=dict)
    rtc: str = "–"
    graph: str = "–"
    wrong: list[str] = field(default_factory=list)

    def cells(self) -> list[str]:
        """The row, as text."""
        if self.tiny is None:
            return [self.kind, *["–"] * 8, "; ".join(self.wrong)]
        training = self.tiny.training
        other = f"{self.full.inference.other:.1%}" if self.full else f"({self.tiny.inference.other:.0%} tiny)"
        return [
            self.kind,
            f"{self.tiny.inference.ms:,.0f} ms",
            f"{training.ms:,.0f} ms" if training else self.tiny.untrained,
            self.memory or "not tried",
            ", ".join(self.tiny.inference.names),
            other,
            ", ".join(name for name, found in self.exact.items() if found == "") or "–",
            self.rtc,
            self.graph,
            "; ".join(self.wrong) or "holds",
        ]


HEADS = [
    "type", "tiny chunk", "tiny training forward", "full size", "parts of a chunk", "in no part", "exact treatments",
    "RTC", "in a graph", "",
]  # fmt: skip


def ask_isolated(row: Row, what: str, call: Any, *arguments: Any, limit_s: float = LIMIT_S) -> Any:
    """Return an answer of a process of its own; None where there is none, which is written down as wrong."""
    try:
        return isolate.run(call, *arguments, limit_s=limit_s)
    except (UserError, isolate.IsolatedCallError) as error:
        row.wrong.append(f"{what}: {error}")
        return None


def measure_type(kind: str, quick: bool) -> Row:
    """Return the row of one type."""
    row = Row(kind)
    row.tiny = ask_isolated(row, "tiny", look, kind, "tiny")
    if row.tiny is None:
        return row
    for phase in (row.tiny.inference, row.tiny.training):
        if phase is not None and phase.unseen > UNSEEN:
            row.wrong.append(f"{phase.unseen:.0%} of the FLOP are in no named part")
    for spec in row.tiny.exact:
        name = catalogue.format_spec(spec)
        found = ask_isolated(row, name, compare_treated, kind, spec)
        row.exact[name] = "failed" if found is None else found
        if found not in (None, "", "-"):
            row.wrong.append(f"{name}: {found}")
    if row.tiny.rtc:
        row.rtc = ask_isolated(row, "RTC", check_guidance, kind) or "failed"
        if not row.rtc.startswith("guided"):
            row.wrong.append(f"RTC: {row.rtc}")
    row.graph = ask_isolated(row, "graph", find_longest_capture, kind) or "failed"
    if not quick:
        full_size(row)
    return row


def full_size(row: Row) -> None:
    """Add the full size: a chunk, or the line that says how much memory it takes."""
    try:
        row.full = isolate.run(look, row.kind, "full", limit_s=FULL_S)
    except UserError as error:
        said = str(error)
        row.memory = said.partition(": ")[2].partition(";")[0] or said
        if "GiB" not in said:
            row.wrong.append(f"full size: {said}")
        return
    except isolate.IsolatedCallError as error:
        row.memory = str(error)
        if "no answer" not in row.memory:  # a slow machine is not the policy's fault
            row.wrong.append(f"full size: {error}")
        return
    row.memory = f"{row.full.parameters / 1e9:.2f} B, {row.full.gib:.1f} GiB, {row.full.inference.ms:,.0f} ms"
    if row.full.inference.other > OTHER:
        row.wrong.append(f"{row.full.inference.other:.0%} of the time at full size is in no named part")


def markdown(rows: list[Row]) -> str:
    """Return the table as Markdown, with the versions it was measured on."""
    lines = [
        f"LeRobot {version('lerobot')}, torch {version('torch')}, on a CPU.",
        "",
        "| " + " | ".join(HEADS[:-1]) + " |",
        "|" + "---|" * (len(HEADS) - 1),
    ]
    lines += ["| " + " | ".join(row.cells()[:-1]) + " |" for row in rows]
    return "\n".join(lines)


def put(file: Path, rows: list[Row]) -> None:
    """Put the table of ``rows`` between the file's markers; rows of other types stay as an earlier run made them."""
    text, head = file.read_text(), markdown([])
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    lines = [*text[begin:end].splitlines(), *markdown(rows).splitlines()]
    by_type = {line.split(" | ")[0]: line for line in lines if line.startswith("| ") and line not in head}
    file.write_text("\n".join([text[:begin], head, *sorted(by_type.values()), text[end:]]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny versions only")
    parser.add_argument("--types", default="", help="some types, separated by commas")
    parser.add_argument("--markdown", type=Path, help="a file with markers, which gets the table")
    told = parser.parse_args()
    own = [kind for kind in known_types() if kind not in ("act_relative_rtc",)]  # ours, a plug-in
    kinds = [kind for kind in told.types.split(",") if kind] or own
    isolate.start_server(("policies.families_table", "lerobot.policies.factory"))
    rows: list[Row] = []
    try:
        for kind in kinds:
            rows.append(measure_type(kind, told.quick))
            print(f"{len(rows)}/{len(kinds)} {' | '.join(rows[-1].cells())}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print("interrupted: what was measured follows", file=sys.stderr)
    print(markdown(rows))
    if told.markdown is not None:
        put(told.markdown, rows)
    wrong = {row.kind: row.wrong for row in rows if row.wrong}
    holds = not wrong and len(rows) == len(kinds)
    finish({"lerobot": version("lerobot"), "types": len(rows), "full": not told.quick, "wrong": wrong}, holds)


if __name__ == "__main__":
    main()
