"""From the times of calls between a client and a server to round trips, their steps, and the clocks' offset.

Times are nanoseconds. Nothing here knows how they were recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from strobe.rollout.measure.rollout import quantiles
from strobe.rollout.results.remote import Clocks, Encoding, Step

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
