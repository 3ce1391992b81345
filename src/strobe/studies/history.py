"""History: how did the same measurement change from run to run, and where?

Runs that are alike (`strobe.studies.alike`) make a trend, in which each is judged against a reference
(`strobe.measure.trend`). Versions do not part a trend, since what they change is what a history shows: a run says which
of them are not those of the run before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import strobe
from strobe.errors import UserError, nearest
from strobe.results.comparison import Verdict
from strobe.results.data import Interval
from strobe.results.history import History, Point, Trend
from strobe.results.measurement import Measurement
from strobe.studies import alike
from strobe.studies.gates import Gated, excluded
from strobe.studies.kept_runs import Run, Unread

if TYPE_CHECKING:  # it brings NumPy, which reading runs can do without
    from strobe.measure.trend import Judged

DEEPEST = 2  # levels of parts that have a trend
TOO_WIDE = 0.10  # a change of more could hide: too noisy


def history(runs: Sequence[Run], source: str, unread: Sequence[Unread] = (), accept: str = "") -> History:
    """Return the trends of what was measured twice or more.

    Args:
        source: where the runs are from, in words.
        unread: what was found there beside them.
        accept: the run whose times are the reference of its trends from then on; '' for none.

    Raises:
        UserError: nothing was measured twice, or no run in a trend is called ``accept``.
    """
    found = sorted(runs, key=lambda one: one.result.started)
    whole = [run for run in found if run.result.status == "complete"]
    alike_ones = _alike(whole)
    trends = [_trend(one, accept) for one in alike_ones if len(one.seen) > 1]
    known = {point.run for trend in trends for point in trend.points}
    if accept and trends and accept not in known:
        raise UserError(f"--accept={accept}: no such run in a trend: {nearest(accept, sorted(known))}")
    if not trends:
        raise UserError(
            f"{source}: no two runs measured the same thing on the same machine "
            f"({len(whole)} measured run{'s' * (len(whole) != 1)} found)"
        )
    trends.sort(key=_last_change, reverse=True)
    ended = [run for run in found if run.result.status != "complete"]
    return History(
        strobe_version=strobe.__version__,
        title=f"{source}: how it changed",
        trends=trends,
        not_judged=[*_not_read(unread, ended, whole), *_new(alike_ones), *_gone(alike_ones)],
        notes=[f"left out {one.name}: {one.why}" for one in unread]
        + [f"left out {run.name}: {run.result.status}" for run in ended],
    )


def gate(found: History, allowed: float = 0.0) -> list[Gated]:
    """Return for each trend whether its newest run is slower than the reference by more than ``allowed`` (0.05: 5 %).

    What a newest run lacks to be judged at all is among them.
    """
    return [_gated(trend, allowed) for trend in found.trends] + [
        Gated("not judged", what, "") for what in found.not_judged
    ]


def _gated(trend: Trend, allowed: float) -> Gated:
    from strobe.measure.trend import FEWEST, runs_needed

    last, widest = trend.points[-1], excluded(allowed)
    what = f"{trend.subject}, {trend.measured}, in {last.run}"
    if last.standing is not None and last.standing > 1 + allowed:
        shown = f"slower by {100 * (last.standing - 1):.1f} % than {_listed(trend.reference)}"
        where = "" if last.shown_in == last.run else f", shown in {last.shown_in} and not mended since"
        return Gated("broken", what, f"{shown}{where}; --accept={last.shown_in} makes its times the reference")
    if last.change == "accepted":
        return Gated("held", what, "its times are the reference")
    if last.alone is None:
        return Gated("not judged", what, _unjudged(last, FEWEST))
    high = last.alone.high - 1
    if high <= widest:
        return Gated(
            "held", what, f"slower by at most {100 * max(high, 0.0):.1f} % than {_listed(trend.reference)} (95 %)"
        )
    needed = runs_needed(math.log1p(trend.between_runs or 0.0), widest)
    before = len(trend.points) - 1
    more = f" ({needed - before} more of its kind would do where nothing changed)" if needed and needed > before else ""
    return Gated(
        "not judged",
        what,
        f"it may be slower by {100 * high:.1f} % (95 %), and {100 * widest:g} % must be excluded; runs differ by "
        f"{100 * (trend.between_runs or 0.0):.1f} % among themselves. Run again{more}, or allow more: "
        f"--fail-on-regression={math.ceil(100 * high)}",
    )


def _unjudged(last: Point, fewest: int) -> str:
    if last.summary.min <= 0:
        return "a time of zero has no ratio to another"
    if last.summary.n < fewest:
        return f"{last.summary.n} samples, and {fewest} are needed: give more --iterations or --seconds"
    return f"no run before it has {fewest} samples: run again"


def _listed(runs: Sequence[str]) -> str:
    return runs[0] if len(runs) == 1 else f"{', '.join(runs[:-1])} and {runs[-1]}"


def _last_change(trend: Trend) -> float:
    return max((point.started.timestamp() for point in trend.points if point.changes), default=0.0)


@dataclass
class _Alike:
    """The runs of one measurement that are alike, the oldest first."""

    measured: str
    subject: str
    settings: dict[str, str]
    seen: list[tuple[Run, Measurement]]

    @property
    def about(self) -> tuple[str, str]:
        """Return the study and the subject, which unlike runs may still share."""
        return self.measured, self.subject


def _alike(runs: Sequence[Run]) -> list[_Alike]:
    found: dict[tuple[object, ...], _Alike] = {}
    for run in runs:
        for one in run.result.measurements:
            if one.samples.values:
                subject = run.result.subject
                about = f"{subject.name}{'' if subject.size == 'full' else f', {subject.size}'}"
                measured, settings = f"{run.result.study}: {one.name}", alike.settings(run.result, one)
                group = found.setdefault(
                    (measured, about, *sorted(settings.items())), _Alike(measured, about, settings, [])
                )
                # A copy of a run, or a commit that left it as it was, is no further run.
                if not group.seen or group.seen[-1][0].result.started != run.result.started:
                    group.seen.append((run, one))
    return list(found.values())


def _not_read(unread: Sequence[Unread], ended: Sequence[Run], whole: Sequence[Run]) -> list[str]:
    """The newest runs that could not be judged: they cannot be read, or did not come to their end."""
    newest = whole[-1].result.started if whole else None
    found = [f"{one.name}: {one.why}" for one in unread if one.last]
    return found + [
        f"{run.name}: {run.result.status}: run it again"
        for run in ended
        if newest is None or run.result.started > newest
    ]


def _new(found: Sequence[_Alike]) -> list[str]:
    """Return the figures that the newest run of a subject has for the first time, or measured otherwise than before."""
    newest = max((one.seen[-1][0].result.started for one in found), default=None)
    said = []
    for one in found:
        run = one.seen[-1][0]
        others = [other for other in found if other is not one and other.about == one.about]
        before = max(others, key=lambda other: other.seen[-1][0].result.started, default=None)
        if len(one.seen) > 1:
            continue
        if before is not None and before.seen[-1][0].result.started < run.result.started:
            why = f"no run before it had {'; '.join(alike.unlike(before.settings, one.settings))}"
        elif before is None and run.result.started == newest:
            why = "it is measured for the first time"
        else:
            continue
        said.append(f"{one.subject}, {one.measured}, in {run.name}: {why}")
    return said


def _gone(found: Sequence[_Alike]) -> list[str]:
    """Measurements that the newest run of a subject lacks, and the run before it has."""
    runs: dict[tuple[str, str, str], dict[str, Run]] = {}
    for one in found:
        for run, _ in one.seen:
            key = (run.result.study, one.subject, alike.device_of(run.result.machine))
            runs.setdefault(key, {})[run.name] = run
    said = []
    for (study, subject, _), of in runs.items():
        *_, before, last = [None, *sorted(of.values(), key=lambda run: run.result.started)]
        names = [one.name for one in last.result.measurements if one.samples.values] if last else []
        if before is not None and last is not None:
            said += [
                f"{subject}, {study}: {one.name}, in {last.name}: it was not measured, as it was in {before.name}"
                for one in before.result.measurements
                if one.samples.values and one.name not in names
            ]
    return said


def _trend(one: _Alike, accept: str) -> Trend:
    from strobe.measure.trend import judge, level_of

    levels = [level_of(measurement.samples.values) for _, measurement in one.seen]
    places = [place for place, level in enumerate(levels) if level is not None]  # of the runs that can be judged
    chosen = next((place for place, (run, _) in enumerate(one.seen) if run.name == accept), len(one.seen))
    after = next((at for at, place in enumerate(places) if place >= chosen), None)
    judged = dict(zip(places, judge([level for level in levels if level is not None], after), strict=True))
    names = [one.seen[place][0].name for place in places]
    points = []
    for place, (run, measurement) in enumerate(one.seen):
        before = alike.versions(one.seen[place - 1][0].result) if place else alike.versions(run.result)
        point = Point(
            run=run.name,
            started=run.result.started,
            strobe_version=run.result.strobe_version,
            summary=measurement.samples.summary,
            parts={" / ".join(part.path): part.summary for part in measurement.components if part.depth <= DEEPEST},
            differs=alike.unlike(before, alike.versions(run.result)),
        )
        if (found := judged.get(place)) is not None:
            _tell(point, found, names)
        elif points:  # what stands is not mended by a run of too few samples
            point.standing, point.shown_in = points[-1].standing, points[-1].shown_in
        if after is not None and place == places[after]:
            point.change, point.standing, point.shown_in = "accepted", None, ""
        points.append(point)
    last = next((found for found in reversed(judged.values()) if found is not None), None)
    first = one.seen[-1][0].result
    return Trend(
        measured=one.measured,
        subject=one.subject,
        machine=f"{alike.device_of(first.machine)}, {first.machine.threads} threads",
        settings=one.settings,
        reference=[] if last is None else [names[place] for place in last.reference],
        between_runs=None if last is None else math.expm1(last.spread),
        known=0 if last is None else last.known,
        points=points,
    )


def _tell(point: Point, found: Judged, names: Sequence[str]) -> None:
    """Write into a point how its run was judged."""
    from strobe.measure.trend import ALONE, LEVEL

    point.alone = Interval(low=_factor(found.alone[0]), high=_factor(found.alone[1]), level=2 * ALONE - 1)
    if not found.known:  # two runs do not show how far runs differ
        return
    low, high = found.ratio - found.reach, found.ratio + found.reach
    kind = "slower" if low > 0 else "faster" if high < 0 else "no difference shown"
    if kind == "no difference shown" and found.reach > math.log1p(TOO_WIDE):
        kind = "too noisy"
    interval = Interval(low=_factor(low), high=_factor(high), level=LEVEL)
    which = point.run if found.together == 1 else f"{point.run} and the {found.together - 1} before it"
    change = f"{_change(found.ratio)} % [{_change(low)}, {_change(high)}]"
    sentence = f"{which} against {_listed([names[place] for place in found.reference])}: {kind}, {change}"
    point.verdict = Verdict(kind=kind, ratio=_factor(found.ratio), interval=interval, pairs=0, sentence=sentence)
    point.together, point.change = found.together, found.change
    if found.standing is not None and found.shown is not None:
        point.standing, point.shown_in = _factor(found.standing), names[found.shown]


def _factor(logarithm: float) -> float:
    # Past e^300 a ratio would leave the range of a float.
    return math.exp(min(max(logarithm, -300.0), 300.0))


def _change(logarithm: float) -> str:
    return f"{100 * (_factor(logarithm) - 1):+.1f}".replace("-", "−")
