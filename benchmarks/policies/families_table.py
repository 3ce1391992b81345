"""Questions that the table of families asks of one type of policy, each in a process of its own."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from lerobot.policies.rtc.configuration_rtc import RTCConfig
from policies.attempts import GUIDANCE, IMAGE, Attempt, try_attempt

from strobe.core.errors import UserError
from strobe.core.families.capabilities import Calls
from strobe.core.measure.accounting import Accounting
from strobe.core.measure.components import components, iterations
from strobe.core.subjects.subject import ITERATION, Phase
from strobe.core.timeline import Timeline
from strobe.core.timeline.probe import Attached
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import CAPTURED, PROCESS, Spec
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import InputOptions, PolicyOptions
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.lerobot.refusals import first_line
from strobe.treatments.flow.rtc import RealTimeChunking, supports

CHUNKS = 5
SLOW_S = 2.0  # a first chunk that takes longer is not repeated
GRAPHS = ("loop", "chunk", "prefix")  # the longest stretch first


@dataclass
class Parts:
    """The parts of one phase.

    Args:
        names: of the first level.
        other: share of the policy's time that is in none of them, and ``unseen`` of its FLOP.
        ms: median of a call.
    """

    names: list[str]
    other: float
    unseen: float
    ms: float


@dataclass
class Looked:
    """A type at one size. ``untrained`` says why there is no training phase."""

    inference: Parts
    training: Parts | None
    untrained: str
    gib: float
    parameters: int
    stand_ins: int
    rtc: bool
    exact: list[Spec] = field(default_factory=list)


def look(kind: str, size: str, image: tuple[int, int] | None = None) -> Looked:
    """Return what one type shows; a full size is not trained, which would take four times its memory."""
    torch.set_num_threads(2)
    subject = load_subject(
        PolicyOptions(type=kind, size="tiny" if size == "tiny" else "full"), InputOptions(image_size=image)
    )
    untrained = Calls.from_family(subject.family).untrained or ("" if size == "tiny" else "not tried at full size")
    inference, training = parts(subject, "inference", CHUNKS, full=size != "tiny"), None
    if not untrained:
        try:
            training = parts(subject, "training forward", CHUNKS)
        except Exception as error:  # of the policy's own code
            untrained = f"refused by LeRobot: {first_line(error)[:80]}"
    info = subject.info
    return Looked(
        inference,
        training,
        untrained,
        info.weight_bytes / 2**30,
        info.parameters,
        len(info.stand_ins),
        supports(subject),
        exact(subject) if size == "tiny" else [],
    )


def parts(subject: PolicySubject, phase: Phase, calls: int, full: bool = False) -> Parts:
    """Return the parts of ``phase``: their names, and the share of time and of FLOP that is in none of them.

    At full size some take minutes: then the first call alone is taken, else it warms up.
    """
    call, whole = subject.call(phase, 2), (ITERATION, "policy" if phase == "inference" else "forward")
    with Attached(subject.hooks(phase, 1)):
        took, timeline = _time_calls(call, 1)
        if not full or took[0] < SLOW_S:
            took, timeline = _time_calls(call, calls)
    found = components(iterations(timeline.sections(), ITERATION))
    mine = [one for one in found if tuple(one.path[:1]) == whole[1:]]
    share = next(one.share for one in mine if len(one.path) == 1)
    other = sum(one.share for one in mine if len(one.path) == 2 and one.other)
    names = list(dict.fromkeys(one.path[-1] for one in mine if len(one.path) > 1 and not one.other))
    unseen = 0.0 if full else _unseen(subject, phase, call, whole)
    return Parts(names, other / share, unseen, 1e3 * statistics.median(took))


def _time_calls(call: Callable[[int], Any], calls: int) -> tuple[list[float], Timeline]:
    took = []
    with Timeline() as timeline:
        for index in range(calls):
            start = time.perf_counter()
            call(index)
            took.append(time.perf_counter() - start)
    return took, timeline


def _unseen(subject: PolicySubject, phase: Phase, call: Callable[[int], Any], whole: tuple[str, str]) -> float:
    accounting = Accounting()
    with Attached(subject.hooks(phase, 1)):
        accounting.run(lambda: call(0))
    inside = sum(a.gflop for path, a in accounting.accounts.items() if len(path) == 3 and path[:2] == whole)
    total = accounting.accounts[whole].gflop
    return 1 - inside / total if total else 0.0


def exact(subject: PolicySubject) -> list[Spec]:
    """Return the exact treatments that Strobe would try on this policy."""
    found: list[Spec] = []
    for entry in catalogue.entries():
        if entry.effect == "exact" and entry.rank not in (CAPTURED, PROCESS) and not entry.key.endswith("."):
            found += [spec for spec in entry.candidates(subject) if len(spec) == 1]
    return found


def compare_treated(kind: str, spec: Spec) -> str:
    """Return '' where a policy acts the same under an exact treatment, else what differs; '-' where it is refused."""
    try:
        return try_attempt(Attempt(kind, (spec,))).broken or ""
    except UserError:
        return "-"


def check_guidance(kind: str) -> str:
    """Return how far Real-Time Chunking works: 'guided', and whether its guidance has a closed form here."""
    subject = load_subject(PolicyOptions(type=kind, size="tiny"), InputOptions(image_size=IMAGE))
    plain = subject.chunk(0)
    undo = RealTimeChunking(RTCConfig(execution_horizon=4), inference_delay=2).apply(subject)
    chunk = subject.chunk(0)
    undo()
    if torch.equal(plain, chunk) or not bool(chunk.isfinite().all()):
        return "changes nothing" if torch.equal(plain, chunk) else "not finite"
    try:
        found = try_attempt(Attempt(kind, (GUIDANCE,), rtc=True))
    except UserError:
        return "guided"
    return found.broken or "guided, closed form"


def find_longest_capture(kind: str) -> str:
    """Return the longest stretch that a graph holds on the emulated device, with the number of graphs; '-' for none."""
    for what in GRAPHS:
        try:
            found = try_attempt(Attempt(kind, ({"graph": what},), played=True))
        except UserError:
            continue
        if not found.broken:
            return f"{what} ({found.captured})"
    return "–"
