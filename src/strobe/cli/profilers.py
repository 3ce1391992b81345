"""--operators, --python_profile, --memory_snapshot: closer looks, once everything is measured."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from strobe.cli.flags import RunConfig
from strobe.cli.live import Live
from strobe.cli.parse import one_line
from strobe.cli.study import Studied

if TYPE_CHECKING:
    from strobe.policies.subject import Phase, Subject
    from strobe.studies.measuring import Options
    from strobe.treatments.treatment import Variant

SNAPSHOT = "memory_snapshot.pickle"


class Profilers:
    """The profilers that the flags ask for, checked against the subject before it is measured. Raises UserError."""

    def __init__(self, subject: Subject, config: RunConfig, options: Options) -> None:
        from strobe.studies.profilers.operators import require_allocator
        from strobe.studies.profilers.python_profile import functions_of

        self.subject, self.config, self.options = subject, config, options
        if config.memory_snapshot:
            require_allocator(subject)
        names = [name.strip() for name in (config.profile_functions or "").split(",") if name.strip()]
        self.functions = functions_of(subject, names) if config.python_profile == "line" else []

    def look(self, answer: Studied, phase: Phase, variant: Variant, live: Live) -> Studied:
        """Add the profiles of the first measurement to ``answer``; Ctrl-C keeps those that are there."""
        result = answer.result
        if result.status != "complete":
            return answer
        try:
            self._look(answer, phase, variant, live)
        except KeyboardInterrupt:
            result.status = "interrupted"
            result.notes.append("stopped after measuring, before the profilers were done")
        except Exception as error:  # such as another profiler at work: it must not cost what was measured
            result.notes.append(f"the profilers failed: {type(error).__name__}: {one_line(error)}")
        return answer

    def _look(self, answer: Studied, phase: Phase, variant: Variant, live: Live) -> None:
        from strobe.results.answer import Profiled
        from strobe.studies.profilers.operators import memory_snapshot, operators_of
        from strobe.studies.profilers.python_profile import python_profile

        config, result = self.config, answer.result
        assert isinstance(result, Profiled)
        operators = config.operators and not config.skip_detailed
        if not (operators or config.python_profile or config.memory_snapshot):
            return
        watched: Any = None
        if operators or config.python_profile:
            live.stage("recording operators")
            watched = operators_of(self.subject, phase, variant, result.measurements[0].name, self.options)
        if operators:
            result.operators = watched.profile
            answer.sections, answer.profiled = watched.sections, watched.events
            answer.files[f"{_file_name(result.subject.kind)}_profile.json"] = watched.document
        if config.python_profile:
            live.stage(f"profiling Python with {config.python_profile}")
            result.python, files = python_profile(
                self.subject,
                phase,
                variant,
                watched.profile,
                config.python_profile,  # type: ignore[arg-type]
                self.functions,
                self.options,
            )
            answer.files |= files
        if config.memory_snapshot:
            live.stage("recording allocations")
            answer.files[SNAPSHOT] = memory_snapshot(self.subject, phase, variant, self.options)


def _file_name(subject: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "_", subject).strip("._")[:60] or "subject"
