"""History: how did the same measurement change from run to run, and where?

A run is judged against the runs since the last change, pooled. The runs were made at different times, so verdicts are
unpaired (`strobe.measure.verdicts.unpaired_verdict`), with an allowance for what differs between runs of the same
thing. Many runs are judged: to keep the chance of any false claim in a trend at 5 %, each is judged at the level
1 − 5 % / (runs judged) (Bonferroni), or at the verdicts' usual level where that is higher.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import strobe
from strobe.errors import UserError
from strobe.results import store
from strobe.results.answer import Result
from strobe.results.any_answer import AnyAnswer
from strobe.results.history import History, Point, Trend
from strobe.results.machine import Machine
from strobe.results.measurement import Measurement

POOLED = 5  # of the runs since the last change: the latest
FALSE_CLAIMS = 0.05
DEEPEST = 2  # levels of parts that have a trend
ASKED = ("batch size", "denoising steps", "chunk size")  # runs that differ in these measured different things


@dataclass(frozen=True)
class Run:
    """A run with the name it goes by."""

    name: str
    result: Result


def in_folder(folder: Path) -> tuple[list[Run], list[str]]:
    """Return the measured runs below ``folder``, and in words what was left out. Raises UserError for no folder."""
    if not folder.is_dir():
        raise UserError(f"no folder at {folder}: name the one that holds the runs, such as runs")
    return _measured((name, partial(store.load_answer, file)) for name, file in store.below(folder))


def in_git(path: Path) -> tuple[list[Run], list[str]]:
    """Return the versions of one run's result that git knows, and in words what was left out.

    Raises:
        UserError: there is no such file, no git, or no commit of it.
    """
    file = path / store.RESULT if path.is_dir() else path
    if not file.is_file():
        raise UserError(f"no {store.RESULT} at {path}: name a run's folder that is under git")
    where, name = file.resolve().parent, file.name
    listed = _git(where, "log", "--reverse", "--format=%H %h", "--", name).splitlines()
    if not listed:
        raise UserError(f"git knows no commit of {file}: commit it first")
    with tempfile.TemporaryDirectory() as scratch:

        def version(commit: str, short: str) -> AnyAnswer:
            copy = Path(scratch) / f"{short}.json"
            try:
                copy.write_text(_git(where, "show", f"{commit}:./{name}"), encoding="utf-8")
                return store.load_answer(copy)
            except UserError as error:
                raise UserError(str(error).replace(str(copy), "its result")) from None

        commits = [line.split() for line in listed]
        return _measured((short, partial(version, commit, short)) for commit, short in commits)


def _measured(results: Iterable[tuple[str, Callable[[], AnyAnswer]]]) -> tuple[list[Run], list[str]]:
    """Return the runs among ``results`` (name, what reads it) that were measured to their end; what cannot be read."""
    runs, left_out = [], []
    for name, read in results:
        try:
            answer = read()
        except UserError as error:
            left_out.append(f"left out {name}: {error}")
            continue
        if isinstance(answer, Result) and answer.status == "complete":
            runs.append(Run(name, answer))
    return runs, left_out


def _git(where: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(where), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise UserError("--git needs git, which is not installed") from None
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise UserError(f"git: {said[-1] if said else 'failed'}")
    return done.stdout


def history(runs: Sequence[Run], source: str, notes: Sequence[str] = ()) -> History:
    """Return the trends of what was measured twice or more. Raises UserError where nothing was."""
    trends = [trend for trend in _trends(runs) if len(trend.points) > 1]
    if not trends:
        raise UserError(
            f"{source}: no two runs measured the same thing on the same machine "
            f"({len(runs)} measured run{'s' * (len(runs) != 1)} found)"
        )
    trends.sort(key=_last_change, reverse=True)
    return History(
        strobe_version=strobe.__version__, title=f"{source}: how it changed", trends=trends, notes=list(notes)
    )


def regressed(found: History, threshold: float = 0.0) -> list[Trend]:
    """Return the trends whose last run is shown to be slower, by an estimated fraction above ``threshold``."""
    last = [(trend, trend.points[-1].verdict) for trend in found.trends]
    return [trend for trend, verdict in last if verdict and verdict.kind == "slower" and verdict.ratio > 1 + threshold]


def _last_change(trend: Trend) -> float:
    return max((point.started.timestamp() for point in trend.points if point.changes), default=0.0)


def _trends(runs: Sequence[Run]) -> Iterator[Trend]:
    found: dict[tuple[str, ...], list[tuple[Run, Measurement]]] = {}
    for run in sorted(runs, key=lambda one: one.result.started):
        for one in run.result.measurements:
            if one.samples.values:
                subject = run.result.subject
                about = f"{subject.name}{'' if subject.size == 'full' else f', {subject.size}'}"
                asked = [str(one.facts.get(fact)) for fact in ASKED]
                key = (f"{run.result.study}: {one.name}", about, _machine(run.result.machine), subject.inputs, *asked)
                found.setdefault(key, []).append((run, one))
    for (measured, subject, machine, *_), seen in found.items():
        yield Trend(measured=measured, subject=subject, machine=machine, points=list(_points(seen)))


def _machine(machine: Machine) -> str:
    return f"{machine.device_name or machine.cpu} ({machine.device}), {machine.threads} threads"


def _points(seen: Sequence[tuple[Run, Measurement]]) -> Iterator[Point]:
    from strobe.measure.verdicts import LEVEL, unpaired_verdict

    level = max(LEVEL, 1 - FALSE_CLAIMS / max(1, len(seen) - 1))
    since: list[list[float]] = []
    for run, measurement in seen:
        values, verdict = list(measurement.samples.values), None
        if since:
            pooled = [value for one in since[-POOLED:] for value in one]
            verdict = unpaired_verdict(pooled, values, level=level, baseline_name="before", candidate_name=run.name)
            if verdict.kind in ("faster", "slower"):
                since = []
        since.append(values)
        parts = {" / ".join(part.path): part.summary for part in measurement.components if part.depth <= DEEPEST}
        yield Point(
            run=run.name,
            started=run.result.started,
            strobe_version=run.result.strobe_version,
            summary=measurement.samples.summary,
            parts=parts,
            verdict=verdict,
        )
