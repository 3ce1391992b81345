"""strobe history: did a measurement become slower, and since which run?

Reads a folder of runs, or the commits of one run (--git), and finds trends with their change points. Runs that are
alike make a trend: the same study, measurement, policy, dtype, settings, inputs, device, cores and threads. Each run is
judged against the first runs of its trend. It runs nothing and takes seconds.

With --fail-on-regression it is a gate for CI: exit code 1 if a slow-down is shown and not fixed, 3 if a last run is
inconclusive.

Examples:
  strobe history runs
  strobe history runs --only act --fail-on-regression=5     (more than 5 % slower: a gate for CI)

More:
The reference is the first runs of a trend, or the first runs since the last gain that was shown, or since --accept.
Strobe estimates from the runs how far they, and levels that stay for some runs, differ by chance. The chance of a false
slow-down in 40 runs is about 5 %. If a run has other versions of packages, the answer names them. Each part has a
line of its own.

Exit code: 0. With --fail-on-regression it is 1 if a slow-down was shown, in the last run or before, and no later run
shows a gain that ends it. It is 3 if a last run is not judged: it cannot exclude a slow-down of 10 % (or of PERCENT, if
that is more), its slow-down may be another level of the machine, no run before it is like it, or it is broken or lacks
a measurement. --allow-not-judged turns 3 into 0.

Further examples:
  strobe history runs --output trends.html
  strobe history runs --fail-on-regression --accept=RUN      (slower since RUN, and meant to be)
  strobe history benchmarks/act --git                        (one run, under git: its result at every commit)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from strobe.core.cli.bounds import positional
from strobe.core.cli.flags import PageFlags, flag_values
from strobe.core.cli.live import Live
from strobe.core.cli.runner import Command, Studied
from strobe.core.cli.summaries import summary_of_run
from strobe.core.errors import UserError, legible
from strobe.core.runs import store
from strobe.core.runs.saved_runs import load_git_versions, measured_runs
from strobe.history.gates import GateFlags, gate
from strobe.history.history import gate as judge
from strobe.history.history import history


@dataclass
class HistoryConfig(PageFlags, GateFlags):
    """Arguments and flags of `strobe history`."""

    # A folder of runs; with --git, a run under git.
    folder: Path | None = field(default=None, metadata=positional("FOLDER"))
    # Read the run's result.json as it was at each commit.
    git: bool = False
    # Only runs whose subject's name or type contains this.
    only: str = ""
    # The times of this run and later ones are the reference.
    accept: str = ""


def study(config: HistoryConfig, live: Live) -> Studied:
    """Find the trends of the runs. Raises UserError."""
    assert config.folder is not None
    if config.git:
        runs, unread = load_git_versions(config.folder, summary_of_run)
    elif not config.folder.is_dir():
        raise UserError(f"no folder at {config.folder}: name the folder of the runs, such as runs")
    else:
        files = [(legible(name), file) for name, file in store.iter_results(config.folder)]
        files = live.each("reading runs", files, "runs")
        runs, unread = measured_runs(files, summary_of_run)
    wanted = config.only.lower()
    runs = [run for run in runs if wanted in f"{run.subject.name} {run.subject.kind}".lower()]
    trends = history(runs, legible(str(config.folder)), unread, config.accept)
    answer = Studied(trends, flag_values(config), config.output_dir, None, page=config.output)
    return gate(answer, config, lambda allowed: judge(trends, allowed))


run = Command("history", __doc__, HistoryConfig, None, study)
