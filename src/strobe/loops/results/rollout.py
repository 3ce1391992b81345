"""A rollout: the pace of its control loop, its inference, its queue of actions, seams between chunks, round trips."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from strobe.core.results.answer import Result
from strobe.core.results.call_times import Growth
from strobe.core.results.comparison import Verdict
from strobe.core.results.data import Data, Figure, Finite, Quantiles, many, optional
from strobe.loops.results.arm import Bus, Rehearsal
from strobe.loops.results.motion import FirstAction


class Step(Data):
    """One step of a round trip, from an observation to its actions in the queue."""

    name: str
    side: Literal["client", "network", "server", "server and network"]
    packs: bool = Field(default=False, description="it pickles or unpickles")
    ms: Quantiles
    share: Finite = Field(description="share of all round trips: sum of this step ÷ sum of the whole")


class Clocks(Data):
    """How the server's times were applied the client's clock."""

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
    saves_ms: Finite | None = optional("time saved per round trip, if time grows with bytes; negative if none is")


class Failure(Data):
    """Requests of one kind that failed with the same exception, at the same place."""

    request: str = Field(description="name of the request in LeRobot's protocol: GetActions, SendObservations")
    error: str = Field(description="type and message of the exception, or gRPC's status")
    place: str | None = optional("the function of LeRobot that raised it; None if only a status came")
    source: str | None = optional("line of source that raised it")
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
    failures: list[Failure] = many("failures, most frequent first")
    trip: Quantiles | None = optional("milliseconds; without the first trip if there are more")
    steps: list[Step] = Field(default_factory=list)
    packing: Finite | None = optional("share of round trips spent on pickling")
    sending: Finite | None = optional("share of round trips spent on the network")
    asked_late: int = Field(
        default=0, description="round trips that began with an empty queue, observations dropped as similar"
    )
    threshold: Finite | None = optional("--chunk_size_threshold")
    chunk: int | None = optional("--actions_per_chunk")
    latency_ms: Finite | None = optional("--inference_latency of the server")
    encoding: Encoding | None = None

    @property
    def serialisation(self) -> float | None:
        """Share of round trips that goes to pickling and to sending the pickled data."""
        return None if self.packing is None or self.sending is None else self.packing + self.sending


class Turns(Data):
    """The use of the CPUs during a run."""

    waited_share: Finite = Field(description="share of the run in which the control thread waited for a CPU")
    own_cpus: Finite = Field(description="CPUs used by this process, on average")
    other_cpus: Finite = Field(description="CPUs used by other processes, on average")


Place = Literal["bench", "bench at the robot's pace", "robot"]
Cause = Literal["clocks and gaps", "waiting for a CPU", "blocked", "on the CPU"]


class CallTimes(Data):
    """The median call in milliseconds, divided by what its own thread did, as the middle half of the calls is."""

    place: Place
    calls: int = Field(description="number of calls; the middle half is by wall time")
    wall_ms: Finite
    cpu_ms: Finite = Field(description="CPU time of the thread, including spinning for other threads or the device")
    waiting_ms: Finite | None = Field(description="runnable without a CPU; None if the system does not record it")
    blocked_ms: Finite = Field(description="asleep: GIL, locks, device, other threads; with waiting_ms if None")


class Share(Data):
    """A part of the difference between the robot and the bench."""

    cause: Cause
    ms: Finite = Field(description="milliseconds; negative if the robot takes less")


class Bench(Data):
    """Calls on the robot compared with calls on the bench after it, in one process, on the last observation."""

    times: list[CallTimes]
    period_ms: Finite | None = optional("milliseconds from call to call at the robot's pace")
    verdict: Verdict | None = optional("robot against bench, back to back; None without a bench")
    shares: list[Share] = many("shares of the difference, largest first; they sum to it")

    def call_times(self, place: Place) -> CallTimes | None:
        """Return the times at ``place``; None without calls there."""
        return next((times for times in self.times if times.place == place), None)


class Pace(Data):
    """How well the loop held the requested rate. A tick is one turn of the loop that needs an action."""

    asked_hz: Finite = Field(description="requested ticks per second: --fps times --interpolation_multiplier")
    held_hz: Finite = Field(description="measured ticks per second, over the time in which ticks follow one another")
    ticks: int
    seconds: Finite = Field(description="time from the first tick to the last")
    period: Quantiles = Field(description="milliseconds from the start of a tick to the start of the next")
    jitter: Quantiles = Field(description="milliseconds between a period and the requested one")
    work: Quantiles = Field(description="milliseconds of work in a tick, before it sleeps")
    late: int = Field(description="ticks whose work took longer than the requested period")
    late_part: str | None = optional("part whose time grows most in late ticks")
    late_part_ms: Finite | None = optional("mean of that part in a late tick")


class Delays(Data):
    """The delay that Real-Time Chunking assumed against the one that happened, in actions. Without the first call."""

    assumed: Quantiles = Field(description="inference_delay that the policy received")
    needed: Quantiles = Field(description="latency of a call in actions, rounded up")
    executed: Quantiles = Field(description="actions that the robot executed during a call")
    first_needed: int = Field(description="delay of the first call")
    first_dropped: int = Field(description="actions at the start of the first chunk that were never executed")


class Inference(Data):
    """Calls of the policy for a chunk; a call of the sync engine is a tick in which the model ran."""

    calls: int
    chunk: int | None = optional("actions in a chunk; None if no call recorded it")
    first_ms: Finite = Field(description="latency of the first call, from its observation to its actions in the queue")
    latency: Quantiles | None = optional("milliseconds for all later calls; None without any")
    delays: Delays | None = optional("delays of Real-Time Chunking, with two calls or more")
    growth: Growth | None = optional("how the calls take longer and longer; None: they do not")
    useless: int = Field(default=0, description="chunks whose actions were all past when they arrived")
    errors: str | None = optional("last error of the inference thread, if it gave up")


class Unfinished(Data):
    """The call that had not returned when a run ended that was sent no action."""

    calls: int = Field(description="number of calls that had returned before: all of them warmed the policy up")
    ms: Finite = Field(description="time from its observation to the end of the loop")
    run_s: Finite = Field(description="seconds from the first tick to the end of the loop")
    compiled: bool = Field(default=False, description="LeRobot's --use_torch_compile compiled in the first calls")


class Queue(Data):
    """Actions that wait for their tick, and ticks without one. The wait for the first action is reported separately."""

    depth: Quantiles | None = optional("actions left after each tick; None if not recorded")
    least: int | None = None
    threshold: int | None = optional("queue_threshold: calls begin at this depth or below")
    first_action_ms: Finite | None = optional(
        "from the first tick's start to the end of the tick that sent the first action; None if none"
    )
    starved: int = Field(description="ticks without an action, after the first action")
    starved_ms: Finite = Field(description="total time without an action")
    longest_ms: Finite = Field(description="longest time without an action")


EngineName = Literal["sync", "rtc", "remote", "server", "none"]
FEW_SEAMS = 3  # below, a median of jumps says nothing
SEAM_JUMP = 3.0  # jumps over steps from which on a joint jumps


class JointSeam(Data):
    """Jumps of one joint where a new chunk takes over, and its ordinary steps from action to action."""

    joint: str
    step: Quantiles = Field(description="size of the steps inside chunks, in the robot's unit")
    jump: Quantiles = Field(description="size of the steps between chunks")
    ratio: Finite | None = optional("median jump ÷ 95th percentile of the steps inside chunks")


class Camera(Data):
    """One camera as the loop reads it."""

    name: str
    reads: int
    ms: Quantiles = Field(description="milliseconds for a read")
    fresh_hz: Finite = Field(description="different frames per second")
    longest_ms: Finite = Field(default=0.0, description="longest time from the first to the last read of one frame")
    longest_from_s: Finite = Field(default=0.0, description="seconds from the first tick to that frame")
    age: Quantiles | None = optional("milliseconds from a frame's own timestamp to its read")
    frozen_ms: Finite = Field(default=0.0, description="longest time in which new frames showed the same picture")
    frozen_from_s: Finite = Field(default=0.0, description="seconds from the first tick to the first of them")
    frozen_frames: int = Field(default=0, description="frames in that time")


class Scheduling(Data):
    """The scheduling policy of the control thread at the start and at the end, with a real-time priority."""

    before: str = Field(description="policy and priority, such as SCHED_OTHER or SCHED_FIFO 99")
    after: str
    real_time_before: bool = False
    real_time_after: bool = False
    from_s: Finite | None = optional("seconds from the first tick to the first sample that found it changed")


POLICY_CALL = "policy call"
# Part of a tick → the subject of a sentence; an arm's name may follow the part.
STALLED = {
    POLICY_CALL: "A policy call",
    "camera ": "Camera ",
    "read motors": "Reading the motors",
    "write motors": "Writing to the motors",
    "read leader motors": "Reading the leader's motors",
    "write leader motors": "Writing to the leader's motors",
    "observation": "Reading the robot",
    "action": "Sending an action",
}


class Stall(Data):
    """A part of the control loop, or a policy call, that once took far longer than usual: a second or more."""

    part: str = Field(description="part of a control tick, such as 'camera front', or 'policy call'")
    count: int = Field(description="number of such stalls")
    ms: Finite = Field(description="longest stall")
    total_ms: Finite
    from_s: Finite = Field(description="seconds from the first tick to the longest stall")

    @property
    def title(self) -> str:
        """The stall in a sentence without its full stop."""
        name = next((words + self.part.removeprefix(part) for part, words in STALLED.items() if part in self.part), "")
        return f"{name or self.part.capitalize()} hung for {self.ms / 1e3:.1f} s"


class NotFinite(Data):
    """Control ticks with a NaN or infinite number of a joint."""

    read: int = Field(description="ticks whose position, as read from the robot, was not finite")
    sent: int = Field(description="ticks whose action was not finite")
    joints: list[str] = many("joints concerned")


class WildCommand(Data):
    """Commands of one joint that no motor executes, in the robot's unit."""

    joint: str
    ticks: int = Field(description="control ticks that sent one")
    from_s: Finite = Field(description="seconds from the first tick to the first of them")
    command: Finite
    before: Finite | None = Field(
        description="the command before, where it was too far from that; None if out of range"
    )
    ends: tuple[Finite, Finite] | None = Field(description="ends of the joint's range; None if not known")

    @property
    def title(self) -> str:
        """The first of them in a sentence without its full stop."""
        if self.before is not None:
            return f"{self.joint} was sent from {self.before:.4g} to {self.command:.4g} in one control tick"
        return f"{self.joint} was sent {self.command:.4g}, beyond its range"


