"""Round trips to a policy server as plain data: parts, payload, what went wrong; and facts on each protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from pydantic import Field

from strobe.core.results.answer import Answer
from strobe.core.results.data import Data, Finite, Quantiles, Summary, many, mapping, optional

MOSTLY_EMPTY = 0.5  # least share of the rest of a round trip that pings explain, for it to be called the network

# Where each server is by default; the guide has this table too.
ADDRESSES: Mapping[str, str] = {
    "openpi": "ws://HOST:8000",
    "SGLang": "ws://HOST:30000/openpi/policy",
    "vllm-omni": "ws://HOST:8000/v1/realtime/robot/openpi",
    "GR00T": "tcp://HOST:5555",
    "LeRobot": "grpc://HOST:8080",
}
ProtocolName = Literal["openpi", "GR00T", "LeRobot"]
FaultKind = Literal[
    "slow", "silent", "closed", "too big", "error", "empty", "undecodable", "no actions", "other shape", "not finite"
]
EncodingKind = Literal["as sent", "as uint8", "JPEG", "resized", "resized, then JPEG"]


class Timed(Data):
    """Milliseconds of something in each measured call."""

    summary: Summary
    p99: Finite


class ServerPart(Timed):
    """One part of a round trip; the parts add up to it."""

    name: str
    side: Literal["client", "network", "server", "network and server"]
    share: Finite = Field(description="share of all round trips: sum of this part ÷ sum of the whole")


class ImageSent(Data):
    """An image of the observation, as sent."""

    name: str
    shape: list[int]
    dtype: str
    sent_bytes: int


class ImageEncoding(Data):
    """The images of one observation in another form: what the client would send, and what making it takes."""

    kind: EncodingKind
    payload_bytes: int = Field(description="bytes of the whole observation, encoded with the images in that form")
    ms: Finite = Field(description="median, to make that form of all its images on this client; 0 as sent")
    encode_ms: Finite | None = optional("median, to make the message of it; None if not measured")
    transfer_ms: Finite | None = optional("time of its bytes at `bytes_per_s`, computed; None if not known")

    def saves_ms(self, present: ImageEncoding) -> float | None:
        """Return the milliseconds of a call that this form saves against the ``present`` one; None if not known."""
        if None in (self.encode_ms, self.transfer_ms, present.encode_ms, present.transfer_ms):
            return None
        cost = self.ms + (self.encode_ms or 0.0) + (self.transfer_ms or 0.0)
        return present.ms + (present.encode_ms or 0.0) + (present.transfer_ms or 0.0) - cost


class ActionAge(Data):
    """How old the actions of a chunk are when a robot executes them: from the observation on, in milliseconds."""

    control_hz: Finite
    actions: int = Field(description="actions in a chunk")
    chunk_ms: Finite = Field(description="duration of a chunk at the control rate")
    first: Quantiles = Field(description="age of the first action: one round trip")
    last: Quantiles = Field(description="age of the last action, if the robot executes the whole chunk")
    ticks: int = Field(description="control ticks in a round trip, by its 99th percentile")


class ServerFault(Data):
    """Calls that failed in the same way."""

    kind: FaultKind
    error: str = Field(description="name and message of the exception, from the server if it sent them")
    detail: str | None = optional("end of the server's traceback, or the bytes received")
    call: int = Field(description="number of the first such call, from 1")
    count: int = 1
    waited_ms: Finite = Field(description="duration of the first of them")

    @property
    def name(self) -> str:
        """The exception's name, without its message."""
        return self.error.partition(":")[0]


class DroppedObservations(Data):
    """Observations that a server's filter was sent after one that it answered."""

    sent: int
    dropped: int = Field(description="observations without an answer, as too similar to the one before")
    farthest_dropped: Finite | None = optional("largest distance of a dropped state, in the robot's units; else None")


class ServerAnswer(Answer):
    """Where the time of a call to a policy server goes."""

    called: ClassVar[str] = "breakdown of a policy server"

    study: Literal["server"] = "server"
    url: str
    protocol: ProtocolName = "openpi"
    metadata: dict[str, str] = mapping("what the server sent on connecting, as text")
    inputs: str = Field(description="where the observations come from, in words")
    images: list[ImageSent] = Field(default_factory=list)
    timeout_s: Finite
    calls: int = Field(default=0, description="number of calls begun, the first one included")
    first_ms: Finite | None = optional("time of the first call, excluded from all other figures")
    warmup: int = Field(default=0, description="further warm-up calls, excluded from all other figures")
    values: list[Finite] = many("round trips in milliseconds, in order")
    trip: Timed | None = optional("round trips after the first call; None if there is none")
    parts: list[ServerPart] = Field(default_factory=list)
    policy: Timed | None = optional("policy's own time in the server, if the server sends it")
    ping: Timed | None = optional("an empty round trip; None if not answered")
    transfer_ms: Finite | None = optional("what a call's bytes take in addition to a ping; None if not measured")
    sent_bytes: Quantiles | None = None
    received_bytes: Quantiles | None = None
    chunk: list[int] = many("shape of the first answer's actions")
    bytes_per_s: Finite | None = optional("rate of the network; None if the bytes take too little time to say")
    encodings: list[ImageEncoding] = many("other forms of the images; empty without images")
    age: ActionAge | None = optional("age of the actions that a robot executes; None without a control rate")
    faults: list[ServerFault] = many("in the order in which they appeared")
    dropped: DroppedObservations | None = optional("by the server's filter; None without one, or if not tested")
    replaced: list[str] = many("inputs of the observation that were replaced, one in each call")
    ignored: list[str] = many("those of them that changed no bit of the actions")
    overstated: int = Field(default=0, description="calls whose server reports more time than the client waited")
    not_judged: list[str] = many("what was not judged, and why")

    @property
    def subject_name(self) -> str:
        """The server's address, for the run's folder."""
        return self.url.partition("://")[2]

    @property
    def empty_ms(self) -> float | None:
        """The milliseconds that a call's ways take without data; None if no ping was answered."""
        return None if self.ping is None else PROTOCOLS[self.protocol].ways * self.ping.summary.median

    @property
    def network_ms(self) -> float | None:
        """The milliseconds of the network that pings and bytes explain; None if they are not known.

        Where the bytes were not measured it is the whole of that time, if pings explain most of it.
        """
        rest, empty = self.part("network"), self.empty_ms
        if rest is None or empty is None:
            return None
        if self.transfer_ms is not None:
            return min(rest.summary.mean, empty + self.transfer_ms)
        return rest.summary.mean if empty >= MOSTLY_EMPTY * rest.summary.median else None

    def part(self, name: str) -> ServerPart | None:
        """Return the part called ``name``; None if there is none."""
        return next((part for part in self.parts if part.name == name), None)


