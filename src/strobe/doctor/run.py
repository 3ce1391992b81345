"""Doctor: what of Strobe can be trusted on this machine? Each area is examined by itself, and none ends the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from strobe.core.measure.machine import describe
from strobe.core.measure.sampling import Progress
from strobe.core.processes import isolate
from strobe.core.studies.shared.progress import Reporter, Silent
from strobe.doctor import clock, machine, steadiness, tools, treatments, versions
from strobe.doctor.results import Area, DoctorResult, SelfCheck
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import InputOptions, PolicyOptions
from strobe.version import __version__

# In this order. The clock and the pace are looked at first, and again at the end.
STAGES: dict[Area, str] = {
    "machine": "devices, memory, disk",
    "versions": "versions of packages",
    "clock": "the clocks against known work",
    "noise": "the same work compared with itself",
    "steadiness": "other programs, power and heat",
    "loaders": "shared memory and video decoders",
    "tools": "simulators, browsers, extras",
    "treatments": "each treatment on a tiny policy",
}
AREAS: tuple[Area, ...] = tuple(STAGES)

# Imported once, by the server that processes of their own are forked from.
PRELOADED = (treatments.__name__, "strobe.doctor.trials", "lerobot.policies.factory")

Examination = Callable[[], Iterator[SelfCheck]]


@dataclass
class Areas:
    """The examination of each area; ``last`` run after all others. A test passes its own."""

    first: dict[Area, Examination]
    last: dict[Area, Examination]


def doctor(
    device: torch.device,
    folder: Path,
    reporter: Reporter | None = None,
    *,
    only: Sequence[Area] = AREAS,
    areas: Areas | None = None,
) -> DoctorResult:
    """Examine the machine for work on ``device``. Ctrl-C keeps the self-checks that were made.

    Args:
        folder: where runs are kept.
        only: the areas to look at.
    """
    reporter = reporter or Silent()
    result = DoctorResult(
        strobe_version=__version__,
        title=f"{device}: what can be trusted on this machine?",
        machine=describe(device),
    )
    chosen: list[Area] = [area for area in AREAS if area in only]
    if set(chosen) & {"loaders", "tools", "treatments"}:
        isolate.start_server(PRELOADED)
    try:
        examinations = areas or _areas(device, folder, reporter, chosen)
        rounds = [(area, "", examinations.first) for area in chosen]
        rounds += [(area, ", again", examinations.last) for area in chosen]
        for area, again, examine in rounds:
            if area not in examine:
                continue
            reporter.stage(f"{STAGES[area]}{again}")
            for check in guard_examination(area, examine[area]):
                result.checks.append(check)
    except KeyboardInterrupt:
        result.status = "interrupted"
    if why := isolate.unfit():
        result.notes.append(f"each attempt was a process of its own, with imports of its own: {why}")
    result.checks.sort(key=lambda check: AREAS.index(check.area))
    return result


def guard_examination(area: Area, examination: Examination) -> Iterator[SelfCheck]:
    """Yield what ``examination`` finds; where it fails itself, that is a finding too, and the other areas go on."""
    try:
        yield from examination()
    except Exception as error:
        lines = str(error).strip().splitlines()
        yield SelfCheck(
            area=area,
            name=STAGES[area],
            outcome="fails",
            seen=f"could not be examined: {type(error).__name__}: {lines[0] if lines else 'no reason given'}",
            means="Strobe knows nothing about it.",
            do="Report it with this run's folder.",
        )


def _areas(device: torch.device, folder: Path, reporter: Reporter, chosen: Sequence[Area]) -> Areas:
    clocks = clock.choose_clocks(device)
    first = clocks.now()
    # What is timed is a real policy's call, small enough to be run hundreds of times.
    steady: steadiness.Steadiness | None = None
    others: list[SelfCheck] = []
    if set(chosen) & {"noise", "steadiness"}:
        if "steadiness" in chosen:
            reporter.stage("other programs")
            others.append(steadiness.others())
        subject = load_subject(
            PolicyOptions(type="act", size="tiny", overrides=[f"--device={device}"]), InputOptions(image_size=(96, 96))
        )
        steady = steadiness.Steadiness(subject.chunk, lambda: describe(device).power)

    def begin_then_examine() -> Iterator[SelfCheck]:
        assert steady is not None
        steady.begin()
        yield from others

    def noisy() -> Iterator[SelfCheck]:
        assert steady is not None
        return steadiness.examine_noise(steady.work)

    def progress(done: int, planned: int) -> None:
        reporter.progress(Progress(done, planned, 0.0, None, "attempts"))

    return Areas(
        first={
            "machine": lambda: machine.examine(device, folder),
            "versions": versions.examine,
            "clock": lambda: clock.check_clocks(clocks, clock.make_work(device)),
            "noise": noisy,
            "steadiness": begin_then_examine,
            "loaders": tools.examine_loaders,
            "tools": tools.examine_tools,
            "treatments": lambda: treatments.examine(str(device), done=progress),
        },
        last={
            "clock": lambda: clock.later(clocks, first),
            **({"steadiness": steady.end} if steady is not None else {}),
        },
    )
