"""Verify: does a policy with a recipe on it act as it does without? Nothing is timed."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from strobe.core.measure.guard import Guards, record_judgement, strongest
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.measure.time_limit import LookInterrupted, TimeLimit
from strobe.core.results.agreement import Agreement, Check, yardstick
from strobe.core.results.answer import VerifyResult
from strobe.core.results.recipe import Recipe
from strobe.core.sameness.check import YARDSTICKS, NotSeenError, PolicyCallError, Progress, Sameness
from strobe.core.sameness.visits import FEWEST, CheckCall
from strobe.core.studies.shared.action_check import CheckProgress, plan_visits, yardsticks
from strobe.core.studies.shared.machine_state import begin_result
from strobe.core.studies.shared.measuring import Options
from strobe.core.studies.shared.progress import Reporter, Silent
from strobe.core.subjects.check_inputs import COUNT
from strobe.core.treatments.recipe import RecipeTreatment, check_groups, make_treatments
from strobe.core.treatments.treatment import Variant
from strobe.lerobot.policies.policy_subject import PolicySubject

YARDSTICKS_SHARE = 0.5  # share of the time for the baseline's own chunks and the yardsticks
PASSES = 2  # passes over the observations, each in another order

Groups = Sequence[tuple[str, tuple[RecipeTreatment, ...]]]  # each with what it is called


def verify(
    subject: PolicySubject,
    what: Recipe | Groups,
    name: str,
    guards: Guards,
    reporter: Reporter | None = None,
    *,
    count: int = COUNT,
    passes: int = PASSES,
    seconds: float = math.inf,
) -> VerifyResult:
    """Run the policy with a recipe and without on observations that find faults. Ctrl-C keeps the checks made.

    If the recipe has exact treatments and others, the exact ones are checked by themselves too: rounding that the
    others may do must not hide what an exact one does wrong.

    Args:
        what: the recipe; or groups of treatments, of which the last has all.
        name: the recipe's file, for messages.
        count: observations; ``passes``: how many times they are gone through.
        seconds: for all of it, roughly. Where a chunk takes long, fewer observations are looked at, `FEWEST` at least,
            and the answer says so. Where it becomes slower on the way, only the calls that a judgement needs are made;
            after three times the seconds none, and what was not seen is not judged.

    Raises:
        UserError: a treatment does not apply.
    """
    groups = check_groups(make_treatments(what, name)) if isinstance(what, Recipe) else what
    reporter = reporter or Silent()
    options = Options(SamplingBudget(iterations=1), counted=False)
    title = f"{subject.info.name}: does it act the same with {name}?"
    result = begin_result(VerifyResult, subject, title, options, reporter, recipe=name, guard=str(guards))
    treatments = groups[-1][1]
    same = Sameness(subject, count=count)
    try:
        reporter.stage("the baseline's actions")
        planned = _count_planned_calls(same, name, groups, passes)
        progress = CheckProgress(reporter, planned)
        if seconds < math.inf and (chunk_s := _chunk_s(same, progress)) is not None:
            each = chunk_s * planned / same.count
            limit = TimeLimit(max(seconds, each * FEWEST))
            fewer = min(same.count, max(FEWEST, int(seconds / each)))
            if fewer < same.count:
                within = f"to end in about {max(seconds, each * fewer):.0f} s (--seconds={seconds:g})"
                looked_at = f"{fewer} of {same.count} observations were compared"
                result.limited = f"{looked_at}, {within}, because a chunk takes {chunk_s:.2g} s"
                same = Sameness(subject, count=fewer)
                progress = CheckProgress(reporter, _count_planned_calls(same, name, groups, passes))
            same.limit = limit
        result.subject.inputs = same.checks.description
        same.limit.begin(YARDSTICKS_SHARE)
        same.prepare(plan_visits(same, Variant(name, treatments)), progress)
        for moved in yardsticks(same, same.count, reporter, progress=progress):
            result.yardsticks.append(moved)
        result.caveats += same.notes
        _check_groups(result, same, groups, guards, reporter, passes, progress)
    except NotSeenError as error:
        result.caveats.append(f"not compared: {error}")
    except KeyboardInterrupt:
        result.status = "interrupted"
    return result


def _check_groups(
    result: VerifyResult,
    same: Sameness,
    groups: Groups,
    guards: Guards,
    reporter: Reporter,
    passes: int,
    progress: Progress,
) -> None:
    """Add a check of each group to ``result``. Raises KeyboardInterrupt, after adding what was seen by then."""
    reordered = yardstick(result.yardsticks, "reordered sums")
    for number, (label, chosen) in enumerate(groups):
        reporter.stage(f"{label} against the baseline")
        same.limit.begin(1 / (len(groups) - number))
        effect = strongest([treatment.effect for treatment in chosen])
        guard = guards.strictest_guard([effect])
        written = [treatment.written for treatment in chosen]
        check = Check(name=label, treatments=written, effect=effect, guard=str(guard))
        variant = Variant(label, chosen)
        stopped = False
        try:
            check.agreement = same.check(variant, plan_visits(same, variant, passes), progress)
        except PolicyCallError as error:
            check.broken = str(error)
        except NotSeenError as error:
            check.unjudged = f"{error}: give more --seconds"
        except LookInterrupted as interrupted:
            stopped = True
            check.agreement = interrupted.found if isinstance(interrupted.found, Agreement) else None
        record_judgement(check, guard, reordered)
        result.checks.append(check)
        if stopped:
            raise KeyboardInterrupt


def _count_planned_calls(same: Sameness, name: str, groups: Groups, passes: int) -> int:
    whole = Variant(name, groups[-1][1])
    own = len({(visit.observation, visit.rtc) for visit in plan_visits(same, whole)})
    checks = sum(len(plan_visits(same, Variant(label, chosen), passes)) for label, chosen in groups)
    return own + len(YARDSTICKS) * same.count + checks


def _chunk_s(same: Sameness, progress: Progress) -> float | None:
    """Return the seconds of the baseline's second chunk, because the first also starts things; None: it fails."""
    ended: list[float] = []

    def note_end(done: int, planned: int) -> None:
        ended.append(time.perf_counter())
        progress(done, planned)

    try:
        same.prepare([CheckCall(0), CheckCall(1)], note_end)
    except PolicyCallError:
        return None  # reported once all observations have been tried
    return ended[1] - ended[0]
