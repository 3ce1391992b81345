"""Self-checks → document: what can be trusted first, then what is wrong with what to do, then a table of each area."""

from __future__ import annotations

from typing import Any

from strobe.report import facts, units
from strobe.report.document import Column, Document, Row, Section, Table
from strobe.report.plots import PALETTE, Plot, text
from strobe.results.doctor import TITLES, DoctorResult, SelfCheck


def outline(result: DoctorResult) -> Document:
    """The document of all self-checks."""
    machine = [("Machine", facts.machine(result.machine))] if result.machine is not None else []
    versions = result.machine.versions if result.machine is not None else {}
    return Document(
        kind="strobe doctor",
        title=units.plain(result.title),
        banner=_banner(result),
        answers=[units.plain(sentence) for sentence in answers(result)],
        findings=facts.findings(result.findings),
        sections=[
            Section(area, title, _table([check for check in result.checks if check.area == area]))
            for area, title in TITLES.items()
            if any(check.area == area for check in result.checks)
        ],
        notes=[units.plain(note) for note in result.notes],
        facts=[
            *machine,
            ("Versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
            ("Strobe", result.strobe_version),
            *facts.run(result),
        ],
        raw=facts.raw(result.command, {"Config": result.config}),
    )


def plots(result: DoctorResult) -> dict[str, list[Plot]]:
    """How far each treatment moves the actions, where that was seen."""
    moved = [(check, rms) for check in result.checks if isinstance(rms := check.evidence.get("rms"), int | float)]
    if not moved:
        return {}
    # A logarithm has no zero: what is equal to the last bit is drawn at the left edge.
    least = min([rms for _, rms in moved if rms > 0], default=1e-9) / 3
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": [max(rms, least) for _, rms in group],
            "y": [text(check.name) for check, _ in group],
            "customdata": [units.sigma(rms) for _, rms in group],
            "marker": {"color": colour, "size": 9},
            "hovertemplate": "%{customdata} σ<extra>%{y}</extra>",
        }
        for name, colour, group in (
            ("holds", PALETTE[0], [(check, rms) for check, rms in moved if check.outcome != "fails"]),
            ("fails", PALETTE[3], [(check, rms) for check, rms in moved if check.outcome == "fails"]),
        )
        if group
    ]
    layout = {
        "height": 120 + 20 * len(moved),
        "showlegend": len(traces) > 1,
        "xaxis": {"title": {"text": "RMS error of the actions (σ)"}, "type": "log"},
        "yaxis": {"automargin": True, "autorange": "reversed"},
    }
    caption = "Of the dimension that moves most, in units of its spread. At the left edge: equal to the last bit."
    return {"treatments": [Plot("How far each treatment moves the actions", caption, traces, layout)]}


def answers(result: DoctorResult) -> list[str]:
    """The verdict: what can be trusted, how much needs care, and what is not installed."""
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
        head += f", as far as was looked (not at: {', '.join(left_out)})." if left_out else "."
    said = [head]
    if doubtful := result.of("doubtful"):
        many = "thing needs" if len(doubtful) == 1 else "things need"
        said.append(f"{len(doubtful)} {many} care: {_listed(doubtful)}.")
    if missing := result.of("missing"):
        ways = [check.do for check in missing if check.do]
        said.append(f"Not installed: {_listed(missing)}." + (" The tables say how to get them." if ways else ""))
    if absent := result.of("not here"):
        said.append(f"Not to be had on this machine: {units.count(len(absent), 'thing')}, marked 'not here'.")
    return said


def _listed(checks: list[SelfCheck], many: int = 6) -> str:
    names = [check.name for check in checks]
    more = len(names) - many
    return ", ".join(names[:many]) + (f" and {more} more" if more > 0 else "")


def _banner(result: DoctorResult) -> str | None:
    if result.status == "complete":
        return None
    return f"Interrupted: {units.count(len(result.checks), 'self-check')} made, others not."


def _table(checks: list[SelfCheck]) -> Table:
    columns = [Column(title, numeric=False) for title in ("Self-check", "Outcome", "Seen", "What to do")]
    return Table(columns, [_row(check) for check in checks]).without_empty_columns()


def _row(check: SelfCheck) -> Row:
    kind = "whole" if check.outcome in ("fails", "doubtful") else "other" if check.outcome == "not here" else "part"
    # What is wrong has its words in the findings above.
    do = check.do if check.outcome == "missing" else ""
    return Row([units.plain(check.name), check.outcome, units.plain(check.seen), units.plain(do) or None], kind)
