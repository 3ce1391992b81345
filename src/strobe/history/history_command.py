"""strobe history: did a measurement become slower, and since which run?

Reads a folder of runs, or the commits of one run (--git), and finds trends with their change points. Runs that are
alike make a trend: the same study, measurement, policy, dtype, settings, inputs, device, cores and threads. Each run is
judged against the first runs of its trend. It runs nothing and takes seconds.

With --fail-on-regression it is a gate for CI: exit code 1 if a slow-down is shown and not fixed, 3 if a last run is
inconclusive.

Examples:
  strobe history runs
  strobe history runs --only act --fail-on-regression=5     (more than 5 % slower: a gate for CI)

More:
The reference is the first runs of a trend, or the first runs since the last gain that was shown, or since --accept.
Strobe estimates from the runs how far they, and levels that stay for some runs, differ by chance. The chance of a false
slow-down in 40 runs is about 5 %. If a run has other versions of packages, the answer names them. Each part has a
line of its own.

Exit code: 0. With --fail-on-regression it is 1 if a slow-down was shown, in the last run or before, and no later run
shows a gain that ends it. It is 3 if a last run is not judged: it cannot exclude a slow-down of 10 % (or of PERCENT, if
that is more), its slow-down may be another level of the machine, no run before it is like it, or it is broken or lacks
a measurement. --allow-not-judged turns 3 into 0.

Further examples:
  strobe history runs --output trends.html
  strobe history runs --fail-on-regression --accept=RUN      (slower since RUN, and meant to be)
  strobe history benchmarks/act --git                        (one run, under git: its result at every commit)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from strobe.core.cli.bounds import positional
from strobe.core.cli.flags import PageFlags, flag_values
from strobe.core.cli.live import Live
from strobe.core.cli.runner import Command, Studied
from strobe.core.cli.summaries import summary_of_run
from strobe.core.errors import UserError, legible, nearest
from strobe.core.results import units
from strobe.core.results.comparison import Verdict
from strobe.core.results.data import Interval
from strobe.core.results.numerals import format_fixed
from strobe.core.results.run_summary import MeasurementSummary
from strobe.core.runs import saved_runs, store
from strobe.core.runs.saved_runs import Run, UnreadableRun, load_git_versions, load_measured_runs
from strobe.history import gates
from strobe.history.gates import Gated, GateFlags, exclusion_limit
from strobe.history.results import History, Point, Trend
from strobe.version import __version__

if TYPE_CHECKING:  # it brings NumPy, which reading runs can do without
    from strobe.history.trend import Judged

TOO_WIDE = 0.10  # a change of more could hide: too noisy


def history(runs: Sequence[Run], source: str, unread: Sequence[UnreadableRun] = (), accept: str = "") -> History:
    """Return the trends of what was measured twice or more.

    Runs of the same settings (`saved_runs.settings`) make a trend, in which each is judged against a reference
    (`strobe.history.trend`). Versions do not part a trend, because what they change is what a history shows: a run
    says which of them are not those of the run before.

    Args:
        source: where the runs are from, in words.
        unread: files there that are no readable run.
        accept: the run whose times are the reference of its trends from then on; else empty.

    Raises:
        UserError: nothing was measured twice, or no run in a trend is called ``accept``.
    """
    by_time = sorted(runs, key=lambda run: run.summary.started)
    whole = [run for run in by_time if run.summary.status == "complete"]
    groups = _group_runs(whole)
    trends = [_trend(group, accept) for group in groups if len(group.seen) > 1]
    known = {point.run for trend in trends for point in trend.points}
    if accept and trends and accept not in known:
        raise UserError(f"--accept={accept}: no such run in a trend: {nearest(accept, sorted(known))}")
    if not trends:
        raise UserError(
            f"{source}: no two runs measured the same thing on the same machine "
            f"({len(whole)} measured run{'s' * (len(whole) != 1)} found)"
        )
    trends.sort(key=lambda of: max((p.started.timestamp() for p in of.points if p.changes), default=0.0), reverse=True)
    ended = [run for run in by_time if run.summary.status != "complete"]
    return History(
        strobe_version=__version__,
        title=f"{source}: how it changed",
        trends=trends,
        not_judged=[*_unjudged_runs(unread, ended, whole), *_first_measured(groups), *_dropped_measurements(groups)],
        notes=[f"left out {file.name}: {file.why}" for file in unread]
        + [f"left out {run.name}: {run.summary.status}" for run in ended],
    )


def gate(answer: History, allowed: float = 0.0) -> list[Gated]:
    """Return for each trend whether its newest run is slower than the reference by more than ``allowed`` (0.05: 5 %).

    What a newest run lacks to be judged at all is among them.
    """
    return [_gate_trend(trend, allowed) for trend in answer.trends] + [
        Gated("not judged", what, "") for what in answer.not_judged
    ]


def _gate_trend(trend: Trend, allowed: float) -> Gated:
    from strobe.core.measure.statistics import FEWEST_OF_RUN
    from strobe.history.trend import runs_needed

    last, widest = trend.points[-1], exclusion_limit(allowed)
    what = f"{trend.subject}, {trend.measured}, in {last.run}"
    if last.standing is not None and last.standing > 1 + allowed:
        shown = f"slower by {100 * (last.standing - 1):.1f} % than {units.join_names(trend.reference)}"
        where = "" if last.shown_in == last.run else f", shown in {last.shown_in} and not fixed since"
        return Gated("broken", what, f"{shown}{where}; --accept={last.shown_in} makes its times the reference")
    if last.change == "accepted":
        return Gated("held", what, "its times are the reference")
    if last.alone is None:
        return Gated("not judged", what, _unjudged_reason(last, FEWEST_OF_RUN))
    if last.verdict is not None and last.verdict.ratio > 1 + allowed and trend.doubt:
        return Gated("not judged", what, trend.doubt)
    high = last.alone.high - 1
    if high <= widest:
        most = f"slower by at most {100 * max(high, 0.0):.1f} % than {units.join_names(trend.reference)} (95 %)"
        return Gated("held", what, most)
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


def _unjudged_reason(last: Point, fewest: int) -> str:
    if last.summary.min <= 0:
        return "a time of zero has no ratio to another"
    if last.summary.n < fewest:
        return f"{last.summary.n} samples, and {fewest} are needed: give more --iterations or --seconds"
    return f"no run before it has {fewest} samples: run again"


@dataclass
class _Group:
    """The runs of one measurement with the same settings, the oldest first."""

    measured: str
    subject: str
    settings: dict[str, str]
    seen: list[tuple[Run, MeasurementSummary]]


def _group_runs(runs: Sequence[Run]) -> list[_Group]:
    groups: dict[tuple[object, ...], _Group] = {}
    for run in runs:
        for measurement in run.summary.measurements:
            measured = f"{run.summary.study}: {measurement.name}"
            group = groups.setdefault(
                (measured, run.subject.name, *sorted(measurement.settings.items())),
                _Group(measured, run.subject.name, measurement.settings, []),
            )
            # A copy of a run, or a commit that left it as it was, is no further run.
            if not group.seen or group.seen[-1][0].summary.started != run.summary.started:
                group.seen.append((run, measurement))
    return list(groups.values())


def _unjudged_runs(unread: Sequence[UnreadableRun], ended: Sequence[Run], whole: Sequence[Run]) -> list[str]:
    newest = whole[-1].summary.started if whole else None
    unreadable = [f"{file.name}: {file.why}" for file in unread if file.last]
    return unreadable + [
        f"{run.name}: {run.summary.status}: run it again"
        for run in ended
        if newest is None or run.summary.started > newest
    ]


def _first_measured(groups: Sequence[_Group]) -> list[str]:
    newest = max((group.seen[-1][0].summary.started for group in groups), default=None)
    alike: dict[tuple[str, str], list[_Group]] = {}
    for group in sorted(groups, key=lambda group: group.seen[-1][0].summary.started):
        alike.setdefault((group.measured, group.subject), []).append(group)
    lines = []
    for group in groups:
        if len(group.seen) > 1:
            continue
        run = group.seen[-1][0]
        before = next((other for other in reversed(alike[group.measured, group.subject]) if other is not group), None)
        if before is not None and before.seen[-1][0].summary.started < run.summary.started:
            why = f"no run before it had {'; '.join(saved_runs.unlike(before.settings, group.settings))}"
        elif before is None and run.summary.started == newest:
            why = "it is measured for the first time"
        else:
            continue
        lines.append(f"{group.subject}, {group.measured}, in {run.name}: {why}")
    return lines


def _dropped_measurements(groups: Sequence[_Group]) -> list[str]:
    runs: dict[tuple[str, str, str], dict[str, Run]] = {}
    for group in groups:
        for run, _ in group.seen:
            key = (run.summary.study, group.subject, run.subject.device)
            runs.setdefault(key, {})[run.name] = run
    lines = []
    for (study, subject, _), by_name in runs.items():
        *_, before, last = [None, *sorted(by_name.values(), key=lambda run: run.summary.started)]
        names = [m.name for m in last.summary.measurements] if last else []
        if before is not None and last is not None:
            lines += [
                f"{subject}, {study}: {m.name}, in {last.name}: it was not measured, as it was in {before.name}"
                for m in before.summary.measurements
                if m.name not in names
            ]
    return lines


def _trend(group: _Group, accept: str) -> Trend:
    from strobe.history.trend import judge

    levels = [measurement.level for _, measurement in group.seen]
    places = [place for place, level in enumerate(levels) if level is not None]  # of the runs that can be judged
    chosen = next((place for place, (run, _) in enumerate(group.seen) if run.name == accept), len(group.seen))
    after = next((at for at, place in enumerate(places) if place >= chosen), None)
    judged = dict(zip(places, judge([level for level in levels if level is not None], after), strict=True))
    names = [group.seen[place][0].name for place in places]
    points = []
    for place, (run, measurement) in enumerate(group.seen):
        before = group.seen[max(0, place - 1)][0].subject.versions
        point = Point(
            run=run.name,
            started=run.summary.started,
            strobe_version=run.summary.strobe_version,
            summary=measurement.summary,
            parts=measurement.parts,
            differs=saved_runs.unlike(before, run.subject.versions),
        )
        if (judgement := judged.get(place)) is not None:
            _add_judgement(point, judgement, names)
        elif points:  # what stands is not fixed by a run of too few samples
            point.standing, point.shown_in = points[-1].standing, points[-1].shown_in
        if after is not None and place == places[after]:
            point.change, point.standing, point.shown_in, point.stay = "accepted", None, None, None
        points.append(point)
    last = next((judgement for judgement in reversed(judged.values()) if judgement is not None), None)
    subject = group.seen[-1][0].subject
    return Trend(
        measured=group.measured,
        subject=group.subject,
        machine=f"{subject.device}, {subject.threads} threads",
        settings=group.settings,
        reference=[] if last is None else [names[place] for place in last.reference],
        between_runs=None if last is None else math.expm1(last.spread),
        known=0 if last is None else last.known,
        between_levels=None if last is None else math.expm1(last.wander),
        visible=next((_factor(one.least) - 1 for one in reversed(judged.values()) if one and one.together == 1), None),
        points=points,
    )


def _add_judgement(point: Point, judgement: Judged, names: Sequence[str]) -> None:
    from strobe.history.trend import ALONE, LEVEL

    point.alone = Interval(low=_factor(judgement.alone[0]), high=_factor(judgement.alone[1]), level=2 * ALONE - 1)
    if not judgement.known:  # two runs do not show how far runs differ
        return
    low, high = judgement.ratio - judgement.reach, judgement.ratio + judgement.reach
    apart, stands = low > 0 or high < 0, judgement.standing is not None and low > 0
    far = judgement.stay is None and abs(judgement.ratio) > judgement.least
    kind = "no difference shown"
    if far or stands or judgement.change in ("slower", "faster"):
        kind = "slower" if judgement.ratio > 0 else "faster"
    elif apart or judgement.stay is not None or judgement.reach > math.log1p(TOO_WIDE):
        kind = "inconclusive"  # a change, another level, or a run that is off by itself: the next ones tell
    interval = Interval(low=_factor(low), high=_factor(high), level=LEVEL)
    which = point.run if judgement.together == 1 else f"{point.run} and the {judgement.together - 1} before it"
    change = f"{_change(judgement.ratio)} % [{_change(low)}, {_change(high)}]"
    sentence = f"{which} against {units.join_names([names[place] for place in judgement.reference])}: {kind}, {change}"
    point.verdict = Verdict(kind=kind, ratio=_factor(judgement.ratio), interval=interval, pairs=0, sentence=sentence)
    point.together, point.change, point.stay = judgement.together, judgement.change, judgement.stay
    if judgement.standing is not None and judgement.shown is not None:
        point.standing, point.shown_in = _factor(judgement.standing), names[judgement.shown]


def _factor(logarithm: float) -> float:
    # Past e^300 a ratio would leave the range of a float.
    return math.exp(min(max(logarithm, -300.0), 300.0))


def _change(logarithm: float) -> str:
    return format_fixed(100 * (_factor(logarithm) - 1), 1, plus=True)


@dataclass
class HistoryConfig(PageFlags, GateFlags):
    """Arguments and flags of `strobe history`."""

    # A folder of runs; with --git, a run under git.
    folder: Path | None = field(default=None, metadata=positional("FOLDER"))
    # Read the run's result.json as it was at each commit.
    git: bool = False
    # Only runs whose subject's name or type contains this.
    only: str = ""
    # The times of this run and later ones are the reference.
    accept: str = ""


def study(config: HistoryConfig, live: Live) -> Studied:
    """Find the trends of the runs. Raises UserError."""
    assert config.folder is not None
    if config.git:
        runs, unread = load_git_versions(config.folder, summary_of_run)
    elif not config.folder.is_dir():
        raise UserError(f"no folder at {config.folder}: name the folder of the runs, such as runs")
    else:
        files = [(legible(name), file) for name, file in store.iter_results(config.folder)]
        files = live.each("reading runs", files, "runs")
        runs, unread = load_measured_runs((name, partial(summary_of_run, file)) for name, file in files)
    wanted = config.only.lower()
    runs = [run for run in runs if wanted in f"{run.subject.name} {run.subject.kind}".lower()]
    trends = history(runs, legible(str(config.folder)), unread, config.accept)
    answer = Studied(trends, flag_values(config), config.output_dir, None, page=config.output)
    return gates.gate(answer, config, lambda allowed: gate(trends, allowed))


run = Command("history", __doc__, HistoryConfig, None, study)
