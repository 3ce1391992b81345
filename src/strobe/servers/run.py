"""Measure where the time of a call to a policy server goes, and what goes wrong, without torch and LeRobot.

The calls go out one after another. No figure contains the first call, because a server may compile at it. A call that
breaks the connection ends the measurement and keeps the calls before it. So do several failures in a row.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from strobe.core.measure import host
from strobe.core.measure.sampling import Progress
from strobe.core.measure.statistics import describe, find_warmup
from strobe.core.results.numerals import significant
from strobe.core.studies.shared.progress import Reporter
from strobe.loops.measure.rollout import quantiles
from strobe.servers import image_encodings
from strobe.servers.figures import Trip, action_age, parts, summarize_times, waits
from strobe.servers.protocols.connect import connect
from strobe.servers.protocols.lerobot_messages import ServedPolicy
from strobe.servers.protocols.observations import Observations, Source, replace_each
from strobe.servers.protocols.wire import CallFailedError, Exchange, Wire
from strobe.servers.results import PROTOCOLS, FaultKind, ServerAnswer, ServerFault
from strobe.version import __version__

PACKAGES = ("numpy", "msgpack", "websockets", "pyzmq", "grpcio", "lerobot")  # packages of the client
PINGS = 10
MOST_PINGING_MS = 1000.0  # after the first call, as long as that took
FAILURES = 6  # in a row that end the calls, where the connection would take more
FEWEST = 6  # calls, however long they take: an interval needs as many
MOST = 20_000  # calls: more say nothing more
UPLOADS = 3  # calls that show when the server has read an observation
REPLACING_S = 10.0  # at most, for calls with an input replaced
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
            if not measured.over and not answer.faults:
                live.stage("trying the rate of the network, and each input of an observation")
                measured.upload()
                measured.replace_inputs()
            live.stage("encoding the images in other forms")
            first = observations.each[0]
            answer.encodings = image_encodings.encodings(first, wire.encode, recorded=observations.recorded)
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
        self._upload_ms: float | None = None  # the same with an observation's bytes on the way there
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
            exchange = self._exchange()
            if exchange is not None:
                self.answer.first_ms = exchange.trip.whole
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

    def replace_inputs(self) -> None:
        """Replace each input of an observation once: one is ignored if the actions stay the same to the bit."""
        answer, first, unjudged = self.answer, self._observations[0], "inputs that the server ignores: "
        others = list(replace_each(first, np.random.default_rng(0)))
        longest_s = max((each.trip.whole for each in self._exchanges), default=answer.first_ms or 0.0) / 1e3
        if (len(others) + 2) * longest_s > REPLACING_S:
            answer.not_judged.append(f"{unjudged}{len(others) + 2} calls would take over {REPLACING_S:g} s")
            return
        present, again = self._actions(first), self._actions(first)
        if present is None or again is None or not np.array_equal(present, again):
            answer.not_judged.append(f"{unjudged}it answers the same observation in different ways, as with noise")
            return
        for name, observation in others:
            changed = self._actions(observation)
            if self.over:
                return
            answer.replaced.append(name)
            if changed is not None and np.array_equal(changed, present):
                answer.ignored.append(name)

    def _actions(self, observation: Mapping[str, object]) -> np.ndarray | None:
        """Return the actions of a call apart from the figures; None for one that fails."""
        try:
            return None if self.over else self._wire.call(observation).actions
        except CallFailedError as error:
            self.over |= error.over
            return None

    def upload(self) -> None:
        """Measure when the server has read an observation, if its bytes may take noticeable time."""
        rests = [each.trip.away - each.trip.server for each in self._exchanges if each.trip.server is not None]
        if self._way_ms is None or min(rests, default=0.0) - self._way_ms < 1.0:
            return
        seen = [self._wire.upload_ms(self._observations[0]) for _ in range(UPLOADS)]
        self._upload_ms = min((each for each in seen if each is not None), default=None)
        self.over |= None in seen and self._wire.protocol == "openpi"  # its answer may still come

    def _exchange(self) -> Exchange | None:
        observation = self._observations[self.answer.calls % len(self._observations)]
        self.answer.calls += 1
        begun = time.perf_counter_ns()
        try:
            exchange = self._wire.call(observation)
        except CallFailedError as error:
            self._record_fault(error.kind, error.error, (time.perf_counter_ns() - begun) / 1e6, error.detail)
            self.over |= error.over
            self._in_a_row += 1
            return None
        self._in_a_row = 0
        return exchange

    def _check(self, exchange: Exchange) -> bool:
        fault, shape = exchange.fault, [] if exchange.actions is None else list(exchange.actions.shape)
        if fault is None or fault[0] != "no actions":
            first = self.answer.chunk = self.answer.chunk or shape
            if shape != first:
                fault = "other shape", f"ValueError: actions of shape {tuple(shape)}, after {tuple(first)}"
        if fault is not None:
            self._record_fault(*fault, exchange.trip.whole)
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
        warmup = find_warmup([exchange.trip.whole for exchange in self._exchanges]) if self._exchanges else 0
        kept = self._exchanges[warmup:]
        waited = waits([each.pong_ms for each in kept], self._way_ms)
        trips = [replace(each.trip, wait=wait) for each, wait in zip(kept, waited, strict=True)]
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
        """Put what the bytes take into the answer, their rate, and what it means for other forms of the images."""
        answer, way_ms, upload_ms = self.answer, self._way_ms, self._upload_ms
        if way_ms is None or upload_ms is None or answer.sent_bytes is None or answer.received_bytes is None:
            return
        sent, took = answer.sent_bytes.median, max(0.0, upload_ms - way_ms)
        answer.transfer_ms = took * (1 + answer.received_bytes.median / sent)
        if took >= max(1.0, 0.25 * way_ms):  # else the bytes take too little time to say
            answer.bytes_per_s = 1e3 * sent / took
            for each in answer.encodings:
                each.transfer_ms = each.payload_bytes * took / sent

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
