"""From the events of a robot client or policy server to round trips, the server's decisions, and its receiving."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import Any

from strobe.loops.remote_stamps import KEPT, PREDICTED, REPLACED, SIMILAR
from strobe.measure import remote as measure
from strobe.measure.remote import Leg, Trip
from strobe.measure.rollout import quantiles
from strobe.results.quantiles import Quantiles
from strobe.results.remote import Decisions, Remote
from strobe.studies.rollout.course import RECEIVING, Course
from strobe.timeline.timeline import Section

TRIP, RECEIVED = "round trip", "observation received"
SEND = "send to the server"
LINES = 3


def remote_of(header: dict[str, Any], course: Course) -> Remote | None:
    """The remote part of a run; None where its policy is not remote."""
    if header["engine"] == "remote":
        return _client(header, course)
    return _server(header, course) if header["engine"] == "server" else None


def _of(course: Course, kind: str) -> list[tuple[Any, ...]]:
    return [tuple(rest) for name, *rest in course.others if name == kind]


def trips_of(course: Course) -> list[Trip]:
    """The round trips that a client saw, on its clock; with the server's own steps where that was watched."""
    found, _, _ = _trips(course)
    return found


def _trips(course: Course) -> tuple[list[Trip], Any, int]:
    """The trips, the clocks' relation, and how many trips the server told its times of."""
    uploads = {key: rest for key, *rest in _of(course, "upload")}
    came, exchanges = _of(course, "trip"), _exchanges(course)
    clocks = measure.clocks(exchanges, shared=bool(_of(course, "shared"))) if exchanges else None
    off = 0 if clocks is None else round(clocks.offset_ms * 1e6)
    found, stamped = [], 0
    for key, _, back, _, at, unpickled, merged in came:
        if key not in uploads:
            continue  # sent before recording began, or in another run of the server
        pickled, start, end, _, _, there = uploads[key]
        legs = [Leg("pickle observation", "client", start, True)]
        if there and at:
            stamped += 1
            _, received, unpacked, *_ = (one - off for one in there)
            _, taken, prepared, preprocessed, predicted, postprocessed, packed, answered = (one - off for one in at)
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
                Leg("send to the client", "network", back),
            ]
        else:
            legs += [Leg(SEND, "network", end), Leg("server and the way back", "server and network", back)]
        legs += [Leg("unpickle actions", "client", unpickled, True), Leg("merge into the queue", "client", merged)]
        found.append(Trip(pickled, legs))
    return found, clocks, stamped


def _exchanges(course: Course) -> list[measure.Exchange]:
    found = [(start, at[0], at[3], end) for _, _, start, end, _, _, at in _of(course, "upload") if at]
    return found + [(start, at[0], at[7], end) for _, start, end, _, at, _, _ in _of(course, "trip") if at]


def _client(header: dict[str, Any], course: Course) -> Remote:
    uploads = _of(course, "upload")
    trips, clocks, stamped = _trips(course)
    kept = trips[1:] or trips  # the first call warms up
    steps = measure.steps(kept)
    told = [at[4] for *_, at in uploads if at]
    sizes = _sizes([size for _, _, _, _, size, _, _ in uploads])
    found = Remote(
        side="client",
        stamped=stamped > 0,
        clocks=clocks,
        observations=len(uploads),
        must_go=sum(must for *_, must, _ in uploads),
        observation_bytes=sizes,
        chunk_bytes=_sizes([size for _, _, _, size, *_ in _of(course, "trip")]),
        decisions=_decisions(told) if told else None,
        trips=len(trips),
        trip=quantiles([trip.ms for trip in kept]) if kept else None,
        steps=steps,
        packing=sum(step.share for step in steps if step.packs) if steps else None,
        sending=sum(step.share for step in steps if step.side == "network") if steps else None,
        asked_late=_asked_late(course),
        threshold=header["share"],
        chunk=header["chunk"],
    )
    for images, raw, raw_ns, jpeg, jpeg_ns in _of(course, "encoding"):
        sending = next((step.ms.median for step in steps if step.name == SEND), None)
        sent = None if sizes is None else sizes.median
        way = measure.offset(_exchanges(course))
        shortest = 0.0 if way is None else way[1] / 1e6
        found.encoding = measure.encoding(images, (raw, raw_ns), (jpeg, jpeg_ns), sent, sending, shortest)
    return found


def _asked_late(course: Course) -> int:
    """Round trips after the first that waited for an empty queue, all observations before being dropped as similar."""
    merged = sorted(end for *_, end in _of(course, "trip"))
    before: dict[int, set[int]] = {}  # chunks that had come → decisions on the observations since
    late: set[int] = set()
    for _, pickled, _, _, _, must_go, stamps in _of(course, "upload"):
        after = bisect_right(merged, pickled)
        if must_go and after and before.get(after) == {SIMILAR}:
            late.add(after)
        if stamps:
            before.setdefault(after, set()).add(stamps[4])
    return len(late)


def _server(header: dict[str, Any], course: Course) -> Remote:
    observed, served = _of(course, "observed"), _of(course, "served")
    return Remote(
        side="server",
        observations=len(observed),
        must_go=sum(must for *_, must in observed),
        observation_bytes=_sizes([size for _, _, size, _, _ in observed]),
        chunk_bytes=_sizes([size for _, _, size, _ in served]),
        decisions=_decisions([decision for *_, decision, _ in observed]),
        chunk=header["chunk"],
        latency_ms=1e3 * header["latency"],
    )


def _decisions(told: Sequence[int]) -> Decisions:
    count = Counter(told)
    return Decisions(kept=count[KEPT], replaced=count[REPLACED], predicted=count[PREDICTED], similar=count[SIMILAR])


def _sizes(values: Sequence[int]) -> Quantiles | None:
    return quantiles([float(value) for value in values]) if values else None


def sections_of_trips(trips: Sequence[Trip], most: int) -> list[Section]:
    """The latest ``most`` round trips, with their steps, in tree order; on several lines, since they overlap."""
    found = []
    for number, trip in enumerate(trips[-most:]):
        line = f"{TRIP} {1 + number % LINES}"
        found.append(Section(TRIP, (TRIP,), trip.start_ns, trip.end_ns, line))
        found += [Section(leg.name, (TRIP, leg.name), start, end, line) for leg, start, end in trip.spans()]
    return found


def sections_of_receiving(course: Course, most: int) -> list[Section]:
    """The latest ``most`` observations that a server received, with all it did to them, in tree order."""
    wholes = [(start, end) for start, end, *_ in _of(course, "observed")]
    return course.within(RECEIVED, wholes[-most:], RECEIVING)
