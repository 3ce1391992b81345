"""A rollout's policy calls: on the robot compared with the bench, and the round trips to a server."""

from __future__ import annotations

from strobe.core.report.document import Column, Columns, Row, Section, Table, figure, heads, listing, words
from strobe.core.results import units
from strobe.loops.results.rollout import Bench, Cause, Clocks, Encoding, Place, Remote, Step, spread_in_words

SMALL = 0.1  # share of the difference: smaller parts are in the table only
TITLES: dict[Place, str] = {"bench": "Bench", "bench at the robot's pace": "Bench, paced", "robot": "Robot"}
WORDS: dict[Cause, str] = {
    "clocks and gaps": "from gaps between calls (clocks, caches)",
    "waiting for a CPU": "waiting for a CPU",
    "blocked": "blocked (the GIL, locks, the device)",
    "on the CPU": "more CPU time (shared memory and caches, clocks)",
}
ABOUT = (
    "The median call, by the state of the thread that calls the policy. On a CPU: it ran, or spun while torch's other "
    "threads or the device worked. Waiting for a CPU: it was ready to run, and all CPUs were busy. Blocked: it slept, "
    "waiting for the GIL, a lock, the device or torch's other threads."
)
AFTERWARDS = " The bench is the same process after the robot was disconnected, with the run's last observation"


def bench_answers(bench: Bench | None) -> list[str]:
    """Return a call on the robot, a call on the bench, and the parts of the difference; nothing without a bench."""
    there, here = (bench and bench.call_times(place) for place in ("bench", "robot"))
    if bench is None or bench.verdict is None or there is None or here is None:
        return []
    ratio, interval = bench.verdict.ratio, bench.verdict.interval
    change = f"{units.change(ratio)} {units.change_ends(interval)}"
    decimals = 1 if here.wall_ms >= 1 else 3
    text = f"A policy call took {units.ms(here.wall_ms, decimals)} ms on the robot and "
    text += f"{units.ms(there.wall_ms, decimals)} ms on the bench ({change})"
    if bench.verdict.kind != "slower":
        meaning = {"faster": "faster than on the bench"}
        return [f"{text}: {meaning.get(bench.verdict.kind, 'inconclusive, needs a longer run')}."]
    more = here.wall_ms - there.wall_ms
    large = [share for share in bench.shares if share.ms > SMALL * more]
    parts = ", ".join(f"{units.ms(share.ms, decimals)} ms {WORDS[share.cause]}" for share in large)
    return [f"{text}: {parts}." if parts else f"{text}."]


def bench_sections(bench: Bench | None) -> list[Section]:
    """Return a column for each place, and the parts of a call as rows."""
    if bench is None:
        return []
    decimals = units.digits(max(time.wall_ms for time in bench.times))
    columns = [Column("Policy call (ms)", numeric=False), *(Column(TITLES[time.place]) for time in bench.times)]
    there, here = bench.call_times("bench"), bench.call_times("robot")
    if there is not None and here is not None:
        columns.append(Column("Difference"))

    def row(title: str, name: str, kind: str = "part") -> Row:
        values = [getattr(time, name) for time in bench.times]
        cells: list[str | None] = [title, *(units.ms(value, decimals) for value in values)]
        if there is not None and here is not None:
            before, after = getattr(there, name), getattr(here, name)
            cells.append(None if before is None or after is None else units.format_signed(after - before, decimals))
        return Row(cells, kind)  # type: ignore[arg-type]

    is_split = all(time.waiting_ms is not None for time in bench.times)
    rows = [row("wall time", "wall_ms", "whole"), row("on a CPU", "cpu_ms")]
    rows += [row("waiting for a CPU", "waiting_ms")] if is_split else []
    rows.append(row("blocked" if is_split else "blocked, or waiting for a CPU", "blocked_ms"))
    counts: list[str | None] = ["calls", *(f"{time.calls:,}" for time in bench.times)]
    rows.append(Row(counts + [None] * (len(columns) - len(counts))))
    about = ABOUT + (AFTERWARDS if there is not None else "")
    if there is not None:
        spaced = f"; paced, with a call every {bench.period_ms:,.0f} ms as in the run" if bench.period_ms else ""
        about += f"{spaced}. Difference: robot minus bench, back to back."
    return [
        Section(
            "bench",
            "Policy calls on the robot and on the bench" if there is not None else "Policy calls",
            Table(columns, rows),
            [about],
        )
    ]


