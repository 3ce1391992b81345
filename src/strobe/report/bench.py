"""Calls on the robot beside calls on the bench → words and a table."""

from __future__ import annotations

from strobe.report import charts, units
from strobe.report.charts import Plot
from strobe.report.document import Column, Row, Section, Table
from strobe.report.frame import Plots
from strobe.results.bench import Bench, Cause, Place

SMALL = 0.1  # of the difference: smaller parts are in the table only
TITLES: dict[Place, str] = {"bench": "Bench", "bench at the robot's pace": "Bench, paced", "robot": "Robot"}
WORDS: dict[Cause, str] = {
    "clocks and gaps": "for the gaps between calls (clocks and caches)",
    "waiting for a CPU": "waiting for a CPU",
    "blocked": "blocked (the GIL, locks, the device)",
    "on the CPU": "longer on the CPU (memory and caches shared, clocks)",
}
ABOUT = (
    "The median call, by what the thread that calls the policy did. On a CPU: it ran, also where it spun for torch's "
    "other threads or the device. Waiting for a CPU: it was ready to run, and all were taken. Blocked: it slept, for "
    "the GIL, a lock, the device or torch's other threads."
)
AFTERWARDS = " The bench is the same process once the robot was disconnected, with the run's last observation"


def answers(bench: Bench | None) -> list[str]:
    """Return a call here, a call on the bench, and the parts of the difference; nothing without a bench."""
    if bench is None or bench.verdict is None:
        return []
    there, here = bench.of("bench"), bench.of("robot")
    if there is None or here is None:
        return []
    ratio, interval = bench.verdict.ratio, bench.verdict.interval
    change = f"{units.change(ratio)} {units.change_ends(interval)}"
    decimals = 1 if here.wall_ms >= 1 else 3
    text = f"A call took {units.ms(here.wall_ms, decimals)} ms on the robot, "
    text += f"{units.ms(there.wall_ms, decimals)} ms on the bench ({change})"
    if bench.verdict.kind != "slower":
        meaning = {"faster": "faster than on the bench", "too noisy": "too noisy to tell them apart"}
        return [f"{text}: {meaning.get(bench.verdict.kind, 'no difference that these calls can show')}."]
    more = here.wall_ms - there.wall_ms
    large = [share for share in bench.shares if share.ms > SMALL * more]
    parts = ", ".join(f"{units.ms(share.ms, decimals)} ms {WORDS[share.cause]}" for share in large)
    return [f"{text}: {parts}." if parts else f"{text}."]


def sections(bench: Bench | None) -> list[Section]:
    """Return a column for each place, and the parts of a call as rows."""
    if bench is None:
        return []
    decimals = units.digits(max(time.wall_ms for time in bench.times))
    columns = [Column("Of a call (ms)", numeric=False), *(Column(TITLES[time.place]) for time in bench.times)]
    there, here = bench.of("bench"), bench.of("robot")
    if there is not None and here is not None:
        columns.append(Column("Difference"))

    def row(title: str, name: str, kind: str = "part") -> Row:
        values = [getattr(time, name) for time in bench.times]
        cells: list[str | None] = [title, *(units.ms(value, decimals) for value in values)]
        if there is not None and here is not None:
            before, after = getattr(there, name), getattr(here, name)
            cells.append(None if before is None or after is None else units.signed(after - before, decimals))
        return Row(cells, kind)  # type: ignore[arg-type]

    is_split = all(time.waiting_ms is not None for time in bench.times)
    rows = [row("wall", "wall_ms", "whole"), row("on a CPU", "cpu_ms")]
    rows += [row("waiting for a CPU", "waiting_ms")] if is_split else []
    rows.append(row("blocked" if is_split else "blocked, or waiting for a CPU", "blocked_ms"))
    counts: list[str | None] = ["calls", *(f"{time.calls:,}" for time in bench.times)]
    rows.append(Row(counts + [None] * (len(columns) - len(counts))))
    about = ABOUT + (AFTERWARDS if there is not None else "")
    if there is not None:
        spaced = f"; paced, with a call every {bench.period_ms:,.0f} ms as in the run" if bench.period_ms else ""
        about += f"{spaced}. The difference is the robot's to the bench's, back to back."
    return [
        Section("bench", "Calls here and on the bench" if there is not None else "Calls", Table(columns, rows), [about])
    ]


def plots(bench: Bench | None) -> Plots:
    """Return a stacked bar per place: on the CPU, waiting for a CPU, blocked."""
    if bench is None or len(bench.times) < 2:
        return {}
    parts = {
        "on a CPU": [time.cpu_ms for time in bench.times],
        "waiting for a CPU": [time.waiting_ms for time in bench.times],
        "blocked": [time.blocked_ms for time in bench.times],
    }
    places = [TITLES[time.place] for time in bench.times]
    hover = "%{y}<br>%{x:,.4~g} ms<extra>%{fullData.name}</extra>"
    traces = [
        charts.bars(name, places, [ms or 0.0 for ms in values], charts.colour(index), hover)
        for index, (name, values) in enumerate(parts.items())
    ]
    x, y = charts.axis("ms of the median call"), {**charts.DOWN, "fixedrange": True}
    return {"bench": [Plot("As bars", "", traces, charts.layout(120 + 40 * len(places), x, y, barmode="stack"))]}
