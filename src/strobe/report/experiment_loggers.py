"""An answer in Weights & Biases or trackio, where a training's own figures are: its times, rates and success."""

from __future__ import annotations

import importlib
import shlex
from importlib.util import find_spec
from typing import Any

from strobe.errors import UserError, nearest
from strobe.results.answer import Answer, Result
from strobe.results.evaluate import EvaluateResult

TOOLS = ("wandb", "trackio")
DEEPEST = 2  # levels of parts that are logged


def require(tool: str) -> None:
    """Raise UserError for a tool that is unknown or not installed."""
    if tool not in TOOLS:
        raise UserError(f"--log={tool}: {nearest(tool, TOOLS)}")
    if find_spec(tool) is None:
        raise UserError(f"--log={tool} needs a package: pip install {tool}")


def figures(answer: Answer) -> dict[str, float]:
    """Return what is logged, by name: milliseconds, chunks or steps per second, shares from 0 to 1."""
    found: dict[str, float] = {"duration_s": answer.duration_s}
    if not isinstance(answer, Result):
        return found
    for one in answer.measurements:
        if not one.samples.values:
            continue
        summary = one.samples.summary
        found |= {f"{one.name}/median_ms": summary.median, f"{one.name}/p95_ms": summary.p95}
        if summary.median > 0:
            found[f"{one.name}/per_s"] = 1e3 / summary.median
        for part in one.components:
            if part.depth <= DEEPEST:
                found[f"{one.name}/{'/'.join(part.path)}/median_ms"] = part.summary.median
    for judged in answer.judged():
        found[f"{judged.candidate} vs {judged.baseline}/ratio"] = judged.verdict.ratio
    if isinstance(answer, EvaluateResult):
        found |= {f"{one.name}/success": one.together.success.rate for one in answer.variants}
    return found


def log(answer: Answer, tool: str, project: str, name: str) -> None:
    """Log an answer as one run of ``project``. Raises what the tool raises: no account, no network."""
    library: Any = importlib.import_module(tool)
    config: dict[str, Any] = {
        "study": answer.study,
        "command": shlex.join(answer.command),
        "strobe": answer.strobe_version,
    }
    if answer.machine is not None:
        config["machine"] = answer.machine.device_name or answer.machine.cpu
    if isinstance(answer, Result):
        config |= {"subject": answer.subject.name, "type": answer.subject.kind, "weights": answer.subject.source}
    library.init(project=project, name=name, config=config)
    library.log(figures(answer))
    library.finish()
