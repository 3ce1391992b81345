"""Treatments: each on a tiny policy in a process of its own. Does it apply and capture, are the actions the same?"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from strobe.errors import UserError
from strobe.processes import isolate
from strobe.results.doctor import SelfCheck
from strobe.studies.doctor import one_treatment
from strobe.studies.doctor.one_treatment import Attempt, Tried

Done = Callable[[int, int], None]  # attempts done and planned


def examine(device: str, run: isolate.Runner = isolate.run, done: Done | None = None) -> Iterator[SelfCheck]:
    """Try everything that there is to try on ``device``, a process after the other."""
    try:
        attempts = run(one_treatment.planned, device)
    except (isolate.Failed, UserError) as error:
        yield SelfCheck(
            area="treatments",
            name="tiny policies",
            outcome="fails",
            seen=str(error),
            means="LeRobot's policies cannot be built here, so no treatment was tried.",
            do="strobe breakdown --policy.type=act --policy.size=tiny shows more",
        )
        return
    for index, attempt in enumerate(attempts):
        yield judged(attempt, device, run)
        if done is not None:
            done(index + 1, len(attempts))


def judged(attempt: Attempt, device: str, run: isolate.Runner = isolate.run) -> SelfCheck:
    """Try one, and say what came of it."""
    name = f"{attempt.name}{' (played on the CPU)' if attempt.played else ''}"
    try:
        found: Tried = run(one_treatment.tried, attempt, device)
    except UserError as error:
        return SelfCheck(area="treatments", name=name, outcome="not here", seen=str(error))
    except isolate.Failed as error:
        return SelfCheck(
            area="treatments",
            name=name,
            outcome="fails",
            seen=str(error),
            means="It stops a run.",
            do=_leave_out(attempt),
        )
    memory = f"{found.peak_bytes / 2**20:,.0f} MiB of memory at most"
    if found.device_bytes is not None:
        memory += f", {found.device_bytes / 2**20:,.0f} MiB on the device"
    many = "" if found.captured == 1 else "s"
    graphs = "" if found.captured is None else f", {found.captured} graph{many} captured"
    return SelfCheck.judged(
        "treatments",
        name,
        not found.broken,
        f"{found.broken + '; ' if found.broken else ''}{found.effect}: {found.seen}{graphs}; {memory}",
        "The policy does not do the same with it on this machine.",
        _leave_out(attempt),
        bad="fails",
        evidence={"rms": found.rms, "peak_bytes": float(found.peak_bytes)},
    )


def _leave_out(attempt: Attempt) -> str:
    """Advice on an attempt that fails: leave out what was put on last."""
    what = attempt.lever or ", ".join(f"{key}={value}" for key, value in list(attempt.specs[-1].items())[:1])
    return f"Leave {what} out here, and report it with this run's folder."
