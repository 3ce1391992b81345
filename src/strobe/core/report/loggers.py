"""An answer's figures for Trackio or W&B."""

from __future__ import annotations

import importlib
import shlex
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from strobe.core.errors import UserError, nearest

if TYPE_CHECKING:  # classes of answers, which the flags of a command do without
    from strobe.core.results.answer import Answer

LOGGERS = ("trackio", "wandb")
DEEPEST = 2  # levels of parts that are logged


def require_logger(tool: str) -> None:
    """Raise UserError for a tool that is unknown or not installed."""
    if tool not in LOGGERS:
        raise UserError(f"--log={tool}: {nearest(tool, LOGGERS)}")
    if find_spec(tool) is None:
        raise UserError(f"--log={tool} needs a package: pip install {tool}")


def figures(answer: Answer) -> dict[str, float]:
    """Return what is logged, by name: milliseconds, chunks or steps per second, shares from 0 to 1."""
    from strobe.core.results.answer import Result

    logged: dict[str, float] = {"duration_s": answer.duration_s}
    if not isinstance(answer, Result):
        return logged
    for measurement in answer.measurements:
        if not measurement.samples.values:
            continue
        summary = measurement.samples.summary
        logged |= {f"{measurement.name}/median_ms": summary.median, f"{measurement.name}/p95_ms": summary.p95}
        if summary.median > 0:
            logged[f"{measurement.name}/per_s"] = 1e3 / summary.median
        for part in measurement.components:
            if part.depth <= DEEPEST:
                logged[f"{measurement.name}/{'/'.join(part.path)}/median_ms"] = part.summary.median
    for judged in answer.judged_comparisons():
        logged[f"{judged.candidate} vs {judged.baseline}/ratio"] = judged.verdict.ratio
    return logged


def log(answer: Answer, tool: str, project: str, name: str, space_id: str | None = None) -> None:
    """Log an answer as one run of ``project``. Raises what the tool raises: no account, no network.

    Args:
        space_id: the Space on the Hub that Trackio logs to; None for files of this machine.
    """
    from strobe.core.results.answer import Result

    library: Any = importlib.import_module(tool)
    config: dict[str, object] = {
        "study": answer.study,
        "command": shlex.join(answer.command),
        "strobe": answer.strobe_version,
    }
    if answer.machine is not None:
        config["machine"] = answer.machine.device_name or answer.machine.cpu
    if isinstance(answer, Result):
        config |= {"subject": answer.subject.name, "type": answer.subject.kind, "weights": answer.subject.source}
    where = {"space_id": space_id} if space_id else {}
    library.init(project=project, name=name, config=config, **where)
    library.log(figures(answer))
    library.finish()