def remote_answers(remote: Remote) -> list[str]:
    """Return the round trip with its serialisation, and the effect of JPEG."""
    sentences = []
    if remote.trip is not None and remote.packing is not None and remote.sending is not None:
        there = "" if remote.stamped else ", which includes the server's unpickling"
        sentences.append(
            f"Round trip: {spread_in_words(remote.trip)} ({units.count(remote.trip.n, 'round trip')}). "
            f"{100 * remote.packing:.1f} % of it is pickling and {100 * remote.sending:.1f} % sending{there}."
        )
    if remote.encoding is not None:
        sentences.append(_encoding(remote.encoding))
    return sentences


def remote_sections(remote: Remote) -> list[Section]:
    """Return round trips, then observations."""
    trips = listing("round-trips", "Round trip", remote.steps, _STEPS, *_describe_remote(remote), whole=True)
    return [*trips, Section("observations", "Observations", _observations(remote))]


_STEPS: Columns[Step] = [
    words("Step", lambda step: step.name),
    words("Where", lambda step: step.side),
    figure("Median (ms)", lambda step: step.ms.median, units.ms),
    figure("p95 (ms)", lambda step: step.ms.quantile(units.TAIL), units.ms),
    figure("Max (ms)", lambda step: step.ms.max, units.ms),
    figure("% of round trip", lambda step: 100 * step.share, "{:.1f} %".format),
]


def _describe_remote(remote: Remote) -> list[str]:
    about = [
        f"{units.count(remote.trips, 'round trip')}, from pickling an observation to its actions in the queue"
        + (", without the first." if remote.trips > 1 else ".")
    ]
    if not remote.stamped:
        about.append(
            "The server did not run in Strobe (`strobe rollout -- policy_server …`), so the client measured its part "
            "from outside."
        )
    if remote.clocks is not None:
        about.append(_clocks(remote.clocks))
    return about


def _clocks(clocks: Clocks) -> str:
    if clocks.shared:
        return "Server and client share one machine's clock."
    return (
        f"The server's clock is {units.format_signed(clocks.offset_ms, 3)} ± {clocks.uncertainty_ms:.3f} ms ahead of "
        "the client's, by the fastest exchange. The two ways of an exchange may take different times."
    )


def _observations(remote: Remote) -> Table:
    cells: dict[str, str | None] = {"sent" if remote.side == "client" else "received": f"{remote.observations:,}"}
    if remote.observation_bytes is not None:
        cells["size (median)"] = units.size(round(remote.observation_bytes.median))
    if remote.chunk_bytes is not None:
        cells["size of a chunk (median)"] = units.size(round(remote.chunk_bytes.median))
    cells["sent with an empty queue (must_go)"] = f"{remote.must_go:,}"
    if (decisions := remote.decisions) is not None:
        cells["accepted by the server"] = f"{decisions.kept:,}"
        cells["accepted in place of an older one"] = f"{decisions.replaced:,}"
        cells["dropped: already predicted"] = f"{decisions.predicted:,}"
        cells["dropped: similar to the last observation used"] = f"{decisions.similar:,}"
    if remote.empty:
        cells["answers without a chunk"] = f"{remote.empty:,}"
    if remote.failures:
        cells["requests that failed"] = f"{sum(failure.count for failure in remote.failures):,}"
    if (encoding := remote.encoding) is not None:
        cells["images, pickled"] = f"{units.size(encoding.raw_bytes)}, {encoding.raw_ms:.2f} ms"
        cells["images as JPEG of quality 95"] = f"{units.size(encoding.jpeg_bytes)}, {encoding.jpeg_ms:.2f} ms"
    return Table(heads("<Observations | "), [Row([name, cell]) for name, cell in cells.items()])


def _encoding(encoding: Encoding) -> str:
    images, size = units.count(encoding.images, "image"), units.size(encoding.jpeg_bytes)
    text = (
        f"JPEG of quality 95 would shrink {images} from {units.size(encoding.raw_bytes)} to {size}, and take "
        f"{encoding.jpeg_ms:.1f} ms to encode and decode instead of {encoding.raw_ms:.1f} ms"
    )
    if encoding.saves_ms is None:
        return f"{text}."
    verb = "save" if encoding.saves_ms >= 0 else "cost"
    return f"{text}. On this link that would {verb} about {abs(encoding.saves_ms):.1f} ms per round trip."
