"""How did the same measurement change from run to run? Trends over a folder of runs, or over commits, with a gate.

Runs of the same study, measurement, subject and machine make a trend. Each run is judged against those since the last
change; a change is told only where it is shown, with 5 % for any false one in a trend. Parts have a line of their own.

Exit code 0; with --fail-on-regression, 1 where a trend's last run is shown to be slower than those before it.

Examples:
  strobe history runs
  strobe history runs --output trends.html
  strobe history runs --only act --fail-on-regression=5     (more than 5 % slower: a gate for CI)
  strobe history benchmarks/act --git                        (one run, under git: its result at every commit)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from strobe.cli.arguments import Arguments, gate_flag, gated, keep_flag, page_flag
from strobe.cli.report import hand_over, page_shape
from strobe.studies.history import history, in_folder, in_git, regressed


def run(argv: Sequence[str]) -> int:
    """``strobe history``; returns the exit code."""
    parser = Arguments("history", __doc__)
    parser.add_argument("runs", metavar="FOLDER", type=Path, help="a folder of runs; with --git, a run under git")
    parser.add_argument("--git", action="store_true", help="the run's result.json as it was at each commit")
    parser.add_argument("--only", metavar="TEXT", default="", help="runs whose subject's name or type has this in it")
    gate = "exit with 1 where a trend's last run is shown to be slower (by more than PERCENT)"
    gate_flag(parser, gate)
    page_flag(parser)
    keep_flag(parser)
    asked = parser.parse_args(gated(argv))
    shape = page_shape(asked.output)
    runs, left_out = in_git(asked.runs) if asked.git else in_folder(asked.runs)
    wanted = asked.only.lower()
    runs = [one for one in runs if wanted in f"{one.result.subject.name} {one.result.subject.kind}".lower()]
    found = history(runs, str(asked.runs), left_out)
    found.command = ["strobe", "history", *argv]
    hand_over(found, shape, asked.output, asked.output_dir)
    limit = asked.fail_on_regression
    slower = [] if limit is None else regressed(found, limit / 100)
    for trend in slower:
        print(f"\nregression: {trend.subject}, {trend.measured}, in {trend.points[-1].run}")
    return int(bool(slower))
