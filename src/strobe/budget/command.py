"""strobe budget: what stands between a policy's latency and a target rate?

Shows the latencies of each part for each number of denoising steps, and the line a + b × steps with its interval. It
shows how short each part must become to reach the target, and what you could try on it. For asynchronous execution
(Real-Time Chunking) it shows the delay in control ticks, the execution horizon and the age of the actions.

A target is reached if enough chunks are shown to be in time (--in-time, 95 % by default). A robot waits for each late
chunk, even if the median is short. Runs and sweeps contain each chunk's time. A table contains only its figures.

A RUN is the folder of a breakdown or a comparison of a policy with denoising steps, or of a sweep over them. It can
also be a table (.csv) of latencies from elsewhere, in milliseconds: steps,total,<part>,<part> …

Examples:
  strobe sweep breakdown --policy.type=pi05 --grid policy.num_inference_steps=1,2,5,10
  strobe budget runs/sweep_breakdown_pi05 --target-hz 20
  strobe budget runs/2026-11-21_0412_compare_pi05 --target-hz 20 --control-hz 50 --output budget.html
  strobe budget runs/2026-11-21_0412_compare_pi05 --output-dir runs          saved: `strobe report` shows it again
  strobe budget latencies.csv --target-hz 20
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from strobe.budget.run import budget
from strobe.core.cli.bounds import exclusive_minimum_bound, open_interval_bound, positional
from strobe.core.cli.flags import PageFlags
from strobe.core.cli.live import Live
from strobe.core.cli.runner import Command, Studied


@dataclass
class BudgetConfig(PageFlags):
    """Arguments and flags of `strobe budget`."""

    # Folders of runs or sweeps, or tables (.csv).
    runs: list[Path] = field(default_factory=list, metadata=positional("RUN…"))
    # The target, in chunks per second.
    target_hz: float = field(default=20.0, metadata=exclusive_minimum_bound(0, finite=True))
    # The robot's control rate in Hz.
    control_hz: float = field(default=30.0, metadata=exclusive_minimum_bound(0, finite=True))
    # Share of chunks that must be ready within one period of the target.
    in_time: float = field(default=0.95, metadata=open_interval_bound(0, 1))


def study(config: BudgetConfig, live: Live) -> Studied:
    """Compute the budget of the runs. Raises UserError."""
    answer = budget(config.runs, config.target_hz, config.control_hz, config.in_time)
    return Studied(answer, vars(config), config.output_dir, page=config.output)


run = Command("budget", __doc__, BudgetConfig, None, study, bar=False)
