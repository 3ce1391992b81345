"""Measure where the time of a call to a policy server goes, and what goes wrong, without torch and LeRobot.

The calls go out one after another. No figure contains the first call, because a server may compile at it. A call that
breaks the connection ends the measurement and keeps the calls before it. So do several failures in a row.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

from strobe.core.measure import host
from strobe.core.measure.sampling import Progress
from strobe.core.measure.statistics import describe, find_warmup
from strobe.core.results.numerals import significant
from strobe.core.studies.shared.progress import Reporter
from strobe.loops.measure.rollout import quantiles
from strobe.servers import image_encodings
from strobe.servers.figures import NETWORK, Trip, action_age, bytes_per_s, parts, summarize_times, waits
from strobe.servers.protocols.connect import connect
from strobe.servers.protocols.lerobot_messages import ServedPolicy
from strobe.servers.protocols.observations import Observations, Source
from strobe.servers.protocols.wire import CallFailedError, Exchange, Wire, describe_odd_numbers
from strobe.servers.results import PROTOCOLS, FaultKind, ServerAnswer, ServerFault
from strobe.version import __version__

PACKAGES = ("numpy", "msgpack", "websockets", "pyzmq", "grpcio", "lerobot")  # packages of the client
PINGS = 10
MOST_PINGING_MS = 1000.0  # after the first call, as long as that took
FAILURES = 6  # in a row that end the calls, where the connection would take more
FEWEST = 6  # calls, however long they take: an interval needs as many
MOST = 20_000  # calls: more say nothing more
MOST_METADATA, SHOWN, END = 20, 200, 4000  # entries, characters of each, characters of a traceback's end


@dataclass(frozen=True)
class ServerOptions:
    """How to measure.

    Args:
        iterations: calls after the first; None for as many as fit into ``seconds``.
        timeout_s: that one call may take.
        control_hz: the robot's control rate; None if it is not known.
        policy: what LeRobot's server is to load.
    """

    url: str
    iterations: int | None = None
    seconds: float = 20.0
    timeout_s: float = 60.0
    control_hz: float | None = None
    policy: ServedPolicy | None = None


def server(options: ServerOptions, source: Source, live: Reporter) -> ServerAnswer:
    """Return where the time of calls to a policy server goes.

    Ctrl-C ends it early, with the calls that were made.

    Raises:
        UserError: nothing at the address speaks the protocol, or observations that the server cannot take.
    """
    live.stage(f"connecting to {options.url}")
    with connect(options.url, options.timeout_s, options.policy) as wire:
        observations = wire.observations(source)
        measured = _Measured(options, observations, wire)
        answer = measured.answer
        try:
            live.stage(f"calling {options.url}")
            if measured.call_first():
                measured.ping()
                measured.call(live)
            if answer.first_ms is not None and not measured.over and PROTOCOLS[wire.protocol].filters:
                live.stage("testing whether the server drops observations")
                answer.dropped = wire.count_dropped(observations.each)
            live.stage("encoding the images in other forms")
            first, recorded = observations.each[0], observations.recorded
            answer.encodings = image_encodings.encodings(first, wire.encode, recorded=recorded)
        except KeyboardInterrupt:
            answer.status = "interrupted"
        measured.finish()
    return answer


class _Measured:
    """Calls to one server, and the answer that is made of them."""

    def __init__(self, options: ServerOptions, observations: Observations, wire: Wire) -> None:
        self._options, self._wire = options, wire
        self.over = False  # the connection is of no more use
        self._in_a_row = 0  # failures
        self._sound = 0  # answers
        self._way_ms: float | None = None  # there and back without data, at its fastest
        self._observations, self._recorded = observations.each, observations.recorded
        self._exchanges: list[Exchange] = []
        self.answer = ServerAnswer(
            strobe_version=__version__,
            title=f"policy server at {options.url.partition('://')[2]}",
            url=options.url,
            protocol=wire.protocol,
            inputs=observations.description,
            images=image_encodings.images(observations.each[0]),
            timeout_s=options.timeout_s,
            machine=host.describe(PACKAGES),
            metadata=dict(_metadata_entries(wire.metadata)),
        )

    def call_first(self) -> bool:
        """Call until one call is answered, apart from the figures. Return whether the connection is still of use."""
        while not self._has_ended:
            begun = time.perf_counter_ns()
            exchange = self._exchange()
            if exchange is not None:
                self.answer.first_ms = (time.perf_counter_ns() - begun) / 1e6
                self._check(exchange)
                return True
        return False

    @property
    def _has_ended(self) -> bool:
        return self.over or self._in_a_row >= FAILURES

    def ping(self) -> None:
        """Measure ways there and back without data."""
        answered = []
        for _ in range(PINGS):
            took = self._wire.ping_ms()
            if took is None:
                break
            answered.append(took)
        if answered:
            self.answer.ping = summarize_times(answered)
            took_s = min(max(self.answer.first_ms or 0.0, 100.0), MOST_PINGING_MS) / 1e3
            fastest = self._wire.fastest_ms(took_s)
            self._way_ms = min(answered if fastest is None else [*answered, fastest])

    def call(self, live: Reporter) -> None:
        """Call until there is enough."""
        wanted, begun = self._options.iterations, time.monotonic()
        for done in count(1):
            exchange = self._exchange()
            if self._has_ended:
                return
            if exchange is not None and self._check(exchange):
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
            exchange = self._wire.call(observation)
        except CallFailedError as error:
            self._record_fault(error.kind, error.error, error.waited_ms, error.detail)
            self.over |= error.over
            self._in_a_row += 1
            return None
        self._in_a_row = 0
        return exchange

    def _check(self, exchange: Exchange) -> bool:
        actions = exchange.actions
        if actions is None or not actions.ndim or not actions.size:
            empty = "" if actions is None else f"ValueError: the actions are an array of shape {actions.shape}"
            self._record_fault("no actions", empty or exchange.held, exchange.ms)
            return False
        if not self.answer.chunk:
            self.answer.chunk = list(actions.shape)
        if list(actions.shape) != self.answer.chunk:
            first = tuple(self.answer.chunk)
            self._record_fault(
                "other shape", f"ValueError: actions of shape {actions.shape}, after {first}", exchange.ms
            )
            return False
        if odd := describe_odd_numbers(actions):
            self._record_fault("not finite", odd, exchange.ms)
            return False
        self._sound += 1
        return True

    def _record_fault(self, kind: FaultKind, error: str, waited_ms: float, detail: str = "") -> None:
        for fault in self.answer.faults:
            if (fault.kind, fault.error) == (kind, error):
                fault.count += 1
                return
        call = self.answer.calls
        fault = ServerFault(kind=kind, error=error, detail=detail[-END:] or None, call=call, waited_ms=waited_ms)
        self.answer.faults.append(fault)

    def finish(self) -> None:
        """Put the figures of the calls into the answer, and what is not judged."""
        answer, hz = self.answer, self._options.control_hz
        warmup = find_warmup([exchange.ms for exchange in self._exchanges]) if self._exchanges else 0
        kept = self._exchanges[warmup:]
        waited = waits([each.pong_ms for each in kept], self._way_ms)
        trips = [
            Trip(each.encode_ns / 1e6, each.away_ns / 1e6, each.decode_ns / 1e6, each.server_ms, wait)
            for each, wait in zip(kept, waited, strict=True)
        ]
        answer.warmup = warmup
        answer.overstated = sum(trip.is_overstated for trip in trips)
        if trips:
            answer.values = [trip.whole for trip in trips]
            answer.trip, answer.parts = summarize_times(answer.values), parts(trips)
            answer.sent_bytes = quantiles([each.sent_bytes for each in kept])
            answer.received_bytes = quantiles([each.received_bytes for each in kept])
            self._rate()
            own = [value for each in kept if (value := each.policy_ms) is not None]
            if own and len(own) == len(kept):
                answer.policy = summarize_times(own)
            answer.notes += describe(answer.values)
            if hz is not None:
                answer.age = action_age(answer.values, answer.chunk[-2] if len(answer.chunk) > 1 else 1, hz)
        answer.not_judged += self._unjudged_reasons(trips)
        if answer.faults and not self._sound and answer.status == "complete":
            answer.status = "failed"

    def _rate(self) -> None:
        """Put the network's bytes per second into the answer, and what they mean for other forms of the images."""
        answer, network = self.answer, self.answer.part(NETWORK)
        if network is None or self._way_ms is None or answer.sent_bytes is None or answer.received_bytes is None:
            return
        whole = answer.sent_bytes.median + answer.received_bytes.median
        answer.bytes_per_s = rate = bytes_per_s(whole, network.summary.median, self._way_ms)
        if rate is None:
            return
        for each in answer.encodings:
            each.transfer_ms = 1e3 * each.payload_bytes / rate

    def _unjudged_reasons(self, trips: list[Trip]) -> Iterator[str]:
        answer = self.answer
        if not trips:
            yield "round trips: no call after the first returned actions"
            return
        untold = sum(trip.server is None for trip in trips)
        if untold:
            yield f"network and server separately: {untold:,} of {len(trips):,} answers had no time of the server"
        elif answer.overstated:
            yield (
                f"network and server separately: in {answer.overstated:,} calls the server reported more time than "
                "the call took"
            )
        if PROTOCOLS[answer.protocol].filters and answer.dropped is None:
            yield "the server's filter: it needs two or more observations of --dataset.root, and answers"
        if answer.ping is None:
            yield "the network without data: the server answered no pings"
        if answer.part("server") is not None and answer.part("wait") is None:
            yield "the wait for another client's call: the server answered no ping before its answer"
        if self._options.control_hz is None:
            yield "the age of actions: give the robot's control rate with --control_hz=HZ"
        if not answer.images:
            yield "other forms of images: the observation has no images"
        elif not self._recorded:
            yield "images as JPEG: these images are noise, which shrinks less than a camera's; give --dataset.root"


def _metadata_entries(metadata: Mapping[object, object]) -> Iterator[tuple[str, str]]:
    for name, value in list(metadata.items())[:MOST_METADATA]:
        with suppress(UnicodeEncodeError, RecursionError, ValueError):  # a lone surrogate cannot be saved
            text = significant(value) if isinstance(value, float) and math.isfinite(value) else str(value)
            f"{name}{text}".encode()
            yield str(name)[:SHOWN], text[:SHOWN]
