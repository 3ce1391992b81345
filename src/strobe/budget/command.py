"""strobe budget: how many denoising steps fit a target rate, and what has to become faster?

Reads measured runs and starts no new measurement. It says how many denoising steps are in time for --target-hz, fits
the line a + b × steps with its interval, and shows how short each part would have to become. For asynchronous execution
(Real-Time Chunking, RTC) it gives the delay in control ticks, the fewest actions to execute of each chunk, and the
observation age.

A RUN is the folder of a sweep over denoising steps, of a breakdown, a comparison or an optimization of a policy with
denoising steps, or a table (.csv) of latencies in milliseconds: steps,total,<part>,<part> …

Examples:
  strobe budget runs/sweep_breakdown_pi05 --target-hz 20
  strobe budget latencies.csv --target-hz 20 --control-hz 50 --output budget.html

More:
The sweep comes from: strobe sweep breakdown --policy.type=pi05 --grid policy.num_inference_steps=1,2,5,10

A target is reached if enough chunks are shown to be in time (--in-time, 95 % by default). A robot waits for each late
chunk, even if the median is short. Runs and sweeps contain each chunk's time; a table contains only medians.

With --output-dir the budget is saved as a run, and `strobe report` shows it again.
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
