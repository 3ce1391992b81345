"""Rules on remote inference: why the next chunk is late, and the value of the flag that fixes it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.results import units
from strobe.core.results.finding import Finding, warning
from strobe.loops.results.rollout import Failure, Remote, RolloutResult
from strobe.servers.findings import SMALL_MS

MAX_SERIALISATION = 0.4  # share of a round trip that may go to pickling and sending
# Policies whose history of observations only select_action keeps, which LeRobot's policy server does not call.
WITH_HISTORY = ("diffusion", "tdmpc", "vqbet")
MUCH_SLEEP = 0.2  # share of a round trip from which the server's sleep is named


def serialisation(result: RolloutResult, _: Thresholds) -> Iterator[Finding]:
    remote = result.rollout.remote
    share = None if remote is None else remote.serialisation
    if remote is None or remote.trip is None or share is None or share < MAX_SERIALISATION:
        return
    took, sizes = share * remote.trip.median, remote.observation_bytes
    packing, sending = remote.packing or 0.0, remote.sending or 0.0
    if took >= SMALL_MS:
        size = "" if sizes is None else f", for {sizes.median / 1e6:.2f} MB an observation"
        saves = remote.encoding.saves_ms if remote.encoding is not None else None
        jpeg = " JPEG of quality 95, which LeRobot does not send, would save about {:.0f} ms of each."
        jpeg = jpeg.format(saves) if saves is not None and saves > 0 else ""
        yield warning(
            rule="serialisation",
            title=f"Pickling and sending take {100 * share:.0f} % of a round trip",
            found=f"They take {took:,.0f} of {remote.trip.median:,.0f} ms{size}: pickling {100 * packing:.0f} %, "
            f"sending {100 * sending:.0f} %.",
            why="Images are sent uncompressed. The control loop waits until the server has received them. A slow link "
            "and a server that reads slowly are not told apart.",
            do="Send fewer pixels, with a smaller width and height in --robot.cameras. The server shrinks the images "
            f"to the policy's size in any case.{jpeg}",
            evidence={"gain_share": share},
        )


def starving(result: RolloutResult, thresholds: Thresholds) -> Iterator[Finding]:
    """Ticks without an action, because the next chunk was requested too late."""
    pace, remote, queue = result.rollout.pace, result.rollout.remote, result.rollout.queue
    if remote is None or pace is None or remote.trip is None or queue.starved / pace.ticks < thresholds.ticks_starved:
        return
    share = queue.starved / pace.ticks
    seen = (
        f"{queue.starved:,} of {pace.ticks:,} control ticks sent no action, for up to {queue.longest_ms:,.0f} ms at a "
        f"time. 95 % of the round trips took at most {remote.trip.p95:,.0f} ms."
    )
    if remote.asked_late > 0 and remote.asked_late >= (remote.trips - 1) / 2:  # most after the first waited for that
        dropped = 0 if remote.decisions is None else remote.decisions.similar
        yield warning(
            rule="similar-filter",
            title="The server drops observations as similar until the queue is empty",
            found=f"{seen} {remote.asked_late:,} of {remote.trips:,} round trips began with an empty queue. The "
            f"server had dropped earlier observations as similar ({dropped:,} in all).",
            why="The server drops an observation whose joints are within 1 of the last observation that it used (L2 "
            "distance, in the robot's unit). It accepts one when the queue is empty, and the robot then waits for a "
            "whole round trip.",
            do="Give --robot.use_degrees=true if the joints are not in degrees (SO arms): a joint soon moves by a "
            "degree. LeRobot has no flag for the limit, and a higher --chunk_size_threshold does not help.",
            evidence={"gain_share": share},
        )
    else:
        yield warning(
            rule="remote-starvation",
            title=f"The robot had no action for {queue.starved_ms:,.0f} ms",
            found=f"{seen} The client sends an observation when the queue holds {remote.threshold:g} of a chunk or "
            "less.",
            why="The queue ran empty before the next chunk arrived. The arm then holds its last goal, and LeRobot "
            "logs nothing.",
            do=units.capital(_awake(remote) + _enough(result, remote)),
            evidence={"gain_share": share},
        )


def failing(result: RolloutResult, _: Thresholds) -> Iterator[Finding]:
    """Requests that ended in an exception, which LeRobot's server keeps to itself."""
    remote = result.rollout.remote
    if remote is None:
        return
    for failure in remote.failures:
        requests, where, count = failure.request, "", failure.count
        if requests == "GetActions":
            requests = f"{units.count(count, 'request')} for a chunk"
            where = " in the policy server" if failure.place else ""
        exception = failure.error.partition(":")[0].partition(",")[0]
        yield warning(
            rule="requests-fail",
            title=f"{requests} failed{where}: {exception}",
            found=f"{_describe_failure(failure)}{_dropped_since(remote)}",
            why=_price(failure),
            do=_failure_remedy(result, failure),
        )


