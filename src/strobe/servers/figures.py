"""From round trips to a policy server to their parts, and to the age of actions. Times are milliseconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from strobe.core.measure.statistics import summarise
from strobe.core.results.data import Quantiles
from strobe.loops.measure.rollout import quantiles
from strobe.servers.results import ActionAge, ServerPart, Timed

ENCODE, NETWORK, WAIT, SERVER, DECODE = "encode", "network", "wait", "server", "decode"
BOTH = "network and server"
BEHIND_MS = 2.0


@dataclass(frozen=True)
class Trip:
    """One round trip in milliseconds.

    Args:
        away: from sending to the end of receiving.
        server: the server's own time, which lies within it; None where it tells none.
        wait: until the server looked at the connection, as it may be busy with another client; None where that was not
            seen.
    """

    encode: float
    away: float
    decode: float
    server: float | None = None
    wait: float | None = None

    @classmethod
    def from_ns(cls, begun: int, encoded: int, received: int, decoded: int, server: float | None = None) -> Trip:
        """Return the trip of four times in nanoseconds, and the server's own time in milliseconds."""
        return cls((encoded - begun) / 1e6, (received - encoded) / 1e6, (decoded - received) / 1e6, server)

    @property
    def whole(self) -> float:
        """The sum of its parts."""
        return self.encode + self.away + self.decode

    @property
    def is_overstated(self) -> bool:
        """Whether the server tells more time than the client waited for it."""
        return self.server is not None and self.server > self.away


def summarize_times(values: Sequence[float]) -> Timed:
    """Return the figures of ``values``, in the order in which they were taken. Raises ValueError for none."""
    return Timed(summary=summarise(values), p99=float(np.percentile(values, 99)))


def parts(trips: Sequence[Trip]) -> list[ServerPart]:
    """Return the parts of ``trips``, in their order in time; none without trips.

    Network and server are one part unless the server told a time for every trip, and none that is impossible.
    """
    whole = sum(trip.whole for trip in trips)
    told = [trip.server for trip in trips if trip.server is not None and not trip.is_overstated]
    rows: list[tuple[str, str, list[float]]] = [(ENCODE, "client", [trip.encode for trip in trips])]
    if len(told) == len(trips):
        # More than the rest of the trip it cannot be: the answer to a ping may come while the server computes.
        waits = [min(trip.wait or 0.0, trip.away - own) for trip, own in zip(trips, told, strict=True)]
        rest = [trip.away - own - wait for trip, own, wait in zip(trips, told, waits, strict=True)]
        rows.append((NETWORK, "network", rest))
        if all(trip.wait is not None for trip in trips):
            rows.append((WAIT, "server", waits))
        rows.append((SERVER, "server", told))
    else:
        rows.append((BOTH, "network and server", [trip.away for trip in trips]))
    rows.append((DECODE, "client", [trip.decode for trip in trips]))
    return [
        ServerPart(
            name=name,
            side=side,  # type: ignore[arg-type]  # one of its literals
            share=sum(values) / whole if whole > 0 else 0.0,
            **summarize_times(values).model_dump(),
        )
        for name, side, values in rows
        if values
    ]


def waits(pongs: Sequence[float | None], way: float | None) -> list[float | None]:
    """Return how much longer each pong took than the fastest way there and back; None for one that was not seen.

    Args:
        way: the fastest of pings by themselves: two robots that take turns wait equally long each time. It counts if it
            is faster by `BEHIND_MS`: as much an observation behind a ping may cost a server.
    """
    fastest = min((each for each in pongs if each is not None), default=0.0)
    if way is not None and way + BEHIND_MS < fastest:
        fastest = way
    return [None if pong is None else pong - fastest for pong in pongs]


def action_age(trips: Sequence[float], actions: int, control_hz: float) -> ActionAge:
    """Return how old the actions of a chunk are, where a robot executes all of them from the answer on.

    Args:
        trips: round trips; at least one.
        actions: of a chunk.
    """
    first = quantiles(trips)
    later = (actions - 1) * 1e3 / control_hz
    moved = {name: value + later for name, value in first.model_dump().items() if name != "n"}
    return ActionAge(
        control_hz=control_hz,
        actions=actions,
        chunk_ms=actions * 1e3 / control_hz,
        first=first,
        last=Quantiles(n=first.n, **moved),
        ticks=math.ceil(first.p99 * control_hz / 1e3),
    )
