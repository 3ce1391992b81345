"""strobe diff: what changed between two runs of the same study?

Compares each measurement and each of its parts in BEFORE and AFTER, with intervals, and names what else differs:
settings, versions, machine. It runs nothing and takes a second.

With --fail-on-regression it is a gate for CI: exit code 1 if a measurement is shown to be slower, and 3 if a
measurement is inconclusive.

Examples:
  strobe diff runs/2026-11-20_1803_breakdown_act runs/2026-11-21_0412_breakdown_act
  strobe diff BEFORE AFTER --fail-on-regression=5     (a slow-down of more than 5 %)

More:
A measurement is not judged if its samples are too few or too noisy to exclude a slow-down of 10 % (or of PERCENT, if
that is more), if the runs measured different work, or if one of them lacks it. --allow-not-judged turns exit code 3
into 0.

Further examples:
  strobe diff BEFORE AFTER --output changes.html
  strobe diff BEFORE AFTER --output-dir runs          (saved: `strobe report` shows it again)
  strobe diff BEFORE AFTER --fail-on-regression       (any slow-down that is shown)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from strobe.core.cli.bounds import positional
from strobe.core.cli.flags import PageFlags, flag_values
from strobe.core.cli.live import Live
from strobe.core.cli.runner import Command, Studied
from strobe.core.runs import store
from strobe.history.diff import diff
from strobe.history.diff import gate as judge
from strobe.history.gates import GateFlags, gate


@dataclass
class DiffConfig(PageFlags, GateFlags):
    """Arguments and flags of `strobe diff`."""

    # A run folder, or its result.json.
    before: Path | None = field(default=None, metadata=positional("BEFORE"))
    # Another run of the same study.
    after: Path | None = field(default=None, metadata=positional("AFTER"))


def study(config: DiffConfig, live: Live) -> Studied:
    """Compare the two runs. Raises UserError."""
    assert config.before is not None
    assert config.after is not None
    difference = diff(store.load(config.before), store.load(config.after))
    answer = Studied(difference, flag_values(config), config.output_dir, page=config.output)
    return gate(answer, config, lambda allowed: judge(difference, allowed))


run = Command("diff", __doc__, DiffConfig, None, study, bar=False)