def _describe_failure(failure: Failure) -> str:
    if not failure.place:
        return f"{failure.error}."
    source = f", at `{failure.source}`" if failure.source else ""
    return f"{failure.error}; raised in {failure.place}{source}."


def _dropped_since(remote: Remote) -> str:
    """Observations that a server dropped which never returned a chunk."""
    predicted = 0 if remote.decisions is None else remote.decisions.predicted
    if not predicted or remote.trips or remote.chunk_bytes is not None:
        return ""
    return f" The server dropped {predicted:,} later observations, because it took their timestep as predicted."


def _price(failure: Failure) -> str:
    if not failure.place:
        return "LeRobot's client logs it and goes on. Without a chunk the robot has no action."
    if failure.request == "GetActions":
        return (
            "LeRobot's server logs only the exception's message, and sends an empty answer. The robot gets no "
            "action, and the client does not learn why."
        )
    return "The client gets only gRPC's status, logs it and goes on. Without a chunk the robot has no action."


def _failure_remedy(result: RolloutResult, failure: Failure) -> str:
    kind, remote = result.subject.kind, result.rollout.remote
    if not failure.place:
        return "Look at the server's own log, or run the server in Strobe: `strobe rollout -- policy_server …`."
    never = remote is not None and not remote.trips and remote.chunk_bytes is None
    if never and kind in WITH_HISTORY and failure.place.startswith(f"lerobot.policies.{kind}."):
        return (
            f"`strobe rollout -- --policy.path=… --robot.type=…` runs {kind} with lerobot-rollout, on the robot's "
            "own computer. The policy needs several observations, which select_action collects. The server calls "
            "only predict_action_chunk."
        )
    return (
        "`strobe preflight --policy.path=… -- --robot.type=…` compares the policy's inputs with the robot's "
        "observations. `strobe rehearse` with the same arguments runs the policy without the server."
    )


def empty_chunks(result: RolloutResult, _: Thresholds) -> Iterator[Finding]:
    remote = result.rollout.remote
    if remote is not None and remote.empty and not remote.trips and remote.observations and not remote.failures:
        yield warning(
            rule="no-chunk",
            title="The policy server sent an empty answer to each request for a chunk",
            found=f"All {remote.empty:,} answers were empty. The client sent {remote.observations:,} observations.",
            why="LeRobot's server sends an empty answer if the policy raised an exception, or if no observation came "
            "within its --obs_queue_timeout.",
            do="Run the server in Strobe too: `strobe rollout -- policy_server …` names the exception and its place.",
        )


def _awake(remote: Remote) -> str:
    """Advice to do without the server's sleep, if that is long."""
    slept = next((step for step in remote.steps if step.name == "sleep of the server"), None)
    if slept is None or slept.share < MUCH_SLEEP:
        return ""
    return f"--inference_latency=0 on the server, which sleeps for {slept.ms.median:,.0f} ms of a round trip; or "


def _enough(result: RolloutResult, remote: Remote) -> str:
    assert remote.trip is not None
    needed = math.ceil(remote.trip.p95 * result.rollout.fps / 1e3) + 1
    chunk = remote.chunk or 0
    if needed < chunk:
        value = min(1.0, math.ceil(100 * needed / chunk) / 100)
        if remote.threshold is not None and remote.threshold < value:
            return f"--chunk_size_threshold={value:g}: a round trip is {needed - 1} actions of {chunk}."
        return "look at the longest round trips: something delays the server or the network."
    hz = math.floor(1e3 * (chunk - 1) / remote.trip.p95) if chunk > 1 else 0
    lower = f"; or --fps={hz}" if hz >= 1 else ""
    return (
        f"--actions_per_chunk={2 * needed}, if the policy's chunks are that long: a round trip is {needed - 1} "
        f"actions, a chunk {chunk}{lower}."
    )


RULES = (failing, empty_chunks, serialisation, starving)