IMAGE_FORMS: Mapping[EncodingKind, str] = {
    "as sent": "as sent",
    "as uint8": "as uint8",
    "JPEG": "as JPEG of quality 95",
    "resized": "resized to 224×224",
    "resized, then JPEG": "resized to 224×224, then JPEG",
}


@dataclass(frozen=True)
class Protocol:
    """One protocol.

    Args:
        decoder: that the server reads no JPEG, and what must do it.
        packs: how messages are made.
        own_time: what of a call the server's own time is.
        ways: ways there and back in one call.
        filters: whether the server drops observations that are similar to the one before.
        keepalive_ms: the call from which its own client would lose the connection; None for a client that waits.
        then: fault → what its own client, and the robot's program with it, does at it.
        look: fault → where to look, where that differs from other protocols.
    """

    decoder: str
    packs: str = "msgpack"
    own_time: str = "inference, by the server's own clock"
    ways: int = 1
    filters: bool = False
    keepalive_ms: float | None = None
    then: Mapping[FaultKind, str] = field(default_factory=dict)
    look: Mapping[FaultKind, str] = field(default_factory=dict)


PROTOCOLS: Mapping[ProtocolName, Protocol] = {
    "openpi": Protocol(
        decoder="openpi's server has no decoder for JPEG: an input transform must do it.",
        keepalive_ms=40_000.0,  # an interval of 20 s, and 20 s for the answer: the defaults of `websockets`
        then={
            "silent": "openpi's client has no time limit of its own: the robot's loop hangs.",
            "closed": "openpi's client does not connect again: the robot's program ends with this exception.",
            "error": "openpi's server closes the connection at an exception, and the robot's program ends.",
        },
        look={
            "error": "The traceback is in the server's log, and in result.json at faults.detail if the server sent it.",
            "no actions": "Look at the output transforms of the server's config.",
        },
    ),
    "GR00T": Protocol(
        decoder="GR00T's server has no decoder for JPEG: its policy must get arrays.",
        then={
            "silent": "Many versions of GR00T's client set no time limit on their socket: the robot's loop hangs.",
            "closed": "ZeroMQ connects again silently, and the answer is lost: a client without a time limit hangs.",
            "error": "GR00T's client raises a RuntimeError with the message alone, and the robot's program ends.",
        },
        look={
            "error": "The traceback and the exception's type are in the server's own log.",
            "no actions": "Look at what the server's policy returns: a map of arrays, and a map of further things.",
        },
    ),
    "LeRobot": Protocol(
        packs="pickle",
        own_time="the server's work on the observation, with its sleep of --inference_latency",
        decoder="LeRobot's server has no decoder for JPEG: its client and its server would have to be changed.",
        ways=2,
        filters=True,
        then={
            "slow": "LeRobot's client waits without a limit, while its robot executes the rest of the queue.",
            "silent": "LeRobot's client waits without a limit. The robot stands still when its queue is empty.",
            "closed": "LeRobot's client logs an error and asks again. The robot stands still when its queue is empty.",
            "error": "LeRobot's server sends an empty answer, its client silently asks again, and the robot waits.",
            "empty": "The observation was marked must_go, so no filter dropped it. LeRobot's server sends an empty "
            "answer if its policy raises an exception, and logs only its message. The robot stands still.",
            "undecodable": "The thread of LeRobot's client that receives actions ends, and the robot stands still.",
            "no actions": "LeRobot's client gets no new actions, and the robot stands still when its queue is empty.",
        },
        look={
            "error": "The place is in result.json, at faults.detail.",
            "empty": "Look at the server's log for 'Error in StreamActions'. Start the server with `strobe rollout -- "
            "policy_server …`: its answers then contain the exception's name and place.",
            "undecodable": "Look at the server's version of LeRobot: client and server exchange its own classes.",
            "no actions": "Look at the server's version of LeRobot: its answer is a list of actions with their times.",
        },
    ),
}
