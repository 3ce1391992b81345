"""The answer to a watched rollout: its figures, and its ticks and calls as measurements."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from itertools import pairwise
from statistics import median_low

import numpy as np
import torch

from strobe.core.measure import machine
from strobe.core.measure.components import Iteration, components, empty_section_ms, iterations, spans
from strobe.core.measure.statistics import describe, summarise
from strobe.core.results import units
from strobe.core.results.data import Samples
from strobe.core.results.measurement import MeasuredPhase, Measurement
from strobe.core.results.traits import LoopTraits, Traits
from strobe.core.timeline.clock import ThreadUse
from strobe.core.timeline.sections import recording
from strobe.lerobot.quiet import REAL_TIME
from strobe.loops import instrument
from strobe.loops.bench_calls import compare_places
from strobe.loops.device_probes import FROZEN, SAME
from strobe.loops.event_log import opener
from strobe.loops.events import Cadence, CameraRead, CpuUse, Scheduled
from strobe.loops.header import Header
from strobe.loops.instrument import CAMERA, SLEEP
from strobe.loops.measure import rollout as measure
from strobe.loops.measure.robot import BusRead, buses, count_not_finite, first_action, tracking, wild_commands, worst
from strobe.loops.reader import CALL, CONTROL, TICK, RunRecord
from strobe.loops.results.rollout import (
    POLICY_CALL,
    Camera,
    Recording,
    Rollout,
    RolloutResult,
    Scheduling,
    Stall,
    Turns,
)
from strobe.rollout.remote import (
    RECEIVED,
    TRIP,
    round_trips,
    sections_of_receiving,
    sections_of_trips,
    summarize_remote,
)
from strobe.version import __version__

MOST = 3000  # ticks and calls whose parts are in the answer; the figures are of all
STALL_MS, STALL_TIMES = 1000.0, 10  # least duration of a stall, and how many times its usual one
# Parts of a tick in which a device, its driver or its cable can hang.
DEVICES = (
    instrument.OBSERVATION, instrument.ACTION, instrument.CAMERA, instrument.MOTORS_READ, instrument.MOTORS_WRITTEN,
    instrument.LEADER_READ, instrument.LEADER_WRITTEN,
)  # fmt: skip


def make_answer(header: Header, record: RunRecord) -> RolloutResult:
    """Return the answer, without findings; its status is "complete" until a caller changes it."""
    info = header.subject
    figures = make_rollout(header, record)
    on = header.robot if figures.engine == "none" else f"{info.name} on {header.robot}"
    seconds = figures.pace.seconds if figures.pace is not None else 0.0
    ran = f"{seconds:.0f} s of {figures.command} at {header.fps:g} Hz"
    if figures.engine == "server":
        on, ran = info.name, f"{len(record.calls):,} calls of {figures.command}"
    result = RolloutResult(
        strobe_version=__version__,
        title=f"{on}: {ran}",
        subject=info,
        machine=machine.describe(torch.device(header.device)),
        rollout=figures,
    )
    turned = iterations(record.sections(MOST), TICK)
    ticks = [Iteration(each.whole, [part for part in each.parts if part.name != SLEEP]) for each in turned]
    if ticks:
        tick = _measurement(TICK, "control tick", ticks, 0)
        tick.traits = _traits(header)
        if len(ticks) < len(record.ticks):
            tick.notes.append(f"parts of the latest {len(ticks):,} of {len(record.ticks):,} ticks")
        result.measurements.append(tick)
    if figures.engine == "remote":
        calls, name = iterations(sections_of_trips(round_trips(record), MOST), TRIP), TRIP
    else:
        calls, name = iterations(record.latest_calls(MOST), CALL), CALL
    if calls:
        first = len(record.calls) == len(calls) > 1
        result.measurements.append(_measurement(name, "inference", calls, int(first)))
    if calls and figures.engine == "server":
        loop = LoopTraits(actions_per_chunk=header.chunk)
        result.measurements[-1].traits = Traits(loop=loop, device=header.device)
    if figures.engine == "server" and (received := iterations(sections_of_receiving(record, MOST), RECEIVED)):
        result.measurements.append(_measurement(RECEIVED, "receiving", received, 0))
    if header.device != "cpu":
        result.notes.append("times are the host's: a part that only launches work on the device is shorter than it")
    return result


def _traits(header: Header) -> Traits:
    if header.engine == "none":
        return Traits(loop=LoopTraits(leader=header.strategy, fps=header.fps))
    if header.engine == "remote":
        loop = LoopTraits(
            aggregation=header.strategy,
            fps=header.fps,
            actions_per_chunk=header.chunk,
            chunk_size_threshold=header.share,
        )
        return Traits(loop=loop)
    loop = LoopTraits(
        strategy=header.strategy,
        inference=header.engine,
        fps=header.fps,
        multiplier=header.multiplier,
        queue_threshold=header.threshold,
        execution_horizon=header.horizon if header.guided else None,
        compiled=header.compiled,
    )
    return Traits(loop=loop, device=header.device)


def make_rollout(header: Header, record: RunRecord) -> Rollout:
    """Return the figures of a rollout."""
    ticks, fps = record.ticks, header.fps
    events = sum(map(len, record.rows.values()))
    if ticks:  # those of the control thread
        events = len(record.rows.get(CONTROL, ())) + len(record.turns) + len(record.table(BusRead))
    ages = [tick.age_ns / 1e6 for tick in ticks if tick.age_ns is not None]
    guided = header.engine == "sync" or header.guided  # else chunks follow on one another in the queue
    arms = buses(record.table(BusRead), ticks[0].start_ns) if ticks else []
    rollout = Rollout(
        robot=header.robot,
        strategy=header.strategy,
        engine=header.engine,
        command=header.command,
        fps=fps,
        multiplier=header.multiplier,
        horizon=header.horizon if header.guided else None,
        can_rtc=header.can_rtc,
        sentence="",
        lost=record.lost,
        pace=measure.pace(ticks, fps * header.multiplier),
        inference=measure.inference(record.calls, fps, [turn.start_ns for turn in record.turns if turn.engine_reset]),
        bench=compare_places(record.table(ThreadUse)),
        queue=measure.queue(ticks, header.threshold),
        age=measure.quantiles(ages) if ages else None,
        first_action=first_action(ticks, header.joints) if header.engine != "server" else None,
        seams=measure.seams(record.actions, header.joints) if guided else [],
        tracking=tracking(ticks, header.joints),
        cameras=_cameras(record),
        bus=worst(arms),
        buses=arms if len(arms) > 1 else [],
        turns=_cpu_turns(record.table(CpuUse)),
        scheduling=_scheduling(record),
        stalls=_stalls(record),
        not_finite=count_not_finite(ticks, record.actions, header.joints),
        wild=wild_commands(ticks, header.joints, header.limits),
        recording=_recording(header, record),
        cadence="\n".join(line.text for line in record.table(Cadence)) or None,
        remote=summarize_remote(header, record),
        series=measure.series(ticks, record.calls),
        overhead_ms=empty_section_ms(recording(opener([].append))) * events / max(1, len(ticks) or len(record.calls)),
    )
    if rollout.queue.first_action_ms is None:
        rollout.unfinished = record.unfinished
    rollout.sentence = record.qualify_if_damaged(sentence(rollout))
    return rollout


def sentence(rollout: Rollout) -> str:
    """Return the verdict: whether the robot got its actions in time, or the worst that kept it from them."""
    pace, queue = rollout.pace, rollout.queue
    if rollout.engine == "server":
        return _describe_serving(rollout)
    if rollout.engine != "none" and queue.first_action_ms is None:
        return "The robot was never sent an action."
    if (numbers := rollout.not_finite) is not None and numbers.sent + numbers.read:
        did = "sent the robot" if numbers.sent else "read from the robot"
        return f"{units.count(numbers.sent or numbers.read, 'control tick')} {did} NaN or infinite numbers."
    if rollout.wild:
        return f"{rollout.wild[0].title}."
    if rollout.stalls:
        return f"{rollout.stalls[0].title}."
    if pace is None:
        return "The run was too short to measure its rate."
    if queue.starved and rollout.engine != "none":
        return f"The action queue ran empty: no action for {queue.starved_ms / 1e3:.1f} s."
    held = f"{pace.held_hz:.1f}"
    rate = f"{pace.asked_hz:g} Hz" if held == f"{pace.asked_hz:.1f}" else f"{held} of {pace.asked_hz:g} Hz"
    if pace.late:
        return f"The control loop ran at {rate}: {units.count(pace.late, 'late tick')}."
    return f"The control loop ran at {rate}: no late tick{'' if rollout.engine == 'none' else ', no empty queue'}."


def _describe_serving(rollout: Rollout) -> str:
    calls, remote = rollout.inference, rollout.remote
    failed = sum(each.count for each in ([] if remote is None else remote.failures) if each.request == "GetActions")
    if calls is None:
        if not failed:
            return "No client requested a chunk from the server."
        return f"The server made no chunk: {f'all {failed:,} requests' if failed > 1 else 'its only request'} failed."
    bad = 0 if rollout.not_finite is None else rollout.not_finite.sent
    odd = f", {bad:,} of them with NaN or infinite numbers" if bad else ""
    text = f"The server made {units.count(calls.calls, 'chunk')}{odd}"
    return f"{text}, and {units.count(failed, 'request')} failed." if failed else f"{text}, and no request failed."


def _cpu_turns(uses: Sequence[CpuUse]) -> Turns | None:
    """Return who had the CPUs from the loop's begin to the latest moment that tells it; None if none does."""
    known = [use for use in uses if use.waited >= 0 and use.at > uses[0].at]
    if not known:
        return None
    first, last = uses[0], known[-1]
    took, own = last.at - first.at, last.own - first.own
    return Turns(
        waited_share=(last.waited - first.waited) / took,
        own_cpus=own / took,
        other_cpus=max(0, last.everyone - first.everyone - own) / took,
    )


