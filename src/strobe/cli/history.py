"""How did the same measurement change from run to run? Trends over a folder of runs, or over commits, with a gate.

Runs that are alike make a trend: the same study, measurement, policy, checkpoint, dtype, settings, inputs, device,
cores and threads. Each run is judged against the first runs of its trend, or the first since the last gain that was
shown, or since --accept. How far runs differ among themselves is seen from the runs. The chance of any false change in
40 runs is 5 % at most. A run of other versions names them. Parts have a line of their own.

Exit code 0. With --fail-on-regression 1 where a slow-down was shown, in the last run or before, and is not mended; 3
where a last run is not judged: it cannot exclude a slow-down of 10 % (of PERCENT, where that is more), no run before it
is like it, or it is broken or lacks a measurement. --allow-not-judged makes that 0.

Examples:
  strobe history runs
  strobe history runs --output trends.html
  strobe history runs --only act --fail-on-regression=5     (more than 5 % slower: a gate for CI)
  strobe history runs --fail-on-regression --accept=RUN      (slower since RUN, and meant to be)
  strobe history benchmarks/act --git                        (one run, under git: its result at every commit)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from strobe.cli.arguments import Arguments, keep_flag, page_flag
from strobe.cli.gates import bare, close, gate_flags
from strobe.cli.report import hand_over, page_shape
from strobe.studies.history import gate, history
from strobe.studies.kept_runs import in_folder, in_git


def run(argv: Sequence[str]) -> int:
    """``strobe history``; returns the exit code."""
    parser = Arguments("history", __doc__)
    parser.add_argument("runs", metavar="FOLDER", type=Path, help="a folder of runs; with --git, a run under git")
    parser.add_argument("--git", action="store_true", help="the run's result.json as it was at each commit")
    parser.add_argument("--only", metavar="TEXT", default="", help="runs whose subject's name or type has this in it")
    parser.add_argument("--accept", metavar="RUN", default="", help="from this run on its times are the reference")
    gate_flags(parser, "exit with 1 where a slow-down (of more than PERCENT) is shown and not mended")
    page_flag(parser)
    keep_flag(parser)
    asked = parser.parse_args(bare(argv))
    shape = page_shape(asked.output)
    runs, unread = in_git(asked.runs) if asked.git else in_folder(asked.runs)
    wanted = asked.only.lower()
    runs = [one for one in runs if wanted in f"{one.result.subject.name} {one.result.subject.kind}".lower()]
    found = history(runs, str(asked.runs), unread, asked.accept)
    found.command = ["strobe", "history", *argv]
    hand_over(found, shape, asked.output, asked.output_dir)
    if asked.fail_on_regression is None:
        return 0
    return close(gate(found, asked.fail_on_regression / 100), asked.allow_not_judged)
