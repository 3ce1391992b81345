"""Rules on remote inference: what keeps the next chunk from the robot, and the value of the flag that mends it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.results.finding import Finding
from strobe.rollout.results.rollout import Failure, Remote, RolloutResult
from strobe.servers.findings import SMALL_MS

MAX_SERIALISATION = 0.4  # share of a round trip that may go to pickling and sending
# Policies whose history of observations only select_action keeps, which LeRobot's policy server does not call.
WITH_HISTORY = ("diffusion", "tdmpc", "vqbet")
MUCH_SLEEP = 0.2  # share of a round trip from which the server's sleep is named


def serialisation(result: RolloutResult, _: Thresholds) -> Iterator[Finding]:
    """Round trips that go to pickling and sending."""
    remote = result.rollout.remote
    share = None if remote is None else remote.serialisation
    if remote is None or remote.trip is None or share is None or share < MAX_SERIALISATION:
        return
    if share * remote.trip.median < SMALL_MS:
        return
    sizes, other = remote.observation_bytes, remote.encoding
    size = "" if sizes is None else f", for {sizes.median / 1e6:.2f} MB an observation"
    do = (
        "Send fewer pixels, with a smaller width and height in --robot.cameras. The server shrinks the images to "
        "the policy's size in any case."
    )
    if other is not None and other.saves_ms is not None and other.saves_ms > 0:
        do += f" JPEG of quality 95, which LeRobot does not send, would save about {other.saves_ms:.0f} ms of each."
    yield Finding(
        rule="serialisation",
        level="warning",
        title=f"{100 * share:.0f} % of a round trip is serialisation",
        seen=f"Pickling and sending take {share * remote.trip.median:,.0f} of {remote.trip.median:,.0f} ms{size}.",
        why="Images are sent uncompressed. The control loop waits until the server has received them.",
        do=do,
        evidence={"share": share, "gain_share": share},
    )


def starving(result: RolloutResult, thresholds: Thresholds) -> Iterator[Finding]:
    """Ticks without an action, since the next chunk was requested too late."""
    rollout, remote, queue = result.rollout, result.rollout.remote, result.rollout.queue
    if remote is None or rollout.pace is None or remote.trip is None:
        return
    share = queue.starved / rollout.pace.ticks
    if share < thresholds.ticks_starved:
        return
    seen = (
        f"{queue.starved:,} of {rollout.pace.ticks:,} ticks sent nothing, {queue.longest_ms:,.0f} ms in one go; "
        f"a round trip takes {remote.trip.p95:,.0f} ms (95 %)."
    )
    evidence: dict[str, str | int | float | bool | None] = {"starved": share, "gain_share": share}
    if filtered(remote):
        dropped = 0 if remote.decisions is None else remote.decisions.similar
        yield Finding(
            rule="similar-filter",
            level="warning",
            title="The server drops observations as similar until the queue is empty",
            seen=f"{seen} {remote.asked_late:,} of {remote.trips:,} round trips began with an empty queue. The "
            f"server had dropped earlier observations as similar ({dropped:,} in all).",
            why="The server drops an observation if its joints lie within 1 (L2, in the robot's unit) of the last "
            "observation that it used. It does not if the queue is empty, and then the robot waits for a whole "
            "round trip.",
            do="If the joints are not in degrees (SO arms), give --robot.use_degrees=true: a joint soon moves by a "
            "degree. LeRobot has no flag for the limit, and a higher --chunk_size_threshold does not help.",
            evidence={**evidence, "asked_late": remote.asked_late},
        )
        return
    yield Finding(
        rule="remote-starvation",
        level="warning",
        title=f"The robot had no action for {queue.starved_ms:,.0f} ms",
        seen=f"{seen} The client sends an observation when {remote.threshold:g} of a chunk or less remains in the "
        "queue.",
        why="The queue was empty before the next chunk came. The arm then holds its last goal, and LeRobot logs "
        "nothing.",
        do=_first_upper(_awake(remote) + _enough(result, remote)),
        evidence=evidence,
    )


def failing(result: RolloutResult, _: Thresholds) -> Iterator[Finding]:
    """Requests that ended in an exception, which LeRobot's server keeps to itself."""
    remote = result.rollout.remote
    if remote is None:
        return
    for failure in remote.failures:
        of_chunk = failure.request == "GetActions"
        noun = "request" if failure.count == 1 else "requests"
        title = f"{failure.count:,} {noun} for a chunk failed" if of_chunk else f"{failure.request} failed"
        if of_chunk and failure.place:
            title += " in the policy server"
        title += f": {failure.error.partition(':')[0].partition(',')[0]}"  # the exception's type
        yield Finding(
            rule="requests-fail",
            level="warning",
            title=title,
            seen=_raised(failure) + _dropped_since(remote),
            why=_price(failure),
            do=_without_failure(result, failure),
            evidence={"count": failure.count, "error": failure.error, "place": failure.place},
        )


def _raised(failure: Failure) -> str:
    if not failure.place:
        return f"{failure.error}."
    source = f", at `{failure.source}`" if failure.source else ""
    return f"{failure.error}; raised in {failure.place}{source}."


def _dropped_since(remote: Remote) -> str:
    """Observations that the server dropped, where all that it ever did with one was to fail."""
    predicted = 0 if remote.decisions is None else remote.decisions.predicted
    if not predicted or remote.trips or remote.chunk_bytes is not None:
        return ""
    return f" The server dropped {predicted:,} later observations, since it took their timestep as predicted."


def _price(failure: Failure) -> str:
    if not failure.place:
        return "LeRobot's client logs it and goes on. Without a chunk the robot has no action."
    if failure.request == "GetActions":
        return (
            "LeRobot's server logs only the exception's message, and sends an empty answer. The robot gets no "
            "action, and the client does not learn why."
        )
    return "The client gets only gRPC's status, logs it and goes on. Without a chunk the robot has no action."


def _without_failure(result: RolloutResult, failure: Failure) -> str:
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


def no_chunk(result: RolloutResult, _: Thresholds) -> Iterator[Finding]:
    """A server that took observations and never answered with a chunk, and whose reason was not seen."""
    remote = result.rollout.remote
    if remote is None or not remote.empty or remote.trips or not remote.observations or remote.failures:
        return
    yield Finding(
        rule="no-chunk",
        level="warning",
        title="The policy server sent an empty answer to each request for a chunk",
        seen=f"{remote.empty:,} answers had no chunk, and no answer had one. The client sent {remote.observations:,} "
        "observations.",
        why="LeRobot's server sends an empty answer if the policy raised an exception, or if no observation came "
        "within its --obs_queue_timeout.",
        do="Run the server in Strobe too: `strobe rollout -- policy_server …` names the exception and its place.",
        evidence={"empty": remote.empty, "observations": remote.observations},
    )


def filtered(remote: Remote) -> bool:
    """Whether most round trips after the first had to wait for an empty queue, since observations were dropped."""
    return remote.asked_late > 0 and remote.asked_late >= (remote.trips - 1) / 2


def _first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _awake(remote: Remote) -> str:
    """Advice to do without the server's sleep; '' if that is short."""
    slept = next((step for step in remote.steps if step.name == "sleep of the server"), None)
    if slept is None or slept.share < MUCH_SLEEP:
        return ""
    return f"--inference_latency=0 on the server, which sleeps {slept.ms.median:,.0f} ms of a round trip; or else "


def _enough(result: RolloutResult, remote: Remote) -> str:
    """The threshold at which the next chunk comes in time."""
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


RULES = (failing, no_chunk, serialisation, starving)