def _cameras(record: RunRecord) -> list[Camera]:
    ticks = record.ticks
    seconds = sum(b.start_ns - a.start_ns for a, b in pairwise(ticks) if b.follows) / 1e9
    took_ms: dict[str, list[float]] = {}
    before = f"{CAMERA} "
    for name, start, end in itertools.chain.from_iterable(record.rows.values()):
        if name.startswith(before):
            took_ms.setdefault(name.removeprefix(before), []).append((end - start) / 1e6)
    cameras = []
    for name, took in took_ms.items() if seconds > 0 else ():
        reads = [read for read in record.table(CameraRead) if read.camera == name]
        frames = [read for read in reads if read.fresh != SAME]
        ages = [read.age / 1e6 for read in reads if read.age >= 0]
        same_ns, same_from_ns, _ = _longest(reads, SAME)
        frozen_ns, frozen_from_ns, frozen_frames = _longest(frames, FROZEN)
        cameras.append(
            Camera(
                name=name,
                reads=len(took),
                ms=measure.quantiles(took),
                fresh_hz=max(0, len(frames) - 1) / seconds,
                longest_ms=same_ns / 1e6,
                longest_from_s=max(0, same_from_ns - ticks[0].start_ns) / 1e9,
                age=measure.quantiles(ages) if ages else None,
                frozen_ms=frozen_ns / 1e6,
                frozen_from_s=max(0, frozen_from_ns - ticks[0].start_ns) / 1e9,
                frozen_frames=frozen_frames,
            )
        )
    return cameras


