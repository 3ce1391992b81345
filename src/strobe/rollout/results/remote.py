"""Remote inference: round trips between LeRobot's robot client and policy server, and their steps."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.core.results.data import Data, Finite, Quantiles


class Step(Data):
    """One step of a round trip, from an observation to its actions in the queue."""

    name: str
    side: Literal["client", "network", "server", "server and network"]
    packs: bool = Field(default=False, description="it pickles or unpickles")
    ms: Quantiles
    share: Finite = Field(description="share of all round trips: sum of this step ÷ sum of the whole")


class Clocks(Data):
    """How the server's times were put on the client's clock."""

    shared: bool = Field(description="both sides have one clock: that of one machine")
    offset_ms: Finite = Field(description="server's clock − client's clock")
    uncertainty_ms: Finite = Field(description="bound of the offset's error, for any asymmetry of the two ways")


class Decisions(Data):
    """The server's decisions on the observations that it received."""

    kept: int = Field(description="queued for a call, on an empty queue")
    replaced: int = Field(description="queued in place of an observation that waited")
    predicted: int = Field(description="dropped: a chunk for this timestep existed already")
    similar: int = Field(description="dropped: the joints were within 1 of the last observation used")


class Encoding(Data):
    """The last images sent, as they are sent (pickled) and as JPEG of quality 95 by OpenCV, measured where they are."""

    images: int
    raw_bytes: int
    raw_ms: Finite = Field(description="time to pickle and to unpickle")
    jpeg_bytes: int
    jpeg_ms: Finite = Field(description="time to encode and to decode")
    saves_ms: Finite | None = Field(
        default=None, description="time saved per round trip, if time grows with bytes; negative if none is"
    )


class Failure(Data):
    """Requests of one kind that failed with the same exception, at the same place."""

    request: str = Field(description="name of the request in LeRobot's protocol: GetActions, SendObservations")
    error: str = Field(description="type and message of the exception, or gRPC's status")
    place: str = Field(default="", description="the function of LeRobot that raised it; '' if only a status came")
    source: str = Field(default="", description="line of source that raised it")
    count: int


class Remote(Data):
    """One side's part of remote inference."""

    side: Literal["client", "server"]
    stamped: bool = Field(default=False, description="the other side was recorded too, and sent its times")
    clocks: Clocks | None = None
    observations: int = Field(description="number of observations sent, or received")
    must_go: int = Field(description="observations sent with an empty queue, which the server had to use")
    observation_bytes: Quantiles | None = None
    chunk_bytes: Quantiles | None = None
    decisions: Decisions | None = None
    trips: int = 0
    empty: int = Field(default=0, description="answers without a chunk")
    failures: list[Failure] = Field(default_factory=list, description="failures, most frequent first")
    trip: Quantiles | None = Field(default=None, description="milliseconds; without the first trip if there are more")
    steps: list[Step] = Field(default_factory=list)
    packing: Finite | None = Field(default=None, description="share of round trips spent on pickling")
    sending: Finite | None = Field(default=None, description="share of round trips spent on the network")
    asked_late: int = Field(
        default=0, description="round trips that began with an empty queue, observations dropped as similar"
    )
    threshold: Finite | None = Field(default=None, description="--chunk_size_threshold")
    chunk: int | None = Field(default=None, description="--actions_per_chunk")
    latency_ms: Finite | None = Field(default=None, description="--inference_latency of the server")
    encoding: Encoding | None = None

    @property
    def failed_chunks(self) -> int:
        """Requests for a chunk that failed."""
        return sum(failure.count for failure in self.failures if failure.request == "GetActions")

    @property
    def serialisation(self) -> float | None:
        """Share of round trips that goes to pickling and to sending the pickled data."""
        return None if self.packing is None or self.sending is None else self.packing + self.sending
