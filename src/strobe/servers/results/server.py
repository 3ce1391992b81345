"""Round trips to a policy server: their parts, their payload, what went wrong. Plain data."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from strobe.core.results.answer import Answer
from strobe.core.results.data import Data, Finite, Quantiles, Summary

ProtocolName = Literal["openpi", "GR00T", "LeRobot"]
FaultKind = Literal[
    "slow", "silent", "closed", "error", "empty", "undecodable", "no actions", "other shape", "not finite"
]
EncodingKind = Literal["as sent", "JPEG", "resized", "resized, then JPEG"]


class Timed(Data):
    """Milliseconds of something in each measured call."""

    summary: Summary
    p99: Finite


class ServerPart(Timed):
    """One part of a round trip; the parts add up to it."""

    name: str
    side: Literal["client", "network", "server", "network and server"]
    share: Finite = Field(description="of all round trips: sum of this part over sum of the whole")


class ImageSent(Data):
    """An image of the observation, as it is sent."""

    name: str
    shape: list[int]
    dtype: str
    sent_bytes: int


class ImageEncoding(Data):
    """The images of one observation in another form: what the client would send, and what making it takes."""

    kind: EncodingKind
    payload_bytes: int = Field(description="of the whole observation, encoded with the images in that form")
    ms: Finite = Field(description="median, to make that form of all its images on this client; 0 as sent")


class ActionAge(Data):
    """How old the actions of a chunk are when a robot executes them: from the observation on, in milliseconds."""

    control_hz: Finite
    actions: int = Field(description="in a chunk")
    chunk_ms: Finite = Field(description="that a chunk lasts at the control rate")
    first: Quantiles = Field(description="of the first action: a round trip")
    last: Quantiles = Field(description="of the last action, where the robot executes the whole chunk")
    ticks: int = Field(description="control ticks that a round trip lasts, of its 99th percentile")


class ServerFault(Data):
    """Calls that failed in the same way."""

    kind: FaultKind
    error: str = Field(description="the exception's name and message; the server's, where it sent them")
    detail: str = Field(default="", description="the end of the server's traceback, or what was received")
    call: int = Field(description="number of the first such call, from 1")
    count: int = 1
    waited_ms: Finite = Field(description="that the first of them took")

    @property
    def name(self) -> str:
        """The exception's name, without its message."""
        return self.error.partition(":")[0]


class DroppedObservations(Data):
    """Observations that a server's filter was sent after one that it answered."""

    sent: int
    dropped: int = Field(description="of them, without an answer, as too similar to the one before")
    nearest: Finite = Field(description="distance between two states of those sent, in the robot's own units")
    farthest_dropped: Finite | None = Field(default=None, description="of those dropped; None where none was")


class ServerAnswer(Answer):
    """Where the time of a call to a policy server goes."""

    called: ClassVar[str] = "breakdown of a policy server"

    study: Literal["server"] = "server"
    url: str
    protocol: ProtocolName = "openpi"
    metadata: dict[str, str] = Field(default_factory=dict, description="that the server sent on connecting, as text")
    inputs: str = Field(description="where the observations come from, in words")
    images: list[ImageSent] = Field(default_factory=list)
    timeout_s: Finite
    calls: int = Field(default=0, description="that were begun, the first one included")
    first_ms: Finite | None = Field(default=None, description="of the first call, which is in no other figure")
    warmup: int = Field(default=0, description="further calls found to be warm-up, in no other figure")
    values: list[Finite] = Field(default_factory=list, description="round trips in milliseconds, in order")
    trip: Timed | None = Field(default=None, description="None without a call after the first")
    parts: list[ServerPart] = Field(default_factory=list)
    policy: Timed | None = Field(default=None, description="the policy's own time within the server's, where told")
    ping: Timed | None = Field(default=None, description="a way there and back without data; None where not answered")
    sent_bytes: Quantiles | None = None
    received_bytes: Quantiles | None = None
    chunk: list[int] = Field(default_factory=list, description="shape of the first answer's actions")
    encodings: list[ImageEncoding] = Field(default_factory=list, description="none without images")
    age: ActionAge | None = Field(default=None, description="None without a control rate")
    faults: list[ServerFault] = Field(default_factory=list, description="in the order in which they appeared")
    dropped: DroppedObservations | None = Field(
        default=None, description="None for a server without a filter of observations, or where it was not looked at"
    )
    overstated: int = Field(default=0, description="calls of which the server tells more time than the client waited")
    not_judged: list[str] = Field(default_factory=list, description="what was not looked at, and why")

    @property
    def about(self) -> str:
        """The server's address, for the run's folder."""
        return self.url.partition("://")[2]

    def part(self, name: str) -> ServerPart | None:
        """Return the part called ``name``; None where there is none."""
        return next((part for part in self.parts if part.name == name), None)
