"""Self-checks → document: what can be trusted first, then what is wrong with what to do, then a table of each area."""

from __future__ import annotations

from strobe.core.report import charts, frame
from strobe.core.report.charts import Plot
from strobe.core.report.document import Column, Document, Row, Section, Table
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.doctor.results import TITLES, DoctorResult, SelfCheck


def outline(result: DoctorResult, _depth: int | None = None) -> Document:
    """Return the document of all self-checks."""
    machine = result.machine
    versions = machine.versions if machine is not None else {}
    return frame.document(
        result,
        answers(result),
        [
            Section(area, title, _table([check for check in result.checks if check.area == area]))
            for area, title in TITLES.items()
            if any(check.area == area for check in result.checks)
        ],
        banner=_banner(result),
        facts=[
            ("Machine", frame.machine(machine) if machine is not None else None),
            ("Versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
            ("Strobe", result.strobe_version),
        ],
    )


def plots(result: DoctorResult, _depth: int | None = None) -> Plots:
    """Return how far each treatment moves the actions, where that was seen."""
    moved = [(check, rms) for check in result.checks if isinstance(rms := check.evidence.get("rms"), int | float)]
    if not moved:
        return {}
    # A logarithm has no zero: what is equal to the last bit is drawn at the left edge.
    least = min([rms for _, rms in moved if rms > 0], default=1e-9) / 3
    failing = [pair for pair in moved if pair[0].outcome == "fails"]
    traces = [
        charts.points(
            name,
            [max(rms, least) for _, rms in group],
            [check.name for check, _ in group],
            colour,
            "%{customdata} σ<extra>%{y}</extra>",
            customdata=[units.sigma(rms) for _, rms in group],
        )
        for name, colour, group in (
            ("holds", charts.colour(0), [pair for pair in moved if pair not in failing]),
            ("fails", charts.colour(3), failing),
        )
        if group
    ]
    x = charts.axis("RMS error of the actions (σ)", type="log")
    layout = charts.layout(120 + 20 * len(moved), x, charts.DOWN, showlegend=len(traces) > 1)
    caption = "The dimension that moves most, in units of its spread. At the left edge: equal to the last bit."
    return {"treatments": [Plot("How far each treatment moves the actions", caption, traces, layout)]}


def answers(result: DoctorResult) -> list[str]:
    """Return the verdict: what can be trusted, how much needs care, and what is not installed."""
    if not result.checks:
        return ["Nothing was checked."]
    failing = result.of("fails")
    checked = units.count(len(result.checks), "self-check")
    if failing:
        head = f"{len(failing)} of {checked} fail: {_listed(failing)} cannot be trusted on this machine."
    else:
        seen = {check.area for check in result.checks}
        left_out = [title.lower() for area, title in TITLES.items() if area not in seen]
        head = f"None of {checked} fails: what Strobe measures on this machine can be trusted"
        head += f", as far as it was checked (not checked: {', '.join(left_out)})." if left_out else "."
    sentences = [head]
    if doubtful := result.of("doubtful"):
        noun = "thing needs" if len(doubtful) == 1 else "things need"
        sentences.append(f"{len(doubtful)} {noun} care: {_listed(doubtful)}.")
    if missing := result.of("missing"):
        ways = [check.do for check in missing if check.do]
        sentences.append(f"Not installed: {_listed(missing)}." + (" The tables say how to get them." if ways else ""))
    if absent := result.of("not here"):
        verb = "is" if len(absent) == 1 else "are"
        sentences.append(
            f"{units.count(len(absent), 'check')} {verb} not available on this machine (marked 'not here')."
        )
    return sentences


def _listed(checks: list[SelfCheck], many: int = 6) -> str:
    names = [check.name for check in checks]
    more = len(names) - many
    return ", ".join(names[:many]) + (f" and {more} more" if more > 0 else "")


def _banner(result: DoctorResult) -> str | None:
    if result.status == "complete":
        return None
    return f"Interrupted: {units.count(len(result.checks), 'self-check')} made, the others not."


def _table(checks: list[SelfCheck]) -> Table:
    columns = [Column(title, numeric=False) for title in ("Self-check", "Outcome", "Seen", "What to do")]
    return Table(columns, [_row(check) for check in checks]).without_empty_columns()


def _row(check: SelfCheck) -> Row:
    kind = "whole" if check.outcome in ("fails", "doubtful") else "other" if check.outcome == "not here" else "part"
    # What is wrong has its words in the findings above.
    do = check.do if check.outcome == "missing" else ""
    return Row([check.name, check.outcome, check.seen, do or None], kind)
