"""The lines that lerobot-train prints while it trains: seconds by phase, the loss, the epochs, the learning rate."""

from __future__ import annotations

import re
from datetime import datetime
from math import isfinite
from pathlib import Path
from statistics import fmean

from pydantic import Field

from strobe.core.errors import UserError, error_line
from strobe.core.results.data import Data, Finite, mapping, optional
from strobe.core.untrusted import contents

# A line: its time, and the meters behind the samples.
_LINE = re.compile(r"(?:(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) \S+ )?step:\S+ smpl:\S+ ep:\S+ (epch:\S+ loss:[^\r\n]*)")
_METER = re.compile(r"(\S+):(\S+)")
PHASES = ("data_s", "prep_s", "updt_s")
LONGEST = 2**28  # bytes of a log
LEAST_S = 20.0  # seconds of a log from which its time stamps, which are whole seconds, give the time of a step


class TrainingLog(Data):
    """Lines of lerobot-train's log. Seconds are means of a step over the lines after the first one."""

    losses: list[Finite | None] = Field(description="mean loss of each line; None if it is infinite or not a number")
    seconds: dict[str, Finite] = mapping("LeRobot's name → seconds: data_s, prep_s (from 0.6.2 on), updt_s")
    wall_s: Finite | None = optional("seconds from step to step, by the lines' time stamps; None if not known")
    epochs: Finite | None = None
    learning_rate: Finite | None = None


def read_log(file: Path, every: object) -> TrainingLog:
    """Return what the lines of lerobot-train in ``file`` say.

    Args:
        every: steps from line to line, as train_config.json has it.

    Raises:
        UserError: the file cannot be read, or has no such line.
    """
    try:
        lines = _LINE.findall(contents(file, LONGEST).decode(errors="replace"))
        stamps = [datetime.fromisoformat(stamp) for stamp, _ in lines if stamp]
    except (OSError, ValueError) as error:
        raise UserError(f"--training_log={file} cannot be read: {error_line(error, 120)}") from None
    if not lines:
        raise UserError(f"--training_log={file} has no line of lerobot-train, such as step:200 smpl:2K … loss:0.5")
    rows = [{name: _finite(number) for name, number in _METER.findall(line)} for _, line in lines]
    seconds = {name: [row[name] for row in rows[1:] or rows if name in row] for name in PHASES}
    means = {name: fmean(known) for name, each in seconds.items() if (known := [ms for ms in each if ms is not None])}
    took_s = (stamps[-1] - stamps[0]).total_seconds() if len(stamps) == len(lines) else 0.0
    steps = (len(lines) - 1) * every if isinstance(every, int) and took_s >= LEAST_S else 0
    return TrainingLog(
        losses=[row.get("loss") for row in rows],
        seconds=means,
        wall_s=took_s / steps if steps > 0 else None,
        epochs=rows[-1].get("epch"),
        learning_rate=rows[-1].get("lr"),
    )


def _finite(text: str) -> float | None:
    try:
        return number if isfinite(number := float(text)) else None
    except ValueError:
        return None
