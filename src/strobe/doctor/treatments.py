"""Treatments: each on a tiny policy in a process of its own. Does it apply and capture, are the actions the same?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from strobe.core.errors import UserError
from strobe.core.families.capabilities import LiveFields
from strobe.core.measure.accounting import find_allocator
from strobe.core.measure.guard import Guards, strongest
from strobe.core.measure.memory import peak_process
from strobe.core.processes import isolate
from strobe.core.results import units
from strobe.core.results.agreement import Agreement, Effect
from strobe.core.sameness.check import PolicyCallError, Sameness, make_guidance
from strobe.core.studies.shared.action_check import plan_visits
from strobe.core.studies.shared.gradients import gradients
from strobe.core.treatments import catalogue
from strobe.core.treatments.levers import LEVERS, lever
from strobe.core.treatments.treatment import CAPTURED, PROCESS, Entry, Spec, Treatment, Variant
from strobe.doctor.results import SelfCheck
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import InputOptions, PolicyOptions
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.treatments.graphs.captures import Replayed
from strobe.treatments.graphs.graph import CudaGraph

# The policies that treatments are tried on: each entry on the first that it has candidates for.
POLICIES = ("act", "pi05", "diffusion", "smolvla")
STEPS = 3  # denoising steps: a loop, and short
IMAGE = (64, 64)  # height and width of the cameras: what is tried does not depend on them
OBSERVATIONS = 6  # observations, two of which have the same shapes, and so meet in one graph
BATCH = 2
OTHERWISE = {"tf32": "tf32=false", "cudnn": "cudnn=default"}  # levers that a training step has on already
EXACT = "all exact treatments"
GUIDANCE: Spec = {"guidance": "closed form"}
# Gradients of a lever may differ from the plain ones by rounding: bfloat16 keeps eight bits of each number.
LEAST_COSINE = 0.99

Done = Callable[[int, int], None]  # attempts done and planned


@dataclass(frozen=True)
class Attempt:
    """Treatments to try together.

    Args:
        kind: type of the policy.
        specs: as they are written; their order does not matter.
        label: how they are called, where their specs would be long.
        rtc: whether Real-Time Chunking is on, for the treated policy and the baseline.
        played: whether graphs are played on the CPU, where there is no device that has them.
        lever: a lever of training, such as 'amp'; then there are no specs.
    """

    kind: str
    specs: tuple[Spec, ...] = ()
    label: str | None = None
    rtc: bool = False
    played: bool = False
    lever: str | None = None

    @property
    def name(self) -> str:
        """How it is called in the table."""
        if self.lever:
            return f"{self.lever} in training, {self.kind}"
        written = self.label or " + ".join(catalogue.format_spec(spec) for spec in self.specs)
        return f"{written}{' with RTC' if self.rtc else ''}, {self.kind}"


@dataclass(frozen=True)
class Tried:
    """The outcome of an attempt.

    Args:
        broken: why the policy does not act, or train, the same, in words.
        seen: the figures, in words.
        captured: graphs that were captured; None without graphs, or where they cannot be counted.
        rms: how far the actions moved, σ; None if none were compared.
        peak_bytes, device_bytes: memory of the process, and on an accelerator, at its highest.
    """

    broken: str | None
    seen: str
    effect: Effect
    captured: int | None = None
    rms: float | None = None
    peak_bytes: int = 0
    device_bytes: int | None = None


def examine(device: str, run: isolate.Runner = isolate.run, done: Done | None = None) -> Iterator[SelfCheck]:
    """Try everything that there is to try on ``device``, a process after the other."""
    try:
        attempts = run(plan_attempts, device)
    except (isolate.IsolatedCallError, UserError) as error:
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
        yield judge_attempt(attempt, device, run)
        if done is not None:
            done(index + 1, len(attempts))


def judge_attempt(attempt: Attempt, device: str, run: isolate.Runner = isolate.run) -> SelfCheck:
    """Try one. Return the self-check."""
    name = f"{attempt.name}{' (played on the CPU)' if attempt.played else ''}"
    try:
        attempted: Tried = run(try_attempt, attempt, device)
    except UserError as error:
        return SelfCheck(area="treatments", name=name, outcome="not here", seen=str(error))
    except isolate.IsolatedCallError as error:
        return SelfCheck(
            area="treatments",
            name=name,
            outcome="fails",
            seen=str(error),
            means="It stops a run.",
            do=_leave_out(attempt),
        )
    memory = f"{attempted.peak_bytes / 2**20:,.0f} MiB of memory at most"
    if attempted.device_bytes is not None:
        memory += f", {attempted.device_bytes / 2**20:,.0f} MiB on the device"
    many = "" if attempted.captured == 1 else "s"
    graphs = "" if attempted.captured is None else f", {attempted.captured} graph{many} captured"
    return SelfCheck.judge(
        "treatments",
        name,
        not attempted.broken,
        f"{attempted.broken + '; ' if attempted.broken else ''}{attempted.effect}: {attempted.seen}{graphs}; {memory}",
        "The policy does not act the same with it on this machine.",
        _leave_out(attempt),
        bad="fails",
        evidence={"rms": attempted.rms, "peak_bytes": float(attempted.peak_bytes)},
    )


def plan_attempts(device: str) -> list[Attempt]:
    """Return what there is to try on ``device``: every treatment by itself, exact ones together, and under graphs."""
    attempts: list[Attempt] = []
    taken: set[tuple[str, str]] = set()
    exact: dict[str, tuple[Spec, ...]] = {}
    for kind in POLICIES:
        subject = _subject(kind, device)
        for entry in catalogue.entries():
            for spec in _distinct(entry, subject):
                # A treatment of the process is none of the policy: nothing in it can clash with the others.
                if entry.effect == "exact" and entry.rank not in (CAPTURED, PROCESS):
                    exact[kind] = (*exact.get(kind, ()), spec)
                if (entry.key, _value(spec)) not in taken and entry.key != "graph":
                    taken.add((entry.key, _value(spec)))
                    attempts.append(Attempt(kind, (spec,)))
    for kind, specs in exact.items():
        attempts.append(Attempt(kind, specs, EXACT))
    attempts += _graphs(device, exact)
    attempts += [Attempt(kind, (GUIDANCE,), rtc=True) for kind in list(exact)[:1]]
    # Compiling is what `compile` in inference has shown, and takes longest.
    return [*attempts, *(Attempt(POLICIES[0], lever=OTHERWISE.get(name, name)) for name in LEVERS if name != "compile")]


def try_attempt(attempt: Attempt, device: str) -> Tried:
    """Try ``attempt``.

    Raises:
        UserError: it does not apply here.
        Exception: whatever a treatment raises that should not.
    """
    torch.set_num_threads(1)  # a tiny policy gains nothing by more, and loses much on a busy machine
    subject = _subject(attempt.kind, device)
    on_device = find_allocator(subject.device)
    with peak_process() as process:
        made = _try_training(subject, attempt.lever) if attempt.lever else _try_inference(subject, attempt)
    return replace(made, peak_bytes=process.bytes, device_bytes=on_device.peak() if on_device is not None else None)


def _try_inference(subject: PolicySubject, attempt: Attempt) -> Tried:
    captures: list[Replayed] = []
    guidance = make_guidance(subject) if attempt.rtc else None
    base = (guidance,) if guidance is not None else ()
    treatments = [_make_treatment(spec, attempt.played, captures) for spec in catalogue.sort_specs(attempt.specs)]
    variant = Variant(attempt.name, (*base, *treatments))
    effect = strongest([treatment.effect for treatment in treatments])
    variant.apply(subject)()  # where it does not apply, that is another matter than a call that fails
    same = Sameness(subject, base, OBSERVATIONS)
    try:
        agreement = same.check(variant, plan_visits(same, variant))
    except PolicyCallError as error:
        return Tried(str(error), "a call fails", effect)
    captured = sum(capture.recorded for capture in captures) if captures else None
    reordered = same.yardstick("reordered sums", 2) if effect == "exact" else None
    if captured == 0:
        broken = "no graph was captured"
    elif effect == "lossy":
        broken = _explain_lossy_failure(agreement)
    else:
        # A limit that was not judged is not trusted either.
        broken = Guards().strictest_guard([effect]).judge(agreement, reordered).words
    return Tried(broken, _figures(agreement), effect, captured, agreement.rms)


def _try_training(subject: PolicySubject, written: str) -> Tried:
    name, _, value = written.partition("=")
    treatment = lever(name, value or (str(BATCH) if name == "accumulate" else ""))
    variant = Variant(written, (treatment,))
    variant.require("training step")
    undo = variant.apply(subject)
    try:
        loss = float(subject.call("training step", BATCH)(0))
    finally:
        undo()
    if not math.isfinite(loss):
        return Tried("the loss is not finite", "one step", treatment.effect)
    check = gradients(subject, [Variant("plain"), variant], BATCH)
    if check.interrupted:
        raise KeyboardInterrupt
    if check.note:
        raise UserError(check.note)
    agreement = check.agreements[written]
    least = min(LEAST_COSINE, (agreement.seed_cosine or 1.0) - 0.05) if agreement.own_noise else LEAST_COSINE
    broken = f"its gradient's cosine is {agreement.cosine:.4f} < {least:.4g}" if agreement.cosine < least else None
    seen = f"gradient's cosine {agreement.cosine:.6f}, loss {loss:.4g}"
    return Tried(broken, seen, treatment.effect)


def _subject(kind: str, device: str) -> PolicySubject:
    made = load_subject(
        PolicyOptions(type=kind, size="tiny", overrides=[f"--device={device}"]), InputOptions(image_size=IMAGE)
    )
    if steps := LiveFields.from_family(made.family).steps:
        setattr(made.policy.config, steps, STEPS)
    return made


def _distinct(entry: Entry, subject: PolicySubject) -> list[Spec]:
    if entry.key.endswith("."):  # settings of the policy: the user's, and no treatment of ours
        return []
    by_value: dict[str, Spec] = {}
    for spec in sorted(entry.candidates(subject), key=len):
        by_value.setdefault(_value(spec), spec)
    return list(by_value.values())


def _value(spec: Spec) -> str:
    return str(next(iter(spec.values())))


def _graphs(device: str, exact: dict[str, tuple[Spec, ...]]) -> list[Attempt]:
    played = torch.device(device).type != "cuda"
    sdpa: Spec = {"attention": "sdpa"}
    attempts = []
    for kind, specs in list(exact.items())[:1]:  # each by itself, so that a fault has a name
        attempts += [Attempt(kind, (spec, {"graph": "loop"}), played=played) for spec in specs]
    for kind, specs in exact.items():
        for what in ("loop", "prefix"):
            attempts.append(Attempt(kind, ({"graph": what},), played=played))
            attempts.append(Attempt(kind, (*specs, {"graph": what}), f"{EXACT} + graph={what}", played=played))
        label = f"{EXACT} + attention=sdpa + graph=loop"
        attempts.append(Attempt(kind, (*specs, sdpa, {"graph": "loop"}), label, played=played))
        attempts.append(Attempt(kind, (GUIDANCE, {"graph": "loop"}), rtc=True, played=played))
    # Diffusion's loop reads its timesteps on the host, which without a device cannot be told from waiting for one.
    whole = POLICIES[:1] if played else tuple(kind for kind in POLICIES if kind not in exact)
    return [*attempts, *(Attempt(kind, ({"graph": "chunk"},), played=played) for kind in whole)]


def _make_treatment(spec: Spec, played: bool, captures: list[Replayed]) -> Treatment:
    if not (played and "graph" in spec):
        return catalogue.make(spec)
    captures.append(Replayed(warmups=2))
    return CudaGraph(str(spec["graph"]), captures[-1])


def _explain_lossy_failure(agreement: Agreement) -> str | None:
    return f"{agreement.not_finite:,} numbers are infinite or not a number" if agreement.not_finite else None


def _figures(agreement: Agreement) -> str:
    calls = f"{agreement.observations} calls"
    if agreement.rms is None or agreement.worst is None:
        return calls
    return f"rms {units.sigma(agreement.rms)} σ, worst {units.sigma(agreement.worst)} σ, {calls}"


def _leave_out(attempt: Attempt) -> str:
    what = attempt.lever or ", ".join(f"{key}={value}" for key, value in list(attempt.specs[-1].items())[:1])
    return f"Do not use {what} here, and report it with this run's folder."
