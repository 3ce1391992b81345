"""The remote part of a run: round trips, their steps, the clocks' offset, the server's decisions and its receiving.

Times are nanoseconds. Up to `encoding` nothing here knows how they were recorded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from strobe.core.results.data import Quantiles
from strobe.core.timeline.timeline import Section
from strobe.loops.events import (
    ChunkReceived,
    ChunkServed,
    ClockShared,
    EmptyAnswer,
    ImagesEncoded,
    ObservationReceived,
    ObservationUploaded,
    RequestFailed,
)
from strobe.loops.header import Header
from strobe.loops.measure.rollout import quantiles
from strobe.loops.reader import RECEIVING, RunRecord
from strobe.loops.remote_stamps import KEPT, PREDICTED, REPLACED, SIMILAR
from strobe.loops.results.rollout import Clocks, Decisions, Encoding, Failure, Remote, Step

Exchange = tuple[int, int, int, int]  # client sends, server receives, server answers, client receives


@dataclass(frozen=True)
class Leg:
    """A part of one round trip; the next one begins where it ends."""

    name: str
    side: str
    end_ns: int
    packs: bool = False


@dataclass(frozen=True)
class Trip:
    """One round trip on the client's clock, from pickling an observation to its actions in the queue."""

    start_ns: int
    legs: Sequence[Leg]

    @property
    def end_ns(self) -> int:
        """Nanoseconds at which its last leg ends."""
        return self.legs[-1].end_ns

    @property
    def ms(self) -> float:
        """Milliseconds of the whole trip."""
        return (self.end_ns - self.start_ns) / 1e6

    def spans(self) -> list[tuple[Leg, int, int]]:
        """Each leg with its start and end; none begins before the one before it ended."""
        spans, at = [], self.start_ns
        for leg in self.legs:
            end = min(max(at, leg.end_ns), max(self.end_ns, self.start_ns))
            spans.append((leg, at, end))
            at = end
        return spans


def offset(exchanges: Iterable[Exchange]) -> tuple[int, int] | None:
    """Server's clock minus client's, and how far off that can be; None without exchanges.

    The offset is NTP's (RFC 5905, section 8): half the difference of the two ways. An exchange is off by no more than
    half of what it spent on its ways, so the one that spent least is taken.
    """
    best: tuple[int, int] | None = None
    for sent, arrived, answered, back in exchanges:
        ways = (back - sent) - (answered - arrived)
        if ways >= 0 and (best is None or ways < 2 * best[1]):
            best = ((arrived - sent) + (answered - back)) // 2, -(-ways // 2)
    return best


def clocks(exchanges: Iterable[Exchange], shared: bool) -> Clocks | None:
    """The clocks' relation; ``shared``: they should be one, and are believed to be unless the exchanges deny it."""
    estimate = offset(exchanges)
    if estimate is None:
        return None
    if shared and abs(estimate[0]) <= estimate[1]:
        return Clocks(shared=True, offset_ms=0.0, uncertainty_ms=0.0)
    return Clocks(shared=False, offset_ms=estimate[0] / 1e6, uncertainty_ms=estimate[1] / 1e6)


def steps(trips: Sequence[Trip]) -> list[Step]:
    """The steps of ``trips``, in their order, with their shares of the whole; none without trips."""
    took: dict[str, list[int]] = {}
    legs: dict[str, Leg] = {}
    for trip in trips:
        for leg, start, end in trip.spans():
            took.setdefault(leg.name, []).append(end - start)
            legs.setdefault(leg.name, leg)
    whole = sum(trip.end_ns - trip.start_ns for trip in trips)
    return [
        Step(
            name=name,
            side=legs[name].side,  # type: ignore[arg-type]  # one of its literals
            packs=legs[name].packs,
            ms=quantiles([value / 1e6 for value in values]),
            share=sum(values) / whole if whole > 0 else 0.0,
        )
        for name, values in took.items()
    ]