def _longest(reads: Sequence[CameraRead], repeats: int) -> tuple[int, int, int]:
    """Return the longest time from a read to one that only ``repeats`` it, in nanoseconds, its begin, and its reads."""
    if not reads:
        return 0, 0, 0
    ends, repeated = np.array([read.end for read in reads]), np.array([read.fresh == repeats for read in reads])
    repeated[0] = False  # whatever was seen before the run
    first = np.maximum.accumulate(np.where(repeated, 0, np.arange(len(reads))))
    lasted = ends - ends[first]
    at = int(lasted.argmax())
    return (int(lasted[at]), int(ends[first[at]]), at - int(first[at]) + 1) if lasted[at] else (0, 0, 0)


def _stalls(record: RunRecord) -> list[Stall]:
    """Return parts and policy calls that took `STALL_MS` or longer and `STALL_TIMES` as long as usual, longest first.

    A part inside another stalled one stands for both: a camera's read for the whole observation.
    """
    spans = [span for span in record.rows.get(CONTROL, ()) if span[0].startswith(DEVICES)]
    spans += [(POLICY_CALL, call.start_ns, call.end_ns) for call in record.calls]
    by_part: dict[str, list[tuple[float, int, int]]] = {}
    for part, start, end in spans:
        by_part.setdefault(part, []).append(((end - start) / 1e6, start, end))
    long: dict[str, list[tuple[float, int, int]]] = {}
    for part, own in by_part.items():
        least = max(STALL_MS, STALL_TIMES * median_low(each[0] for each in own))
        long[part] = [span for span in own[int(part == POLICY_CALL) :] if span[0] >= least]  # a first call warms up
    every = [span for own in long.values() for span in own]
    begin, stalls = record.turns[0].start_ns if record.turns else 0, []
    for part, own in long.items():
        inner = [
            one for one in own if not any(one[1] <= at and to <= one[2] for _, at, to in every if (at, to) != one[1:])
        ]
        if inner:
            ms, start, _ = max(inner)
            total_ms, from_s = sum(span[0] for span in inner), max(0, start - begin) / 1e9
            stalls.append(Stall(part=part, count=len(inner), ms=ms, total_ms=total_ms, from_s=from_s))
    return sorted(stalls, key=lambda stall: -stall.ms)


