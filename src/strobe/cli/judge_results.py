"""`strobe evaluate --results`: lerobot-eval's own runs judged; nothing is played, and no policy is loaded."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from strobe.cli.bounds import between
from strobe.cli.parse import help_text, parse, split_subject
from strobe.errors import UserError
from strobe.findings.thresholds import Thresholds


@dataclass
class JudgeConfig:
    # lerobot-eval's eval_info.json, or folders of its runs, separated by commas; the first is judged against.
    results: str = ""
    # All runs had the same --seed and --env, so that episode i of each task began alike in all: judge in pairs.
    same_seeds: bool = False
    # Loss of success rate that counts as not worse, in shares of 1: 0.1 is 10 points.
    margin: float = field(default=0.1, metadata=between(0, 1))
    # Where run folders go.
    output_dir: Path = Path("runs")
    # Limits at which findings fire.
    thresholds: Thresholds = field(default_factory=Thresholds)


def asked(argv: Sequence[str]) -> bool:
    """Whether the command is about runs that were played already."""
    return any(flag == "--results" or flag.startswith("--results=") for flag in argv)


def help() -> str:
    """The flags that only this way of judging has."""
    return help_text("Runs of lerobot-eval, judged as they are:", JudgeConfig, ["margin", "output_dir", "thresholds"])


def run(argv: Sequence[str]) -> int:
    """Judge and keep. Raises UserError."""
    from strobe.cli.keep import complete, keep, plain
    from strobe.studies.evaluate import eval_info
    from strobe.studies.evaluate.judge import judge

    started = time.monotonic()
    flags, rest = split_subject(argv)
    if flags.path or flags.type:
        raise UserError("--results judges what was played already: leave out --policy.*")
    config = parse(JudgeConfig, rest)
    answer = judge(eval_info.find(config.results), config.margin, config.same_seeds)
    complete(answer, ["evaluate", *argv], started, plain(config), config.thresholds)
    keep(answer, config.output_dir)
    return 0
