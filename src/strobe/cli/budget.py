"""strobe budget: what stands between a policy's latency and a target rate?

Shows latencies by part for each number of denoising steps, the line a + b × steps with its interval, what each part
would have to fall to for the target, what could be tried on it, and what asynchronous execution (Real-Time Chunking)
makes of it: delay in control ticks, execution horizon, age of the actions.

A target is reached where enough chunks are shown to be in time (--in-time, 95 % unless given): a robot waits for the
late ones, whatever the median is. Runs and sweeps keep each chunk's time; of a table only its figures are known.

A RUN is the folder of a breakdown or a comparison of a policy with denoising steps, of a sweep over them, or a table
(.csv) of latencies measured elsewhere, in milliseconds: steps,total,<part>,<part> …

Examples:
  strobe sweep breakdown --policy.type=pi05 --grid policy.num_inference_steps=1,2,5,10
  strobe budget runs/sweep_breakdown_pi05 --target-hz 20
  strobe budget runs/2026-11-21_0412_compare_pi05 --target-hz 20 --control-hz 50 --output budget.html
  strobe budget runs/2026-11-21_0412_compare_pi05 --output-dir runs          keep it: `strobe report` shows it again
  strobe budget latencies.csv --target-hz 20
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from strobe.cli.arguments import Arguments, keep_flag, page_flag, rate, share
from strobe.cli.report import hand_over, page_shape
from strobe.kinds import advise
from strobe.studies.budget import budget


def run(argv: Sequence[str]) -> int:
    """``strobe budget``; returns the exit code."""
    parser = Arguments("budget", __doc__)
    parser.add_argument("runs", metavar="RUN", type=Path, nargs="+", help="a run folder, a sweep's, or a table (.csv)")
    parser.add_argument(
        "--target-hz", "--target_hz", type=rate, default=20.0, metavar="HZ", help="chunks per second (20)"
    )
    parser.add_argument(
        "--control-hz", "--control_hz", type=rate, default=30.0, metavar="HZ", help="the robot's control rate (30)"
    )
    parser.add_argument(
        "--in-time", "--in_time", type=share, default=0.95, metavar="SHARE",
        help="share of chunks that must be ready within a period of the target (0.95)",
    )  # fmt: skip
    page_flag(parser)
    keep_flag(parser)
    asked = parser.parse_args(argv)
    shape = page_shape(asked.output)
    found = budget(asked.runs, asked.target_hz, asked.control_hz, asked.in_time)
    found.command = ["strobe", "budget", *argv]
    found.findings = advise(found)
    hand_over(found, shape, asked.output, asked.output_dir)
    return 0
