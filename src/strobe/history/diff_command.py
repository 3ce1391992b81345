"""strobe diff: what changed between two runs of the same study?

Compares each measurement and each of its parts in BEFORE and AFTER, with intervals, and names what else differs:
settings, versions, machine. It runs nothing and takes a second.

With --fail-on-regression it is a gate for CI: exit code 1 if a measurement is shown to be slower, and 3 if a
measurement is inconclusive.

Examples:
  strobe diff runs/2026-11-20_1803_breakdown_act runs/2026-11-21_0412_breakdown_act
  strobe diff BEFORE AFTER --fail-on-regression=5     (a slow-down of more than 5 %)

More:
A measurement is not judged if its samples are too few or too noisy to exclude a slow-down of 10 % (or of PERCENT, if
that is more), if the runs measured different work, or if one of them lacks it. --allow-not-judged turns exit code 3
into 0.

Further examples:
  strobe diff BEFORE AFTER --output changes.html
  strobe diff BEFORE AFTER --output-dir runs          (saved: `strobe report` shows it again)
  strobe diff BEFORE AFTER --fail-on-regression       (any slow-down that is shown)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from strobe.core.cli.bounds import positional
from strobe.core.cli.flags import PageFlags, flag_values
from strobe.core.cli.live import Live
from strobe.core.cli.runner import Command, Studied
from strobe.core.errors import UserError
from strobe.core.results import units
from strobe.core.results.answer import Result
from strobe.core.results.comparison import Verdict
from strobe.core.results.measurement import Component, Measurement
from strobe.core.results.subject import Machine
from strobe.core.runs import store
from strobe.core.runs.saved_runs import settings, unlike
from strobe.history import gates
from strobe.history.gates import Gated, GateFlags, exclusion_limit
from strobe.history.results import ComponentChange, Difference, FigureChange, MeasurementChange, MemoryChange, RunLabel
from strobe.version import __version__

Judge = Callable[..., Verdict]
SMALLEST_SHARE = 0.02
FALSE_CLAIMS = 0.05


def diff(before: Result, after: Result, *, judge: Judge | None = None) -> Difference:
    """Judge ``after`` against ``before``, measurement by measurement and part by part.

    The runs were made at different times, so nothing pairs their samples: verdicts are unpaired, and a note says that a
    drift of the machine looks like a change. Many parts are judged at once. To keep the chance of any false claim at
    5 % for each measurement, only parts of at least 2 % of the whole are judged, each at the level 1 − 5 % / (parts
    judged) (Bonferroni). That holds where two runs of the same thing differ by no more than the verdicts allow for
    (2 %): two runs cannot show by how much theirs do, and many can (`strobe.history.history_command`).

    ``judge`` is `strobe.core.measure.verdicts.unpaired_verdict` or something with its signature.

    Raises:
        UserError: the runs are of different studies, or have no measurement in common.
    """
    if before.study != after.study:
        raise UserError(f"a {before.study} and a {after.study} cannot be compared: name two runs of the same study")
    names = [m.name for m in after.measurements]
    common = [m for m in before.measurements if m.name in names and m.samples.values]
    pairs = [(m, after.measurement(m.name)) for m in common if after.measurement(m.name).samples.values]
    if not pairs:
        earlier, later = ([m.name for m in run.measurements] for run in (before, after))
        measured = f"{', '.join(earlier) or 'none'} before, {', '.join(later) or 'none'} after"
        raise UserError(
            f"the two runs have no measurement in common ({measured}): name two runs that measured the same"
        )
    # Here and not above: it brings SciPy, which `regressed` and the command's help can do without.
    from strobe.core.measure.verdicts import unpaired_verdict

    judged_by = judge or unpaired_verdict
    return Difference(
        strobe_version=__version__,
        of=after.study,
        title=after.title,
        before=_label(before),
        after=_label(after),
        measurements=[
            _measurement(old, new, judged_by, unlike(settings(before, old), settings(after, new))) for old, new in pairs
        ],
        missing=[m.name for m in before.measurements if m.samples.values and m.name not in {m.name for _, m in pairs}],
        figures=_figures(before, after),
        notes=_notes(before, after),
    )


def _figures(before: Result, after: Result) -> list[FigureChange]:
    old, new = ({(name, unit): value for name, unit, value in run.figures()} for run in (before, after))
    named = {**old, **new}
    changes = [FigureChange(name=of[0], unit=of[1], before=old.get(of), after=new.get(of)) for of in named]
    return [change for change in changes if change.before is not None or change.after is not None]


def gate(difference: Difference, allowed: float = 0.0) -> list[Gated]:
    """Return for each measurement whether it became slower by more than ``allowed`` (0.05 is 5 %).

    It is not judged where the samples are too few or too noisy, where the runs measured different work (another
    machine, checkpoint, dtype, input …), and where the run after lacks it.
    """
    gated = [_gate_change(m, allowed, difference.after.status) for m in difference.measurements]
    return gated + [Gated("not judged", name, "the run after did not measure it") for name in difference.missing]


def _gate_change(m: MeasurementChange, allowed: float, status: str) -> Gated:
    from strobe.core.measure.verdicts import FEWEST_PAIRS

    verdict, widest = m.verdict, exclusion_limit(allowed)
    samples, high = [len(m.before.values), len(m.after.values)], verdict.interval.high - 1
    seen = f"measured: {units.change(verdict.ratio)}"
    if m.unlike:
        return Gated("not judged", m.name, f"the runs measured different work: {'; '.join(m.unlike)}; {seen}")
    if verdict.kind == "slower" and verdict.ratio > 1 + allowed:
        return Gated("broken", m.name, verdict.text)
    if min(samples) < FEWEST_PAIRS:
        needed = f"needs {FEWEST_PAIRS} samples of each run, has {samples[0]} and {samples[1]}"
        return Gated("not judged", m.name, f"{needed}: give both runs more --iterations or --seconds; {seen}")
    if status == "failed" or m.before.values == m.after.values:
        why = "the run after failed" if status == "failed" else "both runs are the same one"
        return Gated("not judged", m.name, f"{why}; {seen}")
    if high <= widest:
        level = f"({100 * verdict.interval.level:.3g} %)"
        return Gated("held", m.name, f"at most {100 * max(high, 0.0):.1f} % slower {level}; {seen}")
    return Gated(
        "not judged",
        m.name,
        f"it may be up to {100 * high:.1f} % slower, and {100 * widest:g} % must be excluded; {seen}. Give both more "
        f"--seconds, or allow more: --fail-on-regression={math.ceil(100 * high)}",
    )


def _label(run: Result) -> RunLabel:
    return RunLabel(title=run.title, started=run.started, strobe_version=run.strobe_version, status=run.status)


def _measurement(old: Measurement, new: Measurement, judge: Judge, unlike: list[str]) -> MeasurementChange:
    names = {"baseline_name": f"{old.name} before", "candidate_name": f"{new.name} after"}
    before = {tuple(c.path): c for c in old.components}
    after = {tuple(c.path): c for c in new.components}
    judged = sum(path in before and _counts(before[path], part) for path, part in after.items())
    changes = [_component(before.get(path), after.get(path), judged, judge) for path in {**after, **before}]
    return MeasurementChange(
        name=new.name,
        phase=new.phase,
        before=old.samples,
        after=new.samples,
        verdict=judge(old.samples.values, new.samples.values, **names),
        components=[change for change in changes if change is not None],
        judged=judged,
        memory=_memory(old, new),
        unlike=unlike,
    )


def _counts(old: Component, new: Component) -> bool:
    # A part that took no time in some iteration has no ratio.
    return max(old.share, new.share) >= SMALLEST_SHARE and min([*old.values, *new.values], default=0) > 0


def _component(old: Component | None, new: Component | None, judged: int, judge: Judge) -> ComponentChange | None:
    if old is None or new is None:
        part = old or new
        if part is None or part.other or part.share < SMALLEST_SHARE:
            return None
        if old is None:
            return ComponentChange(path=part.path, change="appeared", after_ms=part.summary.median)
        return ComponentChange(path=part.path, change="gone", before_ms=part.summary.median)
    if not _counts(old, new):
        return None
    level = 1 - FALSE_CLAIMS / judged
    verdict = judge(old.values, new.values, baseline_name="before", candidate_name="after", level=level)
    if verdict.kind not in ("faster", "slower"):
        return None
    return ComponentChange(
        path=new.path,
        change="faster" if verdict.kind == "faster" else "slower",
        before_ms=old.summary.median,
        after_ms=new.summary.median,
        verdict=verdict,
    )


def _memory(old: Measurement, new: Measurement) -> list[MemoryChange]:
    names = {
        "weights": "weights",
        "peak_activations": "peak activations",
        "peak_process": "peak of the process",
        "peak_device": "peak on the device",
        "graphs": "held by CUDA graphs",
    }
    pairs = [(name, getattr(old.memory, field), getattr(new.memory, field)) for field, name in names.items()]
    return [MemoryChange(name=name, before=a, after=b) for name, a, b in pairs if a is not None and b is not None]


def _notes(before: Result, after: Result) -> list[str]:
    notes = ["The runs were made one after the other, so a drift of the machine between them looks like a change. "
             "`strobe compare` alternates and is more reliable."]  # fmt: skip
    notes += _machine(before.machine, after.machine)
    if before.strobe_version != after.strobe_version:
        notes.append(f"strobe: {before.strobe_version} before, {after.strobe_version} after")
    notes += _describe_changes("config", _flat(before.config), _flat(after.config))
    fields = {"name", "kind", "source", "size", "parameters", "dtypes", "inputs", "anatomy", "packages"}
    old, new = (run.subject.model_dump(include=fields) for run in (before, after))
    notes += _describe_changes("subject", _flat(old), _flat(new))
    notes += _describe_changes("treatment", *(_treatments(run) for run in (before, after)))
    earlier, later = ({m.name for m in run.measurements} for run in (before, after))
    notes += [f"measured before only: {name}" for name in sorted(earlier - later)]
    notes += [f"measured after only: {name}" for name in sorted(later - earlier)]
    return notes


def _treatments(run: Result) -> dict[str, str]:
    """Treatments of other packages → name and version of the package."""
    treatments = (treatment for m in run.measurements for treatment in m.traits.treatments)
    return {treatment.key: treatment.package for treatment in treatments if treatment.package}


def _machine(old: Machine, new: Machine) -> list[str]:
    about = ("system", "cpu", "cores", "threads", "memory_bytes", "device", "device_name")
    notes = [
        f"other machine: {name.replace('_', ' ')} was {getattr(old, name)}, is {getattr(new, name)}"
        for name in about
        if getattr(old, name) != getattr(new, name)
    ]
    notes += _describe_changes("version", old.versions, new.versions)
    return notes + _describe_changes("power", old.power, new.power)


def _describe_changes(what: str, old: dict[str, str], new: dict[str, str]) -> list[str]:
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return [f"{what} {key}: {old.get(key, 'not there')} before, {new.get(key, 'not there')} after" for key in keys]


def _flat(data: object, prefix: str = "") -> dict[str, str]:
    """Nested settings as ``a.b`` → text."""
    if not isinstance(data, dict):
        return {prefix: str(data)}
    flat: dict[str, str] = {}
    for key, value in data.items():
        flat |= _flat(value, f"{prefix}.{key}" if prefix else str(key))
    return flat


@dataclass
class DiffConfig(PageFlags, GateFlags):
    """Arguments and flags of `strobe diff`."""

    # A run folder, or its result.json.
    before: Path | None = field(default=None, metadata=positional("BEFORE"))
    # Another run of the same study.
    after: Path | None = field(default=None, metadata=positional("AFTER"))


def study(config: DiffConfig, live: Live) -> Studied:
    """Compare the two runs. Raises UserError."""
    assert config.before is not None
    assert config.after is not None
    difference = diff(store.load(config.before), store.load(config.after))
    answer = Studied(difference, flag_values(config), config.output_dir, page=config.output)
    return gates.gate(answer, config, lambda allowed: gate(difference, allowed))


run = Command("diff", __doc__, DiffConfig, None, study, bar=False)
