"""From flags to what is measured and how: the policy or model with its inputs, the options, the profilers."""

from __future__ import annotations

import atexit
import gc
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strobe.core import slices
from strobe.core.cli.live import Live, importing
from strobe.core.cli.placeholders import one_line
from strobe.core.cli.runner import Studied
from strobe.lerobot.flags.lazy_flags import realise
from strobe.lerobot.policies.options import FactoryOptions, InputOptions, PolicyOptions
from strobe.policy_cli.run_flags import InputFlags, RunConfig, SamplingFlags, parse_image_size
from strobe.policy_cli.subject_flags import ModelFlags, subject_values

if TYPE_CHECKING:
    from strobe.core.results.answer import Result
    from strobe.core.studies.shared.measuring import Options
    from strobe.core.subjects.subject import Phase, Subject
    from strobe.core.timeline.timeline import Section
    from strobe.core.treatments.treatment import Variant


SNAPSHOT = "memory_snapshot.pickle"
# Calls as long as which a profiler takes, roughly; one of Python calls at least three times, or for two seconds.
WATCHED, PROFILED, PYTHON_S = 3, 8, 2.0


def load_subject(config: InputFlags, live: Live) -> Subject:
    """Import LeRobot, make its configs of the flags, and build or load the policy or the model, with inputs.

    Raises:
        UserError: a value that LeRobot refuses, or what cannot be loaded.
    """
    # At its end Python would look at all objects again, which takes a second or two. Commands that run loops of
    # LeRobot's need that: servers and threads are taken down by it.
    atexit.register(gc.freeze)
    wanted = config.subject
    if isinstance(wanted, FactoryOptions):
        return _make_subject(wanted, config, live)
    live.stage(f"importing what {wanted.path or wanted.type} needs")
    with importing(announced=True):
        import torch

        from strobe.core.studies.shared import measuring  # noqa: F401
        from strobe.lerobot.policies.loading import load_subject as load_policy
        from strobe.vision.model_subject import load_model
    realise(config)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    live.stage(f"loading {wanted.path or wanted.type}")
    sizes = {"observation.state": config.state_dim, "action": config.action_dim}
    source = InputOptions(
        dataset=config.dataset,
        env=config.env,
        video=config.input.video,
        image_size=parse_image_size(config.image_size) if config.image_size else None,
        cameras=config.cameras,
        vectors={name: size for name, size in sizes.items() if size is not None},
        rename=config.rename_map,
    )
    if isinstance(wanted, ModelFlags):
        return load_model(wanted, source, device=config.device, seed=config.seed)
    return load_policy(wanted, source, seed=config.seed)


def _make_subject(wanted: FactoryOptions, config: InputFlags, live: Live) -> Subject:
    """Call the function that makes the policy, and the policy with an observation of each shape. Raises UserError."""
    live.stage(f"importing what {wanted.factory} needs")
    with importing(announced=True):
        import torch

        from strobe.core.studies.shared import measuring  # noqa: F401
        from strobe.core.subjects.callable_subject import CallableSubject
        from strobe.lerobot.policies import factory
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    live.stage(f"calling {wanted.factory}")
    subject = factory.load(wanted.factory, seed=config.seed, device=config.device)
    if isinstance(subject, CallableSubject):
        subject.first_calls(live.stage)
    return subject


def measurement_options(config: SamplingFlags, phases: int | None = None) -> Options:
    """Return the options of measuring.

    Args:
        phases: that are measured, by whose number the command's clock goes, which starts now; None for no limit.
    """
    from strobe.core.measure.sampling import SamplingBudget
    from strobe.core.measure.time_limit import WorkLimit
    from strobe.core.studies.shared.measuring import Options

    budget = SamplingBudget.make_requested(config.iterations, config.seconds, precision=config.interval)
    return Options(
        budget=budget,
        depth=config.depth,
        batch_size=config.samples,
        serialised=config.serialised,
        counted=not config.skip_counting,
        pace_hz=config.pace,
        limit=WorkLimit(budget.seconds, phases) if phases is not None else WorkLimit(),
    )


