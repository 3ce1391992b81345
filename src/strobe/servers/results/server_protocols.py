"""Facts on each protocol of policy servers and on its own client, in words, for findings and reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from strobe.servers.results.server import EncodingKind, FaultKind, ProtocolName

IMAGE_FORMS: Mapping[EncodingKind, str] = {
    "as sent": "as sent",
    "JPEG": "as JPEG of quality 95",
    "resized": "resized to 224×224",
    "resized, then JPEG": "resized to 224×224, then JPEG",
}


@dataclass(frozen=True)
class Protocol:
    """One protocol.

    Args:
        packs: how messages are made.
        own_time: what of a call the server's own time is.
        decoder: that the server reads no JPEG, and what must do it.
        ways: ways there and back in one call.
        filters: whether the server drops observations that are similar to the one before.
        keepalive_ms: the call from which its own client would lose the connection; None for a client that waits.
        then: fault → what its own client, and the robot's program with it, does at it.
        look: fault → where to look, where that differs from other protocols.
    """

    packs: str
    own_time: str
    decoder: str
    ways: int = 1
    filters: bool = False
    keepalive_ms: float | None = None
    then: Mapping[FaultKind, str] = field(default_factory=dict)
    look: Mapping[FaultKind, str] = field(default_factory=dict)


PROTOCOLS: Mapping[ProtocolName, Protocol] = {
    "openpi": Protocol(
        packs="msgpack",
        own_time="inference, as the server tells it",
        decoder="openpi's server has no decoder for JPEG: an input transform must do it.",
        keepalive_ms=40_000.0,  # an interval of 20 s, and 20 s for the answer: the defaults of `websockets`
        then={
            "silent": "openpi's client has no time limit of its own: the robot's loop hangs until the connection is "
            "closed.",
            "closed": "openpi's client does not connect again: the robot's program ends with this exception.",
            "error": "openpi's server sends the traceback and closes the connection. The robot's program ends.",
            "no actions": "A client that reads 'actions' ends with this exception.",
        },
        look={
            "error": "The server's traceback is in result.json, at faults.detail.",
            "undecodable": "Look at what answers at this address: another version of openpi, or something between the "
            "two.",
            "no actions": "Look at the output transforms of the server's config.",
        },
    ),
    "GR00T": Protocol(
        packs="msgpack",
        own_time="inference, as the server tells it",
        decoder="GR00T's server has no decoder for JPEG: its policy must get arrays.",
        then={
            "silent": "Many versions of GR00T's client set no time limit on their socket: the robot's loop hangs.",
            "closed": "ZeroMQ connects again without a word, and the answer is lost. A client without a time limit "
            "waits for ever.",
            "error": "GR00T's server sends the message alone, and its client raises a RuntimeError. The robot's "
            "program ends.",
        },
        look={
            "error": "The traceback and the exception's type are in the server's own log.",
            "undecodable": "Look at what answers at this address: another version of GR00T, or something between the "
            "two.",
            "no actions": "Look at what the server's policy returns: a map of arrays, and a map of further things.",
        },
    ),
    "LeRobot": Protocol(
        packs="pickle",
        own_time="all that the server does once it has the observation, its sleep of --inference_latency included",
        decoder="LeRobot's server has no decoder for JPEG: its client and its server would have to be changed.",
        ways=2,
        filters=True,
        then={
            "slow": "LeRobot's client waits without a limit, while its robot executes what is left in the queue.",
            "silent": "LeRobot's client waits without a limit. The robot stands still when its queue is empty.",
            "closed": "LeRobot's client logs an error and asks again. The robot stands still when its queue is empty.",
            "error": "LeRobot's server answers with nothing. Its client asks again without a word, and the robot "
            "stands still.",
            "empty": "The observation was marked must_go, so no filter dropped it. LeRobot's server answers with "
            "nothing where its policy raises, and logs the exception's message only. The robot stands still.",
            "undecodable": "The thread of LeRobot's client that receives actions ends, and the robot stands still.",
            "no actions": "LeRobot's client gets no new actions, and the robot stands still when its queue is empty.",
        },
        look={
            "error": "The place is in result.json, at faults.detail.",
            "empty": "Look at the server's log for 'Error in StreamActions'. Start the server with `strobe rollout -- "
            "policy_server …`, and the exception's name and place come along with its answers.",
            "undecodable": "Look at the server's version of LeRobot: client and server exchange its own classes.",
            "no actions": "Look at the server's version of LeRobot: its answer is a list of actions with their times.",
        },
    ),
}