class Recording(Data):
    """Frames that the strategy recorded, and the time that their timestamps will span."""

    frames: int
    dataset_fps: Finite
    stamped_s: Finite = Field(description="number of frames ÷ the dataset's rate")
    real_s: Finite = Field(description="measured duration of the recording")


class Series(Data):
    """Ticks and calls over time. Long series are thinned: of neighbouring entries the worst remains."""

    at_s: list[Finite] = many("start of each tick since the first")
    period_ms: list[Finite | None] = Field(default_factory=list)
    work_ms: list[Finite] = Field(default_factory=list)
    depth: list[int | None] = Field(default_factory=list)
    age_ms: list[Finite | None] = Field(default_factory=list)
    starved: list[bool] = Field(default_factory=list)
    call_at_s: list[Finite] = many("start of each call since the first tick")
    call_ms: list[Finite] = Field(default_factory=list)


class JointTracking(Data):
    """How well one joint follows its commands, in the robot's unit."""

    joint: str
    error: Quantiles = Field(description="distance between a tick's command and the position read at the next tick")
    lag_ticks: int | None = optional("ticks after which positions are closest to commands; None for a joint at rest")
    left: Quantiles | None = optional("remaining distance after so many ticks")


class Rollout(Data):
    """One run of a loop of LeRobot, on a robot or as a rehearsal."""

    robot: str
    strategy: str = Field(description="strategy of lerobot-rollout; else the leader's type")
    engine: EngineName = Field(
        description="inference engine; remote: on a server; server: that server; none: a leader commands the actions"
    )
    command: str = Field(default="lerobot-rollout", description="LeRobot's command")
    fps: Finite
    multiplier: int
    horizon: int | None = optional("execution horizon of Real-Time Chunking")
    can_rtc: bool = Field(default=False, description="LeRobot's Real-Time Chunking can guide this policy")
    sentence: str
    pace: Pace | None = optional("control rate; None with fewer than two ticks")
    inference: Inference | None = optional("calls of the policy; None if none was seen")
    unfinished: Unfinished | None = optional("call that never ended (rtc); None with an action")
    bench: Bench | None = optional("comparison with calls on the bench; None with too few")
    queue: Queue
    age: Quantiles | None = optional("milliseconds from an observation to each of its actions")
    first_action: list[FirstAction] | None = optional(
        "by joint; empty without an action or positions; None in older runs"
    )
    seams: list[JointSeam] = Field(default_factory=list)
    tracking: list[JointTracking] = many("empty if the robot reports no positions")
    cameras: list[Camera] = Field(default_factory=list)
    bus: Bus | None = optional("motor bus, with several arms the worst one; None if no read was seen")
    buses: list[Bus] = many("motor bus of each arm, with several arms")
    turns: Turns | None = optional("use of the CPUs; Linux only")
    scheduling: Scheduling | None = optional("scheduling of the control thread; Linux only")
    stalls: list[Stall] = many("stalls, longest first")
    not_finite: NotFinite | None = optional("NaN or infinite joints; None if not recorded")
    wild: list[WildCommand] | None = optional("by joint; None if no range or motion is known")
    rehearsal: Rehearsal | None = optional("emulated arm; None for a run on a robot")
    recording: Recording | None = None
    cadence: str | None = optional("output of LeRobot's own timer, if the loop has one")
    remote: Remote | None = optional("figures of remote inference")
    series: Series = Field(default_factory=Series)
    overhead_ms: Finite = Field(description="recording time per tick, computed from its cost on this machine")
    torque: str | None = optional("torque at the end, and how that is known; None of a server")
    error: str | None = optional("error that ended the run early, in a line")
    lost: str | None = optional("what the recording lacks or has damaged; None if nothing is known")