def encoding(
    images: int,
    raw: tuple[int, int],
    jpeg: tuple[int, int],
    sent_bytes: float | None,
    sending_ms: float | None,
    shortest_ms: float = 0.0,
) -> Encoding:
    """Bytes and time that JPEG would buy.

    Args:
        raw, jpeg: bytes and nanoseconds of the images, packed and unpacked.
        sent_bytes, sending_ms: of an observation and its way to the server; None if not told.
        shortest_ms: the shortest way seen, which takes this long with hardly a byte.
    """
    saves = None
    if sent_bytes and sending_ms is not None:
        by_bytes = max(0.0, sending_ms - shortest_ms)
        saves = by_bytes * min(1.0, (raw[0] - jpeg[0]) / sent_bytes) + (raw[1] - jpeg[1]) / 1e6
    return Encoding(
        images=images,
        raw_bytes=raw[0],
        raw_ms=raw[1] / 1e6,
        jpeg_bytes=jpeg[0],
        jpeg_ms=jpeg[1] / 1e6,
        saves_ms=saves,
    )


TRIP, RECEIVED = "round trip", "observation received"
SEND = "send to the server"
LINES = 3


def summarize_remote(header: Header, record: RunRecord) -> Remote | None:
    """Return the remote part of a run; None if its policy is not remote."""
    if header.engine == "remote":
        return _client(header, record)
    return _server(header, record) if header.engine == "server" else None


def round_trips(record: RunRecord) -> list[Trip]:
    """Return the round trips that a client saw, on its clock; with the server's own steps where that was watched."""
    shared = _clocks(record)
    ahead = 0 if shared is None else round(shared.offset_ms * 1e6)
    uploads = {upload.key: upload for upload in record.table(ObservationUploaded)}
    # An observation without an upload was sent before recording began, or in another run of the server.
    return [_trip(uploads[chunk.key], chunk, ahead) for chunk in record.table(ChunkReceived) if chunk.key in uploads]


def _trip(upload: ObservationUploaded, chunk: ChunkReceived, ahead: int) -> Trip:
    """Return a round trip; ``ahead``: nanoseconds by which the server's clock is ahead."""
    legs = [Leg("pickle observation", "client", upload.start, True)]
    if upload.stamps and chunk.stamps:
        _, received, unpacked, *_ = (stamp - ahead for stamp in upload.stamps)
        _, taken, prepared, preprocessed, predicted, postprocessed, packed, answered = (
            stamp - ahead for stamp in chunk.stamps
        )
        legs += [
            Leg(SEND, "network", received),
            Leg("unpickle observation", "server", unpacked, True),
            Leg("wait in the server's queue", "server", taken),
            Leg("prepare inputs", "server", prepared),
            Leg("preprocessing", "server", preprocessed),
            Leg("policy", "server", predicted),
            Leg("postprocessing", "server", postprocessed),
            Leg("pickle actions", "server", packed, True),
            Leg("sleep of the server", "server", answered),
            Leg("send to the client", "network", chunk.end),
        ]
    else:
        legs += [Leg(SEND, "network", upload.end), Leg("server and the way back", "server and network", chunk.end)]
    legs.append(Leg("unpickle actions", "client", chunk.unpickled, True))
    return Trip(upload.pickled, [*legs, Leg("merge into the queue", "client", chunk.merged)])


def _clocks(record: RunRecord) -> Clocks | None:
    return clocks(_exchanges(record), shared=bool(record.table(ClockShared)))


def _exchanges(record: RunRecord) -> list[Exchange]:
    sent = [
        (upload.start, upload.stamps[0], upload.stamps[3], upload.end)
        for upload in record.table(ObservationUploaded)
        if upload.stamps
    ]
    return sent + [
        (chunk.start, chunk.stamps[0], chunk.stamps[7], chunk.end)
        for chunk in record.table(ChunkReceived)
        if chunk.stamps
    ]