def build_study_answer(
    result: Result,
    config: InputFlags,
    sections: Sequence[Sequence[Section]] | None = None,
    **more: Any,
) -> Studied:
    """Return the answer of a study of one subject, with its flags as result.json keeps them.

    Args:
        more: further fields of `Studied`.
    """
    measured = {each.phase for each in getattr(result, "measurements", ())}
    if getattr(config, "batch_size", None) and measured == {"inference"} and isinstance(config.subject, PolicyOptions):
        result.caveats.append("--batch_size changed nothing: a policy's inference is always one observation")
    for each in slices.slices().values():
        for name in each.looks.get(result.study, ()):
            slices.load(name)(result, config)
    return Studied(
        result, subject_values(config.subject, config), config.output_dir, config.thresholds, sections, **more
    )


def recipe_notes(path: Path | None) -> list[str]:
    """Return notes on the recipe at ``path``: its treatments, and versions that differ from those it was made with."""
    if path is None:
        return []
    from strobe.core.treatments.catalogue import format_spec
    from strobe.core.treatments.recipe import differences, load

    recipe = load(path)
    return [f"recipe {path.name}: {'; '.join(map(format_spec, recipe.treatments))}", *differences(recipe, path.name)]


class Profilers:
    """The profilers that the flags ask for, checked against the subject before it is measured. Raises UserError."""

    def __init__(self, subject: Subject, config: RunConfig, options: Options) -> None:
        from strobe.traces.operators import check_tools
        from strobe.traces.python_profile import timed_functions

        self.subject, self.config, self.options = subject, config, options
        check_tools(subject.device, nvtx=config.nvtx, memory_snapshot=config.memory_snapshot)
        names = [name.strip() for name in (config.profile_functions or "").split(",") if name.strip()]
        self.functions = timed_functions(subject, names) if config.python_profile == "line" else []

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
        from strobe.core.results.answer import Profiled
        from strobe.traces.operators import memory_snapshot, profile_operators
        from strobe.traces.python_profile import mixed_threads, python_profile

        config, result = self.config, answer.result
        assert isinstance(result, Profiled)
        operators = (config.operators or config.memory) and not config.skip_detailed
        if not (operators or config.python_profile or config.memory_snapshot):
            return
        call_s = result.measurements[0].samples.summary.median / 1e3
        watched: Any = None
        if (operators or config.python_profile) and self._fits("operators were not recorded", WATCHED * call_s, result):
            live.stage("recording operators")
            name, memory = result.measurements[0].name, operators and config.memory
            watched = profile_operators(self.subject, phase, variant, name, self.options, live, memory=memory)
        if operators and watched is not None:
            result.operators = watched.profile
            answer.sections, answer.profiled = [watched.sections], watched.events
            name = re.sub(r"[^A-Za-z0-9.]+", "_", result.subject.kind).strip("._")[:60] or "subject"
            answer.files[f"{name}_profile.json"] = watched.document
        python_s = PYTHON_S + PROFILED * call_s
        if config.python_profile and watched is not None and self._fits("Python was not profiled", python_s, result):
            live.stage(f"profiling Python with {config.python_profile}")
            with live.suspend_threads():
                result.python, files = python_profile(
                    self.subject,
                    phase,
                    variant,
                    watched.profile,
                    config.python_profile,  # type: ignore[arg-type]
                    self.functions,
                    self.options,
                )
                result.notes += mixed_threads(config.python_profile)
            answer.files |= files
        if config.memory_snapshot and self._fits("allocations were not recorded", WATCHED * call_s, result):
            live.stage("recording allocations")
            answer.files[SNAPSHOT] = memory_snapshot(self.subject, phase, variant, self.options)

    def _fits(self, otherwise: str, seconds: float, result: Result) -> bool:
        """Return whether there is time for work of ``seconds``; add a note that begins with ``otherwise`` if not."""
        fits = self.options.limit.fits(seconds)
        if not fits:
            result.notes.append(self.options.limit.leave_out(otherwise, seconds))
        return fits
