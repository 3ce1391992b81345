"""The two ways to climb: candidates one by one, or all of one effect together. Each returns why the climb ended."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.core.studies.shared.measuring import Measured
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Effect, Spec
from strobe.ladder import settings
from strobe.ladder.candidates import EFFECTS, Candidate, candidate_of, groups, together
from strobe.ladder.climb import Climb
from strobe.ladder.runner import uninterrupted
from strobe.ladder.trial import attempt, failure, put_on_together

# One by one


def climb_one_by_one(climb: Climb) -> tuple[str, Measured | None]:
    """Try each candidate in a run of its own, in alternation with the highest rung, until the target or the time limit.

    What the last ladder kept is tried first, together.

    Returns:
        Why it ended, in words; and the run of the last ladder's rungs, which may do for a closing run; None for none.

    Raises:
        KeyboardInterrupt: during a run.
    """
    rungs, closed = climb.last_rungs(), None
    if rungs and sum(rung.build_s for rung in rungs) <= climb.remaining_to_try_s():
        closed = put_on_together(climb, rungs)
    start = climb.start
    far = climb.aim.everything or start.ms > settings.FAR * climb.aim.target_ms
    if climb.glanced and (closed is not None or not far):
        _measure_start_well(climb, closed)
    while not climb.reached():
        remaining = climb.remaining()
        if not remaining:
            return f"no treatment remained to try{climb.left_out()}", closed
        # What is quick may still fit where what comes first does not.
        seconds = climb.remaining_to_try_s()
        try_s = settings.shortest_try_s(climb.runs.spaced_s(climb.top.ms / 1e3))
        fitting = next((candidate for candidate in remaining if candidate.build_s + try_s <= seconds), None)
        if fitting is None:
            return _out_of_time(climb, remaining), closed
        attempt(climb, fitting, sharing=sum(1 for candidate in remaining if not candidate.build_s))
    return climb.end_at_target(), closed


def _measure_start_well(climb: Climb, measured: Measured | None) -> None:
    """Put a good measurement of the policy as it is in the place of a glance: from ``measured``, or from a new run."""
    start, runs = climb.start, climb.runs
    if measured is None:
        seconds = (settings.TRY_ROUNDS + 1) * runs.spaced_s(start.ms / 1e3)
        measured = uninterrupted(runs.sample([start.variant], max(settings.TRY_S[0], seconds)))
    start.measurement = measured.measurements[0]
    climb.guard.reference = measured.outputs.first(start.name)


def _out_of_time(climb: Climb, remaining: Sequence[Candidate]) -> str:
    climb.leave(f"{max(climb.remaining_to_try_s(), 0.0):.0f} s remained", remaining, with_build=True)
    which = ", all of which take long to build" if all(candidate.build_s for candidate in remaining) else ""
    many = f"{len(remaining)} treatment{'' if len(remaining) == 1 else 's'}"
    limit = f"the time limit of {climb.limit_s:.0f} s was reached with {many} not tried"
    return f"{limit}{which}{climb.left_out()}"


# By effect


def climb_by_effect(climb: Climb) -> str:
    """Try all exact candidates as one group at first sight, then all rounding ones; only the closing run judges.

    For chunks that take so long that few candidates could be tried one by one. Return why it ended, in words.

    Raises:
        KeyboardInterrupt: during a run.
    """
    for rung in climb.last_rungs():
        if not climb.reached():
            attempt(climb, rung)
    for effect in EFFECTS:
        for group in _groups(climb, effect):
            if climb.reached():
                return climb.end_at_target()
            if group.try_alone and not _fits(climb):
                continue
            if not attempt(climb, group) and len(group.specs) > 1:
                _try_each(climb, effect)
    if climb.reached():
        return climb.end_at_target()
    climb.leave("there was no time to try it by itself", climb.remaining())
    enough = settings.ONE_BY_ONE_TRIES * settings.shortest_try_s(climb.runs.spaced_s(climb.start.ms / 1e3))
    one_by_one = f"from --time_limit={enough:.0f} on they are tried one by one"
    return f"no treatments remained to try together; {one_by_one}{climb.left_out()}"


def _groups(climb: Climb, effect: Effect) -> list[Candidate]:
    """Return the groups of ``effect`` without what cannot be put on together with the rest, which is listed.

    Other forms of it, such as one for each part where the whole does not fit in memory, take its place.
    """
    while True:
        grouped = groups(climb.remaining(), effect)
        if not any(_drop_failing(climb, group) for group in grouped if len(group.specs) > 1):
            return grouped


def _drop_failing(climb: Climb, group: Candidate) -> bool:
    """List those of ``group`` that cannot be put on together with the rest. Return whether there are any."""
    runs = climb.runs
    specs: tuple[Spec, ...] = ()
    for spec in catalogue.ordered(group.specs):
        try:
            runs.variant(len(climb.steps), together(climb.top.specs, (*specs, spec))).apply(runs.subject)()
        except Exception as error:
            trial = climb.plan(candidate_of(runs.subject, (spec,)), begun=True)
            trial.fail(*failure(error))
            climb.trials.append(trial)
            climb.reporter.say(f"{trial.tried.treatment}: not accepted, {trial.tried.outcome}: {trial.tried.reason}")
        else:
            specs = (*specs, spec)
    return len(specs) < len(group.specs)


def _try_each(climb: Climb, effect: Effect) -> None:
    """Try each candidate of ``effect`` by itself, those that are quick to build, while there is time."""
    for candidate in climb.remaining():
        if candidate.effect == effect and not candidate.build_s and _fits(climb):
            attempt(climb, candidate)


def _fits(climb: Climb) -> bool:
    """Return whether there is time for the fewest calls of another try."""
    return settings.SCREENING_CHUNKS * climb.top.ms / 1e3 <= climb.remaining_to_try_s()
