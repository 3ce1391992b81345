"""Beside a timing: do the variants act like the first one? Looked at on observations that find faults."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from strobe.errors import UserError
from strobe.measure.guard import strongest
from strobe.measure.sampling import Progress
from strobe.policies.policy_subject import PolicySubject
from strobe.policies.subject import Subject
from strobe.results.agreement import Agreement, Yardstick, YardstickName, yardstick
from strobe.sameness.check import YARDSTICKS, CallFailed, Sameness, affordable
from strobe.sameness.reordered import features_reordered
from strobe.sameness.visits import Visit, plan
from strobe.studies.measuring import Reporter
from strobe.treatments.treatment import Variant

SHARE = 0.3  # of the time for sampling, that the check of a variant may take
YARDSTICKS_S = 1.5  # that each yardstick may take, beside the chunks that it is set against; one observation at least
MOST = 4  # observations of a yardstick beside a timing


@dataclass
class Looked:
    """The agreement of each variant with the first one, by name, and what it is measured by."""

    agreements: dict[str, Agreement] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)  # variant → the call that failed, in words
    yardsticks: list[Yardstick] = field(default_factory=list)
    interrupted: bool = False
    notes: list[str] = field(default_factory=list)  # what was not looked at, and why

    @property
    def reordered(self) -> Yardstick | None:
        """The yardstick that an exact guard measures by."""
        return yardstick(self.yardsticks, "reordered sums")


def look(
    subject: PolicySubject, variants: Sequence[Variant], chunk_s: float, seconds: float, reporter: Reporter
) -> Looked:
    """Check all ``variants`` but the first against it, and measure the yardsticks. Ctrl-C and a failure keep the rest.

    Args:
        chunk_s: seconds that a chunk takes.
        seconds: for one variant, roughly: it decides on how many observations.
    """
    first, *others = variants
    looked = Looked()
    try:
        same = Sameness(subject, first.treatments, affordable(seconds, chunk_s))
        for found in yardsticks(same, few(chunk_s), reporter):
            looked.yardsticks.append(found)
        for variant in others:
            if variant.guided != first.guided:
                continue
            reporter.stage(f"the same actions? {variant.name}")
            try:
                looked.agreements[variant.name] = same.check(variant, visits_of(same, variant), shown(reporter))
            except CallFailed as error:
                looked.failed[variant.name] = str(error)
        looked.notes += same.notes
    except UserError as error:  # of the untouched policy: what was timed must not be lost for it
        looked.notes.append(f"the actions were not looked at closely: {error}")
    except KeyboardInterrupt:
        looked.interrupted = True
    return looked


def look_at_features(subject: Subject, variants: Sequence[Variant], call_s: float, reporter: Reporter) -> Looked:
    """Measure what exact variants of a backbone are judged by; nothing where none claims to be exact.

    Args:
        call_s: seconds that a call takes.
    """
    first, *others = variants
    looked = Looked()
    if all(strongest([one.effect for one in variant.treatments]) != "exact" for variant in others):
        return looked
    reporter.stage("how far the features of the first variant move by reordered sums")
    try:
        found = features_reordered(subject, first, few(call_s), shown(reporter))
        looked.yardsticks = [found] if found is not None else []
    except UserError as error:
        looked.notes.append(f"the features were not looked at closely: {error}")
    except KeyboardInterrupt:
        looked.interrupted = True
    return looked


def few(chunk_s: float) -> int:
    """Return how many observations a yardstick beside a timing is measured on, where a chunk takes ``chunk_s``."""
    return max(1, min(MOST, int(YARDSTICKS_S / max(chunk_s, 1e-6))))


def yardsticks(
    same: Sameness,
    count: int,
    reporter: Reporter,
    names: Sequence[YardstickName] = YARDSTICKS,
    progress: _Shown | None = None,
) -> Iterator[Yardstick]:
    """Measure yardsticks on ``count`` observations each; the one of another noise draw is left out where there is none.

    One after the other, so that Ctrl-C keeps those that were measured.
    """
    for name in names:
        reporter.stage(f"how far the untouched policy's actions move by {name}")
        found = same.yardstick(name, count, progress or shown(reporter))
        if found is not None:
            yield found


def visits_of(same: Sameness, variant: Variant, passes: int = 1) -> list[Visit]:
    """Return the calls that ``variant`` is judged by.

    Code that is compiled for one shape is not asked for others, each of which could take a minute to compile.
    """
    if "compiled" not in variant.builds:
        return plan(same.count, rtc=same.rtc, passes=passes)
    alike = same.checks.alike
    visits = [Visit(index, f"observation {index + 1}") for index in alike]
    return [*visits, Visit(alike[0], f"observation {alike[0] + 1} again")]


def shown(reporter: Reporter, planned: int | None = None) -> _Shown:
    """Return where a check reports its calls, for ``reporter``.

    Args:
        planned: calls of all phases that report here one after the other; by default each is a whole of its own.
    """
    return _Shown(reporter, planned)


class _Shown:
    """Calls done and planned → the progress that a reporter shows, with the time left of the whole."""

    def __init__(self, reporter: Reporter, planned: int | None) -> None:
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
