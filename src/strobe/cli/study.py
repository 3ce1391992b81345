"""A measuring command from its flags to its run: what breakdown, compare and optimize share."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from strobe.cli.flags import RunConfig, SubjectFlags
from strobe.cli.gates import EXIT_CODES
from strobe.cli.live import Live
from strobe.cli.parse import ModelFlags, help_text, model_help, policy_help

if TYPE_CHECKING:
    from strobe.results.agreement import Outcome
    from strobe.results.answer import Result
    from strobe.timeline.timeline import Section


@dataclass
class Studied:
    """A study's result, with the flags that asked for it and what else its folder holds."""

    result: Result
    flags: SubjectFlags
    config: RunConfig
    sections: Sequence[Section] = ()
    profiled: list[dict[str, Any]] | None = None  # torch.profiler's events, for the trace
    files: dict[str, bytes] = field(default_factory=dict)  # name → content of what profilers left
    outcome: Outcome = "held"  # of what was asked about: broken is exit code 1, not judged 3
    made_of: Callable[[Result], dict[str, bytes]] | None = None  # further files, of the finished result


def run_study[C: RunConfig](
    name: str,
    doc: str | None,
    config_class: type[C],
    read: Callable[[Sequence[str]], tuple[SubjectFlags, C]],
    study: Callable[[SubjectFlags, C, Live], Studied],
    argv: Sequence[str],
) -> int:
    """Run a measuring command: help or flags, the study, the run's folder. Returns the exit code: 0, 1, 3 or 130.

    Raises:
        UserError: wrong flags, or an answer that could not be kept.
    """
    if show_help(doc or "", config_class, argv):
        return 0
    flags, config = read(argv)
    started = time.monotonic()
    with Live() as live:
        answer = study(flags, config, live)
    trace = finish(answer, [name, *argv], started)
    from strobe.cli.keep import keep

    keep(answer.result, config.output_dir, trace if answer.sections else None, answer.files)
    return EXIT_CODES[answer.outcome] if answer.result.status == "complete" else 130


def finish(answer: Studied, argv: Sequence[str], started: float) -> dict[str, Any]:
    """Complete the answer's result with its command, config and findings. Returns its trace.

    Args:
        argv: the command and its flags, without 'strobe'.
        started: `time.monotonic` at the command's start, in seconds.
    """
    from strobe.cli.keep import complete, plain, trace_of

    family = "model" if isinstance(answer.flags, ModelFlags) else "policy"
    asked = {family: dataclasses.asdict(answer.flags), **plain(answer.config)}
    complete(answer.result, argv, started, asked, answer.config.thresholds)
    if answer.made_of is not None:
        answer.files |= answer.made_of(answer.result)
    return trace_of(answer.result, answer.sections, answer.profiled)


def show_help(doc: str, config_class: type, argv: Sequence[str]) -> bool:
    """Print a command's help if it is asked for. Returns whether it was."""
    if not {"-h", "--help"} & set(argv):
        return False
    print(help_text(doc, config_class))
    print(f"\n{policy_help()}\n\n{model_help()}")
    return True
