"""Server: where does the time of a call to a policy server go, and what goes wrong? It needs neither torch nor LeRobot.

The calls go out one after another. The first is not among the figures: a server may compile at it. A call that fails so
that the connection is of no use ends the measurement, and the calls before it stay.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from strobe.measure import image_encodings
from strobe.measure.rollout import quantiles
from strobe.measure.sampling import Progress
from strobe.measure.server import Trip, action_age, parts, timed
from strobe.measure.statistics import describe, find_warmup
from strobe.policies.openpi_client import CallFailedError, Exchange, OpenpiClient
from strobe.policies.openpi_observations import Observations
from strobe.policies.openpi_protocol import encode
from strobe.results.numerals import significant
from strobe.results.server import FaultKind, ServerAnswer, ServerFault
from strobe.studies.shared.progress import Reporter
from strobe.version import __version__

PINGS = 10
FEWEST = 6  # calls, however long they take: an interval needs as many
MOST = 20_000  # calls: more say nothing more
MOST_METADATA, SHOWN, END = 20, 200, 4000  # entries, characters of each, characters of a traceback's end


@dataclass(frozen=True)
class ServerOptions:
    """How to measure.

    Args:
        iterations: calls after the first; None for as many as fit into ``seconds``.
        timeout_s: that one call may take.
        control_hz: the robot's control rate; None where it is not known.
    """

    url: str
    iterations: int | None = None
    seconds: float = 20.0
    timeout_s: float = 60.0
    control_hz: float | None = None


def server(options: ServerOptions, observations: Observations, live: Reporter) -> ServerAnswer:
    """Return where the time of calls to a policy server goes.

    Ctrl-C ends it early, with the calls that were made.

    Raises:
        UserError: nothing at the address speaks the protocol.
    """
    live.stage(f"connecting to {options.url}")
    with OpenpiClient(options.url, options.timeout_s) as client:
        measured = _Measured(options, observations, client)
        answer = measured.answer
        try:
            live.stage(f"calling {options.url}")
            if measured.call_first():
                measured.ping()
                measured.call(live)
            live.stage("encoding the images in other forms")
            answer.encodings = image_encodings.encodings(observations.each[0], encode, recorded=observations.recorded)
        except KeyboardInterrupt:
            answer.status = "interrupted"
        measured.finish()
    return answer


class _Measured:
    """Calls to one server, and the answer that is made of them."""

    def __init__(self, options: ServerOptions, observations: Observations, client: OpenpiClient) -> None:
        self._options, self._client = options, client
        self._observations, self._recorded = observations.each, observations.recorded
        self._exchanges: list[Exchange] = []
        self.answer = ServerAnswer(
            strobe_version=__version__,
            title=f"policy server at {options.url.partition('://')[2]}",
            url=options.url,
            inputs=observations.description,
            images=image_encodings.images(observations.each[0]),
            timeout_s=options.timeout_s,
            metadata=dict(_shown(client.metadata)),
        )

    def call_first(self) -> bool:
        """Call once, apart from the figures. Return whether the connection is still of use."""
        begun = time.perf_counter_ns()
        exchange = self._exchange()
        if exchange is not None:
            self.answer.first_ms = (time.perf_counter_ns() - begun) / 1e6
            self._check(exchange)
        return exchange is not None

    def ping(self) -> None:
        """Measure ways there and back without data."""
        answered = []
        for _ in range(PINGS):
            took = self._client.ping_ms()
            if took is None:
                break
            answered.append(took)
        if answered:
            self.answer.ping = timed(answered)

    def call(self, live: Reporter) -> None:
        """Call until there is enough."""
        wanted, begun = self._options.iterations, time.monotonic()
        for done in count(1):
            exchange = self._exchange()
            if exchange is None:
                return
            if self._check(exchange):
                self._exchanges.append(exchange)
            spent = time.monotonic() - begun
            left = self._options.seconds - spent if wanted is None else spent / done * (wanted - done)
            live.progress(Progress(done, wanted, spent, max(left, 0.0), "calls"))
            enough = done >= FEWEST and spent >= self._options.seconds if wanted is None else done >= wanted
            if enough or done >= MOST:
                return

    def _exchange(self) -> Exchange | None:
        observation = self._observations[self.answer.calls % len(self._observations)]
        self.answer.calls += 1
        try:
            return self._client.call(observation)
        except CallFailedError as error:
            self._failed(error.kind, error.error, error.waited_ms, error.detail)
            return None

    def _check(self, exchange: Exchange) -> bool:
        """Return whether an answer has actions like the first one's; one that has none becomes a fault."""
        actions = exchange.answer.get("actions")
        if not isinstance(actions, np.ndarray) or not actions.ndim or not actions.size:
            held = ", ".join(sorted(map(str, exchange.answer))[:8]) or "nothing"
            what = f"an array of shape {actions.shape}" if isinstance(actions, np.ndarray) else f"the keys {held}"
            self._failed("no actions", f"KeyError: 'actions'; the answer has {what}", exchange.ms)
            return False
        if not self.answer.chunk:
            self.answer.chunk = list(actions.shape)
        if list(actions.shape) != self.answer.chunk:
            first = tuple(self.answer.chunk)
            self._failed("other shape", f"ValueError: actions of shape {actions.shape}, after {first}", exchange.ms)
            return False
        if actions.dtype.kind not in "biuf" or not np.isfinite(actions).all():
            bad = int((~np.isfinite(actions)).sum()) if actions.dtype.kind in "biuf" else actions.size
            error = f"ValueError: {bad:,} of {actions.size:,} actions are no finite numbers"
            self._failed("not finite", error, exchange.ms)
            return False
        return True

    def _failed(self, kind: FaultKind, error: str, waited_ms: float, detail: str = "") -> None:
        for fault in self.answer.faults:
            if (fault.kind, fault.error) == (kind, error):
                fault.count += 1
                return
        call = self.answer.calls
        fault = ServerFault(kind=kind, error=error, detail=detail[-END:], call=call, waited_ms=waited_ms)
        self.answer.faults.append(fault)

    def finish(self) -> None:
        """Put the figures of the calls into the answer, and what is not judged."""
        answer, hz = self.answer, self._options.control_hz
        warmup = find_warmup([exchange.ms for exchange in self._exchanges]) if self._exchanges else 0
        kept = self._exchanges[warmup:]
        trips = [
            Trip(each.encode_ns / 1e6, each.away_ns / 1e6, each.decode_ns / 1e6, each.server_ms()) for each in kept
        ]
        answer.warmup = warmup
        answer.overstated = sum(trip.overstated for trip in trips)
        if trips:
            answer.values = [trip.whole for trip in trips]
            answer.trip, answer.parts = timed(answer.values), parts(trips)
            answer.sent_bytes = quantiles([each.sent_bytes for each in kept])
            answer.received_bytes = quantiles([each.received_bytes for each in kept])
            own = [value for each in kept if (value := each.server_ms("policy_timing")) is not None]
            if own and len(own) == len(kept):
                answer.policy = timed(own)
            answer.notes += describe(answer.values)
            if hz is not None:
                answer.age = action_age(answer.values, answer.chunk[-2] if len(answer.chunk) > 1 else 1, hz)
        answer.not_judged += self._not_judged(trips)

    def _not_judged(self, trips: list[Trip]) -> Iterator[str]:
        answer = self.answer
        if not trips:
            yield "round trips: no call after the first was answered with actions"
            return
        untold = sum(trip.server is None for trip in trips)
        if untold:
            yield f"network and server apart: {untold:,} of {len(trips):,} answers have no server_timing"
        elif answer.overstated:
            yield f"network and server apart: in {answer.overstated:,} calls the server tells more than the whole took"
        if answer.ping is None:
            yield "the network without data: the server answers no pings"
        if self._options.control_hz is None:
            yield "the age of actions: give the robot's rate, --control_hz=HZ"
        if not answer.images:
            yield "other forms of images: the observation has none"
        elif not self._recorded:
            yield "images as JPEG: these are noise, which shrinks less than a camera's image; give --dataset.root"


def _shown(metadata: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
    """Yield the server's metadata as text, a number of entries only."""
    for name, value in list(metadata.items())[:MOST_METADATA]:
        text = significant(value) if isinstance(value, float) and math.isfinite(value) else str(value)
        with suppress(UnicodeEncodeError):  # a lone surrogate cannot be saved
            f"{name}{text}".encode()
            yield str(name)[:SHOWN], text[:SHOWN]
