"""Doctor: what of Strobe can be trusted on this machine? Each area is examined by itself, and none ends the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import torch

from strobe.core.measure.machine import describe
from strobe.core.processes import isolate
from strobe.core.studies.shared.progress import Reporter, Silent
from strobe.doctor import machine, steadiness, tools, versions
from strobe.doctor.results import Area, DoctorResult, SelfCheck
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import InputOptions, PolicyOptions
from strobe.version import __version__

STAGES: dict[Area, str] = {
    "machine": "devices, memory, disk",
    "versions": "versions of packages",
    "noise": "the same work compared with itself",
    "steadiness": "other programs, quota and power",
    "loaders": "shared memory and video decoders",
    "tools": "simulators, browsers, extras",
}
AREAS: tuple[Area, ...] = tuple(STAGES)

# Imported once, by the server that processes of their own are forked from.
PRELOADED = ("strobe.doctor.trials", "lerobot.envs.configs")

Examination = Callable[[], Iterator[SelfCheck]]
Areas = Mapping[Area, Examination]


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
        areas: the examination of each; a test passes its own.
    """
    reporter = reporter or Silent()
    result = DoctorResult(
        strobe_version=__version__,
        title=f"{device}: what can be trusted on this machine?",
        machine=describe(device),
    )
    chosen: list[Area] = [area for area in AREAS if area in only]
    if set(chosen) & {"loaders", "tools"}:
        isolate.start_server(PRELOADED)
    try:
        examinations = areas or _areas(device, folder)
        for area in chosen:
            if area not in examinations:
                continue
            reporter.stage(STAGES[area])
            for check in guard_examination(area, examinations[area]):
                result.checks.append(check)
    except KeyboardInterrupt:
        result.status = "interrupted"
    if why := isolate.unfit():
        result.notes.append(f"each trial was a process of its own, with imports of its own: {why}")
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
            do="Report the failed self-check with this run's folder.",
        )


def _areas(device: torch.device, folder: Path) -> Areas:
    system = steadiness.System()
    held_up = system.held_up()

    def noisy() -> Iterator[SelfCheck]:
        # What is timed is a real policy's call, small enough to be run hundreds of times.
        subject = load_subject(
            PolicyOptions(type="act", size="tiny", overrides=[f"--device={device}"]), InputOptions(image_size=(96, 96))
        )
        return steadiness.examine_noise(subject.chunk)

    return {
        "machine": lambda: machine.examine(device, folder),
        "versions": versions.examine,
        "noise": noisy,
        "steadiness": lambda: steadiness.examine_steadiness(system, held_up, describe(device).power),
        "loaders": tools.examine_loaders,
        "tools": tools.examine_tools,
    }
