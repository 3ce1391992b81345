"""Do variants that are timed act like the first one? Checked on observations that find faults."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from strobe.core.errors import UserError
from strobe.core.measure.guard import Guard, record_judgement, strongest
from strobe.core.measure.sampling import Progress
from strobe.core.measure.time_limit import LookInterrupted, TimeLimit, WorkLimit
from strobe.core.results.agreement import Agreement, Check, Yardstick, YardstickName, yardstick
from strobe.core.results.comparison import Comparison
from strobe.core.sameness.check import CALLS_EACH, YARDSTICKS, NotSeenError, PolicyCallError, Sameness, affordable
from strobe.core.sameness.visits import FEWEST, CheckCall, plan
from strobe.core.studies.shared.progress import Reporter
from strobe.core.subjects.subject import ActingSubject, Subject
from strobe.core.treatments.treatment import Variant

SHARE = 0.3  # share of the sampling time that the check of a variant may take
YARDSTICKS_S = 1.5  # time per yardstick, without the chunks that it is compared with; one observation at least
MOST = 4  # observations of a yardstick, where variants are timed too


@dataclass
class ActionCheck:
    """The agreement of each variant with the first one, by name, and what it is measured by."""

    agreements: dict[str, Agreement] = field(default_factory=dict)
    unseen: dict[str, str] = field(default_factory=dict)  # variant → why it was not checked, in words
    failed: dict[str, str] = field(default_factory=dict)  # variant → the call that failed, in words
    yardsticks: list[Yardstick] = field(default_factory=list)
    interrupted: bool = False
    notes: list[str] = field(default_factory=list)  # what was not checked, and why

    @property
    def exact_yardstick(self) -> Yardstick | None:
        """The yardstick that an exact guard measures by."""
        return yardstick(self.yardsticks, "reordered sums")

    def judge(self, judged: Comparison | Check, name: str, guard: Guard) -> None:
        """Write into ``judged`` how ``guard`` judges the actions of ``name``; unseen ones are not judged."""
        judged.broken = self.failed.get(name, "")
        judged.agreement = None if judged.broken else self.agreements.get(name, judged.agreement)
        if not judged.broken:
            record_judgement(judged, guard, self.exact_yardstick)
        if not judged.broken:
            judged.unjudged = self.unseen.get(name, judged.unjudged)


def action_time_limit(seconds: float, chunk_s: float, work: WorkLimit | None = None) -> TimeLimit:
    """Return the time limit of looks at the actions, which come after rounds that ``seconds`` were for.

    The looks may take as long as the rounds, and at least as long as the fewest observations need, where a chunk takes
    ``chunk_s`` seconds.

    Args:
        work: the limit of the command's work, which holds for the looks too. It gets the time that the fewest
            observations need beyond ``seconds``.
    """
    fewest_s = CALLS_EACH * FEWEST * chunk_s
    if work is not None:
        work.extend(2 * (fewest_s - seconds))
    return TimeLimit(max(seconds, fewest_s), within=work)


def check_actions(
    subject: ActingSubject,
    variants: Sequence[Variant],
    chunk_s: float,
    seconds: float,
    reporter: Reporter,
    limit: TimeLimit | None = None,
) -> ActionCheck:
    """Check all ``variants`` but the first against it, and measure the yardsticks. Ctrl-C and a failure keep the rest.

    Args:
        chunk_s: seconds that a chunk takes.
        seconds: for one variant, roughly: it decides on how many observations.
        limit: for all of it; None for none.
    """
    first, *others = variants
    others = [variant for variant in others if variant.is_guided == first.is_guided]
    limit = limit or TimeLimit()
    check = ActionCheck()
    try:
        same = Sameness(subject, first.treatments, affordable(seconds, chunk_s), limit)
        limit.begin(1 / 2)
        for moved in yardsticks(same, yardstick_observations(chunk_s), reporter):
            check.yardsticks.append(moved)
        for number, variant in enumerate(others):
            reporter.stage(f"the same actions? {variant.name}")
            limit.begin(1 / (len(others) - number))
            _look(check, same, variant, CheckProgress(reporter))
        check.notes += same.notes
    except UserError as error:  # of the baseline: what was timed must not be lost for it
        check.notes.append(f"the actions were not looked at closely: {error}")
        if not isinstance(error, NotSeenError):
            return check
    except KeyboardInterrupt:
        check.interrupted = True
    looked_at = {*check.agreements, *check.failed, *check.unseen}
    why = "stopped" if check.interrupted else "the time was over"
    check.unseen |= {
        variant.name: f"{why} before its actions were looked at closely"
        for variant in others
        if variant.name not in looked_at
    }
    return check


def _look(check: ActionCheck, same: Sameness, variant: Variant, progress: CheckProgress) -> None:
    """Add the agreement of ``variant``, or why there is none. Raises KeyboardInterrupt, after adding what was seen."""
    try:
        check.agreements[variant.name] = same.check(variant, plan_visits(same, variant), progress)
    except PolicyCallError as error:
        check.failed[variant.name] = str(error)
    except NotSeenError as error:
        check.unseen[variant.name] = f"{error}: give more --seconds"
    except LookInterrupted as stopped:
        if isinstance(stopped.found, Agreement):
            check.agreements[variant.name] = stopped.found
        raise KeyboardInterrupt from None


def check_features(
    subject: Subject,
    variants: Sequence[Variant],
    call_s: float,
    reporter: Reporter,
    limit: TimeLimit | None = None,
) -> ActionCheck:
    """Measure what exact variants of a backbone are judged by; nothing where none claims to be exact.

    Args:
        call_s: seconds that a call takes.
        limit: for all of it; None for none.
    """
    first, *others = variants
    check, head = ActionCheck(), f"the {subject.returns} were not looked at closely"
    if all(strongest([treatment.effect for treatment in variant.treatments]) != "exact" for variant in others):
        return check
    from strobe.core.sameness.reordered import features_reordered  # needs torch

    reporter.stage(f"how far the {subject.returns} of the first variant move by reordered sums")
    try:
        count, progress = yardstick_observations(call_s), CheckProgress(reporter)
        moved = features_reordered(subject, first, count, progress, limit)
        check.yardsticks = [moved] if moved is not None else []
        if moved is None and limit is not None and limit.is_spent:
            check.notes.append(f"{head}: the time was over before the first call")
    except UserError as error:
        check.notes.append(f"{head}: {error}")
    except LookInterrupted as stopped:
        check.yardsticks = [stopped.found] if isinstance(stopped.found, Yardstick) else []
        check.interrupted = True
    except KeyboardInterrupt:
        check.interrupted = True
    return check


def yardstick_observations(chunk_s: float) -> int:
    """Return how many observations a yardstick is measured on, where a chunk takes ``chunk_s`` seconds."""
    return max(1, min(MOST, int(YARDSTICKS_S / max(chunk_s, 1e-6))))


def yardsticks(
    same: Sameness,
    count: int,
    reporter: Reporter,
    names: Sequence[YardstickName] = YARDSTICKS,
    progress: CheckProgress | None = None,
) -> Iterator[Yardstick]:
    """Measure yardsticks on ``count`` observations each; the one of another noise draw is left out where there is none.

    One after the other, so that Ctrl-C keeps those that were measured; also the one that it ended.

    Raises:
        UserError: as `Sameness.yardstick` does.
    """
    for name in names:
        reporter.stage(f"how far the baseline's actions move by {name}")
        try:
            moved = same.yardstick(name, count, progress or CheckProgress(reporter))
        except LookInterrupted as stopped:
            if isinstance(stopped.found, Yardstick):
                yield stopped.found
            raise KeyboardInterrupt from None
        if moved is not None:
            yield moved


def plan_visits(same: Sameness, variant: Variant, passes: int = 1) -> list[CheckCall]:
    """Return the calls that ``variant`` is judged by.

    Code that is compiled for one shape is not called with others, each of which could take a minute to compile. What
    was made of certain inputs is called with such inputs alone.
    """
    if variant.fixed_inputs:
        alike = set(same.checks.same_cameras)
        return [visit for visit in plan(same.count, rtc=False, passes=passes) if visit.observation in alike]
    if "compiled" not in variant.builds:
        return plan(same.count, rtc=same.rtc, passes=passes)
    alike = same.checks.same_shape
    visits = [CheckCall(index, f"observation {index + 1}") for index in alike]
    return [*visits, CheckCall(alike[0], f"observation {alike[0] + 1} again")]


class CheckProgress:
    """Passes the calls of a check on to a reporter, with the time that remains of the whole.

    Args:
        planned: calls of all phases that report here one after the other; by default each is a whole of its own.
    """

    def __init__(self, reporter: Reporter, planned: int | None = None) -> None:
        self.reporter, self.planned, self.began = reporter, planned, time.perf_counter()
        self._before = self._done = 0  # calls of the phases before, and of this one

    def __call__(self, done: int, planned: int) -> None:
        if done <= self._done:  # another phase begins
            self._before += self._done
        self._done = done
        whole = planned if self.planned is None else max(self.planned, self._before + planned)
        calls = done if self.planned is None else self._before + done
        took = time.perf_counter() - self.began
        self.reporter.progress(Progress(calls, whole, took, took / calls * (whole - calls), "chunks"))