def _scheduling(record: RunRecord) -> Scheduling | None:
    scheduled = record.table(Scheduled)
    if not scheduled:
        return None
    before, after = scheduled[0], scheduled[-1]
    changed_ns = next((event.at for event in scheduled if event.policy in REAL_TIME), None)
    from_s = (changed_ns - record.ticks[0].start_ns) / 1e9 if changed_ns is not None and record.ticks else None
    return Scheduling(
        before=_scheduling_name(before),
        after=_scheduling_name(after),
        real_time_before=before.policy in REAL_TIME,
        real_time_after=after.policy in REAL_TIME,
        from_s=from_s if from_s is not None and from_s >= 0 else None,
    )


def _scheduling_name(event: Scheduled) -> str:
    return f"{event.policy} {event.priority}" if event.policy in REAL_TIME else event.policy


def _recording(header: Header, record: RunRecord) -> Recording | None:
    episodes = [frames for frames in record.episodes if len(frames) > 1]
    if not episodes or not header.dataset_fps:
        return None
    return Recording(
        frames=sum(map(len, episodes)),
        dataset_fps=header.dataset_fps,
        stamped_s=sum(len(frames) - 1 for frames in episodes) / header.dataset_fps,
        real_s=sum(frames[-1] - frames[0] for frames in episodes) / 1e9,
    )


def _measurement(name: str, phase: MeasuredPhase, runs: Sequence[Iteration], first: int) -> Measurement:
    counted = runs[first:]
    values = [run.ms for run in counted]
    summary = summarise(values)
    return Measurement(
        name=name,
        phase=phase,
        samples=Samples(
            warmup=[run.ms for run in runs[:first]], values=values, summary=summary, notes=describe(values)
        ),
        components=components(counted),
        spans=spans(min(counted, key=lambda run: abs(run.ms - summary.median))),
    )