def _client(header: Header, record: RunRecord) -> Remote:
    uploads, trips = record.table(ObservationUploaded), round_trips(record)
    counted = trips[1:] or trips  # the first call warms up
    parts = steps(counted)
    decisions = [upload.stamps[4] for upload in uploads if upload.stamps]
    sizes = _sizes([upload.size for upload in uploads])
    remote = Remote(
        side="client",
        stamped=any(leg.side == "server" for trip in trips for leg in trip.legs),
        clocks=_clocks(record),
        observations=len(uploads),
        must_go=sum(upload.must_go for upload in uploads),
        observation_bytes=sizes,
        chunk_bytes=_sizes([chunk.size for chunk in record.table(ChunkReceived)]),
        decisions=_decisions(decisions) if decisions else None,
        trips=len(trips),
        empty=len(record.table(EmptyAnswer)),
        failures=_failures(record),
        trip=quantiles([trip.ms for trip in counted]) if counted else None,
        steps=parts,
        packing=sum(step.share for step in parts if step.packs) if parts else None,
        sending=sum(step.share for step in parts if step.side == "network") if parts else None,
        asked_late=_late_requests(record),
        threshold=header.share,
        chunk=header.chunk,
    )
    if encodings := record.table(ImagesEncoded):
        tried = encodings[-1]
        sending = next((step.ms.median for step in parts if step.name == SEND), None)
        sent = None if sizes is None else sizes.median
        best = offset(_exchanges(record))
        shortest = 0.0 if best is None else best[1] / 1e6
        raw, jpeg = (tried.raw, tried.raw_ns), (tried.jpeg, tried.jpeg_ns)
        remote.encoding = encoding(tried.images, raw, jpeg, sent, sending, shortest)
    return remote


def _late_requests(record: RunRecord) -> int:
    """Count round trips after the first that waited for an empty queue, all observations before dropped as similar."""
    merged = sorted(chunk.merged for chunk in record.table(ChunkReceived))
    before: dict[int, set[int]] = {}  # chunks that had come → decisions on the observations since
    late: set[int] = set()
    for upload in record.table(ObservationUploaded):
        after = bisect_right(merged, upload.pickled)
        if upload.must_go and after and before.get(after) == {SIMILAR}:
            late.add(after)
        if upload.stamps:
            before.setdefault(after, set()).add(upload.stamps[4])
    return len(late)


def _server(header: Header, record: RunRecord) -> Remote:
    return Remote(
        side="server",
        observations=len(record.table(ObservationReceived)),
        must_go=sum(observation.must_go for observation in record.table(ObservationReceived)),
        observation_bytes=_sizes([observation.size for observation in record.table(ObservationReceived)]),
        chunk_bytes=_sizes([chunk.size for chunk in record.table(ChunkServed)]),
        decisions=_decisions([observation.decision for observation in record.table(ObservationReceived)]),
        failures=_failures(record),
        chunk=header.chunk,
        latency_ms=None if header.latency is None else 1e3 * header.latency,
    )


def _failures(record: RunRecord) -> list[Failure]:
    counted = Counter(
        (failed.request, failed.error, failed.place, failed.source) for failed in record.table(RequestFailed)
    )
    return [
        Failure(request=request, error=error, place=place or None, source=source or None, count=count)
        for (request, error, place, source), count in counted.most_common()
    ]


def _decisions(numbers: Sequence[int]) -> Decisions:
    count = Counter(numbers)
    return Decisions(kept=count[KEPT], replaced=count[REPLACED], predicted=count[PREDICTED], similar=count[SIMILAR])


def _sizes(values: Sequence[int]) -> Quantiles | None:
    return quantiles([float(value) for value in values]) if values else None


def sections_of_trips(trips: Sequence[Trip], most: int) -> list[Section]:
    """Return the latest ``most`` round trips with their steps, in tree order; on several lines, since they overlap."""
    sections = []
    for number, trip in enumerate(trips[-most:]):
        line = f"{TRIP} {1 + number % LINES}"
        sections.append(Section(TRIP, (TRIP,), trip.start_ns, trip.end_ns, line))
        sections += [Section(leg.name, (TRIP, leg.name), start, end, line) for leg, start, end in trip.spans()]
    return sections


def sections_of_receiving(record: RunRecord, most: int) -> list[Section]:
    """Return the latest ``most`` observations that a server received, with all it did to them, in tree order."""
    wholes = [(observation.start, observation.end) for observation in record.table(ObservationReceived)]
    return record.nest_sections(RECEIVED, wholes[-most:], RECEIVING)
