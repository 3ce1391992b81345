"""Say what changed between two runs of the same study, with intervals.

Exit code 0; with --fail-on-regression, 1 where a measurement was shown to be slower.

Examples:
  strobe diff runs/2026-11-20_1803_breakdown_act runs/2026-11-21_0412_breakdown_act
  strobe diff BEFORE AFTER --output changes.html
  strobe diff BEFORE AFTER --output-dir runs          (keep it: `strobe report` shows it again)
  strobe diff BEFORE AFTER --fail-on-regression       (any slow-down that is shown)
  strobe diff BEFORE AFTER --fail-on-regression=5     (one of more than 5 %)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from strobe.cli.arguments import Arguments, gate_flag, gated, keep_flag, page_flag
from strobe.cli.report import hand_over, page_shape
from strobe.kinds import advise
from strobe.results import store
from strobe.studies.diff import diff, regressed


def run(argv: Sequence[str]) -> int:
    """``strobe diff``; returns the exit code."""
    parser = Arguments("diff", __doc__)
    parser.add_argument("before", metavar="BEFORE", type=Path, help="a run folder, or its result.json")
    parser.add_argument("after", metavar="AFTER", type=Path, help="another run of the same study")
    gate = "exit with 1 where a measurement is shown to be slower (by more than PERCENT)"
    gate_flag(parser, gate)
    page_flag(parser)
    keep_flag(parser)
    asked = parser.parse_args(gated(argv))
    shape = page_shape(asked.output)
    difference = diff(store.load(asked.before), store.load(asked.after))
    difference.command = ["strobe", "diff", *argv]
    difference.findings = advise(difference)
    hand_over(difference, shape, asked.output, asked.output_dir)
    limit = asked.fail_on_regression
    if limit is None or not regressed(difference, limit / 100):
        return 0
    print(f"\nregression: slower by more than {limit:g} %" if limit else "\nregression: slower")
    return 1
