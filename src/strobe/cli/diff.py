"""Say what changed between two runs of the same study, with intervals.

Exit code 0. With --fail-on-regression 1 where a measurement is shown to be slower, and 3 where one is not judged: its
samples are too few or too noisy to exclude a slow-down of 10 % (of PERCENT, where that is more), the runs measured
different work, or one of them lacks it. --allow-not-judged makes that 0.

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

from strobe.cli.arguments import Arguments, keep_flag, page_flag
from strobe.cli.gates import bare, close, gate_flags
from strobe.cli.report import hand_over, page_shape
from strobe.kinds import advise
from strobe.runs import store
from strobe.studies.diff import diff, gate


def run(argv: Sequence[str]) -> int:
    """``strobe diff``; returns the exit code."""
    parser = Arguments("diff", __doc__)
    parser.add_argument("before", metavar="BEFORE", type=Path, help="a run folder, or its result.json")
    parser.add_argument("after", metavar="AFTER", type=Path, help="another run of the same study")
    gate_flags(parser, "exit with 1 where a measurement is shown to be slower (by more than PERCENT)")
    page_flag(parser)
    keep_flag(parser)
    asked = parser.parse_args(bare(argv))
    shape = page_shape(asked.output)
    difference = diff(store.load(asked.before), store.load(asked.after))
    difference.command = ["strobe", "diff", *argv]
    difference.findings = advise(difference)
    hand_over(difference, shape, asked.output, asked.output_dir)
    if asked.fail_on_regression is None:
        return 0
    return close(gate(difference, asked.fail_on_regression / 100), asked.allow_not_judged)