class RolloutResult(Result):
    """A run of lerobot-rollout, or another loop: whether its loop, its inference and its queue kept up."""

    study: Literal["rollout"] = "rollout"
    rollout: Rollout

    def figures(self) -> Iterator[Figure]:
        return (Figure(*key, value) for key, value in _figures(self.rollout).items())


FEWEST_FOR_P95 = 20  # values: of fewer, a 95th percentile is the maximum


def spread_in_words(values: Quantiles, decimals: int = 0) -> str:
    """Return median, p95 and maximum in ms; p95 from `FEWEST_FOR_P95` values on, and a single value alone."""
    if values.n == 1:
        return f"{values.max:,.{decimals}f} ms"
    shown = [("median", values.median), ("p95", values.p95), ("max", values.max)]
    if values.n < FEWEST_FOR_P95:
        del shown[1]
    return ", ".join(f"{name} {value:,.{decimals}f} ms" for name, value in shown)


def _figures(rollout: Rollout) -> dict[tuple[str, str], float | None]:
    """Return figures by name and unit: pace, inference, delays, starvation, ages, seams, cameras."""
    figures: dict[tuple[str, str], float | None] = {}
    if (pace := rollout.pace) is not None:
        figures["rate asked", "Hz"] = pace.asked_hz
        figures["rate held", "Hz"] = pace.held_hz
        figures |= _quantiles("from tick to tick", pace.period)
        figures["late ticks", "%"] = 100 * pace.late / pace.ticks
    if (inference := rollout.inference) is not None:
        figures["calls of the policy", ""] = inference.calls
        figures["first call", "ms"] = inference.first_ms
        figures |= _quantiles("later calls", inference.latency)
        figures["chunks that came too late", ""] = inference.useless
        if (delays := inference.delays) is not None:
            figures["delay assumed, median", "actions"] = delays.assumed.median
            figures["delay needed, median", "actions"] = delays.needed.median
            figures["delay that happened, median", "actions"] = delays.executed.median
            figures["actions of the first chunk dropped, not executed", ""] = delays.first_dropped
    queue = rollout.queue
    figures["first action after", "ms"] = queue.first_action_ms
    figures["ticks without an action", ""] = queue.starved
    figures["time without an action", "ms"] = queue.starved_ms
    figures["longest time without one", "ms"] = queue.longest_ms
    figures["fewest actions left", ""] = queue.least
    figures |= _quantiles("age of the observation", rollout.age)
    for seam in rollout.seams:
        figures[f"jump of {seam.joint} over its steps", "×"] = seam.ratio
    for camera in rollout.cameras:
        figures[f"frames of {camera.name}", "Hz"] = camera.fresh_hz
        figures |= _quantiles(f"age of frames of {camera.name}", camera.age)
    return figures


def _quantiles(name: str, values: Quantiles | None) -> dict[tuple[str, str], float | None]:
    if values is None:
        return {}
    return {
        (f"{name}, median", "ms"): values.median,
        (f"{name}, 95 %", "ms"): values.p95,
        (f"{name}, longest", "ms"): values.max,
    }
