"""Remote inference → sections: what a round trip is made of, what the server made of observations, another encoding."""

from __future__ import annotations

from strobe.report import units
from strobe.report.document import Column, Row, Section, Table
from strobe.results.remote import Clocks, Encoding, Remote


def answers(remote: Remote) -> list[str]:
    """Return the share of serialisation, and what JPEG would buy."""
    sentences = []
    if remote.trip is not None and remote.packing is not None and remote.sending is not None:
        there = "" if remote.stamped else " (the way there includes the server's unpickling)"
        sentences.append(
            f"A round trip took {remote.trip.median:,.1f} ms (median; 95 % within {remote.trip.p95:,.1f}): "
            f"{100 * (remote.packing + remote.sending):.1f} % is serialisation, {100 * remote.packing:.1f} % pickling "
            f"and {100 * remote.sending:.1f} % sending{there}."
        )
    if remote.encoding is not None:
        sentences.append(_encoding(remote.encoding))
    return sentences


def sections(remote: Remote) -> list[Section]:
    """Return round trips, then observations."""
    shown = []
    if remote.steps:
        shown.append(Section("round-trips", "Round trip", _steps(remote), _about(remote)))
    shown.append(Section("observations", "Observations", _observations(remote)))
    return shown


def _steps(remote: Remote) -> Table:
    columns = [Column("Step", numeric=False), Column("Where", numeric=False)]
    columns += [Column("Median (ms)"), Column("95 % (ms)"), Column("Longest (ms)"), Column("% of whole")]
    rows = []
    for step in remote.steps:
        ms = step.ms
        figures = (units.ms(figure, 2) for figure in (ms.median, ms.p95, ms.max))
        rows.append(Row([step.name, step.side, *figures, f"{100 * step.share:.1f} %"]))
    return Table(columns, rows)


def _about(remote: Remote) -> list[str]:
    about = [
        f"{units.count(remote.trips, 'round trip')}, from pickling an observation to its actions in the queue"
        + (", without the first." if remote.trips > 1 else ".")
    ]
    if not remote.stamped:
        about.append("The server was not watched (`strobe rollout -- policy_server …`): its part is seen from outside.")
    if remote.clocks is not None:
        about.append(_clocks(remote.clocks))
    return about


def _clocks(clocks: Clocks) -> str:
    if clocks.shared:
        return "Server and client share one machine's clock."
    return (
        f"The server's clock is {units.signed(clocks.offset_ms, 3)} ms off the client's, within "
        f"{clocks.uncertainty_ms:.3f} ms: from the exchange with the shortest ways, which need not be equally long."
    )


def _observations(remote: Remote) -> Table:
    rows = [Row(["sent" if remote.side == "client" else "received", f"{remote.observations:,}"])]
    if remote.observation_bytes is not None:
        rows.append(Row(["size (median)", units.size(round(remote.observation_bytes.median))]))
    if remote.chunk_bytes is not None:
        rows.append(Row(["size of a chunk (median)", units.size(round(remote.chunk_bytes.median))]))
    rows.append(Row(["had to be used, the queue being empty", f"{remote.must_go:,}"]))
    if (decisions := remote.decisions) is not None:
        rows += [
            Row(["kept by the server", f"{decisions.kept:,}"]),
            Row(["kept in the place of an older one", f"{decisions.replaced:,}"]),
            Row(["dropped: predicted already", f"{decisions.predicted:,}"]),
            Row(["dropped: similar to the last one used", f"{decisions.similar:,}"]),
        ]
    if (encoding := remote.encoding) is not None:
        rows += [
            Row(["images, pickled", f"{units.size(encoding.raw_bytes)}, {encoding.raw_ms:.2f} ms"]),
            Row(["images as JPEG of quality 95", f"{units.size(encoding.jpeg_bytes)}, {encoding.jpeg_ms:.2f} ms"]),
        ]
    return Table([Column("Observations", numeric=False), Column("", numeric=True)], rows)


def _encoding(encoding: Encoding) -> str:
    images, size = units.count(encoding.images, "image"), units.size(encoding.jpeg_bytes)
    text = (
        f"As JPEG of quality 95 its {images} would be {size} instead of {units.size(encoding.raw_bytes)}, "
        f"at {encoding.jpeg_ms:.1f} ms to encode and decode instead of {encoding.raw_ms:.1f}"
    )
    if encoding.saves_ms is None:
        return f"{text}."
    verb = "save" if encoding.saves_ms >= 0 else "cost"
    return f"{text}: on this link that would {verb} about {abs(encoding.saves_ms):.1f} ms of a round trip."
