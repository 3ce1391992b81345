"""Rules on a training: what its steps wait for, and which flag of ``lerobot-train`` ends that."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean, median

from strobe.core.findings.machine import IN_ENVIRONMENT, churn_finding
from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.trust import MAX_OTHER_SHARE
from strobe.core.findings.view import ms, percent
from strobe.core.results.finding import Finding
from strobe.core.results.measurement import Measurement
from strobe.core.results.numerals import significant
from strobe.train.results import LoaderPart, LoaderWorker, Rank, Training, TrainResult

# Limits as shares of a training step, where nothing else is said.
SLOW_WORKER = 1.5  # × the other workers' time for a batch
STORAGE_WAIT = 0.5  # share of a part of loading without CPU time: it waits for storage …
BUSY_CORES = 0.75  # … unless the machine's cores are busier than this: then it waits for them
MAX_EPOCH_STARTS = 0.05  # share of a training
SLOW_FORWARD = 1.5  # × the backward pass, which has twice the arithmetic
MAX_OPTIMIZER = 0.4
MAX_CHECKPOINTS = 0.05  # share of the planned training
MAX_EVALUATIONS = 0.2  # share of the planned training
MAX_HOST = 0.2  # share of the time on the host, outside the policy
STRAGGLER = 0.1  # excess time of a rank over the others
MAX_COMMUNICATION = 0.2  # averaging gradients

READS = ("video decoding", "row reads", "delta timestamps", "frame times")
HOST = ("images to floats", "preprocessing", "logging", "to the device")


def data(result: TrainResult, thresholds: Thresholds) -> Iterator[Finding]:
    """Steps that wait for their batch, with the one cause that the workers' sections show."""
    training = result.training
    if training.data_share < thresholds.data_bound:
        return
    waits = f"A step waits for its batch for {percent(training.data_share)} of its time"
    slow = _slow_worker(training.loader)
    top = max((part for part in training.loader_parts if part.name != "other"), key=lambda p: p.share, default=None)
    if not training.workers:
        rule, seen = (
            "loads-itself",
            f"{waits}. With --num_workers=0 the training process reads, decodes and trains in turn.",
        )
        if top is not None:
            seen += f" The longest part of that is {top.name}, {percent(top.share)} of loading."
        why = "Workers load the next batches while this one trains."
        do = "--num_workers=2 or more; `strobe dataloader -- …` finds how many."
    elif slow is not None:
        others = median(w.batch_ms for w in training.loader if w is not slow)
        rule = "slow-worker"
        seen = f"{waits}. {slow.name} takes {ms(slow.batch_ms)} for a batch, the others {ms(others)}."
        why = (
            "Workers get batches in turn, and the training takes them in order. The slowest worker sets the pace "
            "of all."
        )
        do = "Check what else runs on its core, and whether its share of the data lies on slower storage."
    elif top is None:
        return
    else:
        rule, why, do = _cause(top, training)
        seen = f"{waits}. {top.name} is {percent(top.share)} of loading, {ms(top.ms)} of a batch in each of "
        seen += f"{training.workers} workers"
        if top.waiting is not None and rule == "slow-storage":
            seen += f", and for {percent(top.waiting)} of that the worker used no CPU"
        seen += "."
    yield Finding(
        rule=rule,
        level="warning",
        title={
            "loads-itself": "The training process loads its own data",
            "slow-worker": "One worker is slower than the others",
            "slow-storage": "Loading waits for storage",
            "slow-transforms": "Image transforms are too slow for the training",
            "slow-decoding": "Video decoding is too slow for the training",
            "slow-rows": "Reading rows is too slow for the training",
            "slow-collate": "Collating batches is too slow for the training",
        }[rule],
        seen=seen,
        why=why,
        do=do,
        gain=f"up to {percent(training.data_share)} of the step, "
        f"{significant(training.data_share * training.planned_hours)} h of {training.planned_steps:,} steps (computed)",
        evidence={"data_share": training.data_share, "gain_share": training.data_share, "workers": training.workers},
    )


def _slow_worker(workers: list[LoaderWorker]) -> LoaderWorker | None:
    known = [worker for worker in workers if worker.batches >= 3]
    if len(known) < 2:
        return None
    slowest = max(known, key=lambda worker: worker.batch_ms)
    others = median(worker.batch_ms for worker in known if worker is not slowest)
    # One that is held up now and then, by others on its core, is as fast as they are when it is not.
    at_best = slowest.batch_ms if slowest.fastest_ms is None else slowest.fastest_ms
    return slowest if at_best >= SLOW_WORKER * others else None


def _cause(top: LoaderPart, training: Training) -> tuple[str, str, str]:
    """Rule, why and what to do for the part that loading spends most on."""
    more = "more workers (`strobe dataloader -- …` finds how many)"
    busy = training.machine_cpu is not None and training.machine_cpu > BUSY_CORES
    if top.name in READS and (top.waiting or 0.0) >= STORAGE_WAIT and not busy:
        why = "The cores have nothing to do at that time. The files come too slowly (a network drive, a cold disk)."
        return "slow-storage", why, f"Copy the dataset to a local disk or to /dev/shm, or hide the wait behind {more}."
    if top.name == "image transforms":
        why = "They run on the CPU, image by image, in every worker."
        return (
            "slow-transforms",
            why,
            (f"Use fewer transforms (--dataset.image_transforms.max_num_transforms), or {more}."),
        )
    if top.name == "collate":
        return (
            "slow-collate",
            "Collating copies every sample into the batch.",
            ("Use smaller images, or smaller batches."),
        )
    if top.name == "video decoding":
        why = "To reach a frame, the decoder starts at the key frame before it and decodes every frame in between."
        do = f"{more[:1].upper()}{more[1:]}, another --dataset.video_backend, or another encoding of the dataset "
        return (
            "slow-decoding",
            why,
            do + ("(`strobe dataloader --encodings -- …` shows what each encoding would save)."),
        )
    why = "Each past or future time step that the policy needs is another row to fetch and convert."
    return "slow-rows", why, f"{more[:1].upper()}{more[1:]}."


def epochs(result: TrainResult, _: Thresholds) -> Iterator[Finding]:
    """Epochs that begin slowly."""
    for stall in result.training.stalls:
        if stall.cause != "start of an epoch" or stall.share < MAX_EPOCH_STARTS:
            continue
        yield Finding(
            rule="slow-epochs",
            level="warning",
            title=f"The start of an epoch takes {percent(stall.share)} of the run",
            seen=f"{stall.steps:,} epochs began with {ms(stall.each_ms)} of waiting.",
            why="At the end of an epoch the prefetched batches run out. Without persistent workers, new workers start.",
            do="Set --persistent_workers=true, if it is not set. The fewer steps an epoch has, the more the waiting "
            "costs.",
            gain=f"up to {percent(stall.share)} of the run",
            evidence={"gain_share": stall.share, "each_ms": stall.each_ms},
        )


def forward(result: TrainResult, thresholds: Thresholds) -> Iterator[Finding]:
    """A part whose forward pass takes longer than its backward pass, which has about twice the arithmetic."""
    step = _step(result)
    if step is None or (step.traits.trained_share or 0) < 0.9:
        return  # what is frozen has no backward pass
    whole = sum(step.samples.values)
    if whole <= 0:
        return
    back = {tuple(c.path[1:]): sum(c.values) for c in step.components if c.path[0] == "backward" and not c.other}
    for part in step.components:
        below = tuple(part.path[1:])
        if part.path[0] != "forward" or part.other or len(below) != 1 or below not in back:
            continue
        took, gradient = sum(part.values), back[below]
        excess = (took - gradient / 2) / whole
        if excess < thresholds.big_part / 2 or took < SLOW_FORWARD * gradient:
            continue
        yield Finding(
            rule="slow-forward",
            level="warning",
            title=f"{part.name} takes longer forward than backward",
            seen=f"{ms(took / len(part.values))} forward and {ms(gradient / len(part.values))} backward per step.",
            why="A backward pass has about twice the arithmetic of the forward pass. If the forward pass takes "
            "longer, it does work that no gradient goes through: Python loops, copies, waiting.",
            do="--python_profile=cprofile shows the functions. --depth=2 divides the part into its own parts.",
            gain=f"about {percent(excess)} of the step, if the forward pass took half of the backward (computed)",
            evidence={"gain_share": excess, "forward_over_backward": took / gradient if gradient else None},
        )


def optimizer(result: TrainResult, _: Thresholds) -> Iterator[Finding]:
    """An optimizer that takes a large part of the step."""
    step = _step(result)
    if step is None:
        return
    share = sum(c.share for c in step.components if c.path == ["optimizer"])
    if share < MAX_OPTIMIZER:
        return
    yield Finding(
        rule="slow-optimizer",
        level="warning",
        title=f"The optimizer takes {percent(share)} of the step",
        seen=f"{ms(share * step.samples.summary.mean)} of {ms(step.samples.summary.mean)} per step, for "
        f"{result.subject.parameters / 1e6:,.1f} M parameters.",
        why="Its time depends only on the number of parameters, not on the batch.",
        do="A larger batch or gradient accumulation spreads it over more samples. A fused optimizer does it in one "
        "pass. `strobe compare --phase='training step' --levers=fused,accumulate=4` shows what each saves.",
        gain=f"at most {percent(share)} of the step",
        evidence={"gain_share": share},
    )


def interruptions(result: TrainResult, _: Thresholds) -> Iterator[Finding]:
    """Checkpoints and evaluations that come too often for what they cost."""
    training = result.training
    if training.planned_hours <= 0:
        return
    flags = {
        "checkpoint": ("frequent-checkpoints", "--save_freq", MAX_CHECKPOINTS),
        "evaluation": ("frequent-evaluations", "--eval_steps", MAX_EVALUATIONS),
        "environment evaluation": ("frequent-evaluations", "--env_eval_freq", MAX_EVALUATIONS),
    }
    for stall in training.stalls:
        if stall.cause not in flags or stall.planned_hours is None:
            continue
        rule, flag, limit = flags[stall.cause]
        share = stall.planned_hours / training.planned_hours
        if share < limit:
            continue
        yield Finding(
            rule=rule,
            level="warning",
            title=f"{stall.cause[:1].upper()}{stall.cause[1:]}s will take {percent(share)} of the training",
            seen=f"{ms(stall.each_ms)} each, {significant(stall.planned_hours)} h of "
            f"{significant(training.planned_hours)} h for {training.planned_steps:,} steps.",
            why="The training stands still during that time.",
            do=f"Raise {flag}.",
            gain=f"up to {percent(share)} of the training",
            evidence={"gain_share": share, "each_ms": stall.each_ms},
        )


def host(result: TrainResult, _: Thresholds) -> Iterator[Finding]:
    """Work outside the policy that the step waits for."""
    training, step = result.training, _step(result)
    if step is None or training.shares.get("host", 0.0) < MAX_HOST:
        return
    named = {c.name: c.share for c in step.components if c.depth <= 2 and c.name in HOST}
    if not named:
        return
    name = max(named, key=lambda part: named[part])
    yield Finding(
        rule="host-work",
        level="warning",
        title=f"{name} and other work outside the policy take {percent(training.shares['host'])} of the step",
        seen=", ".join(f"{part} {percent(share)}" for part, share in sorted(named.items(), key=lambda i: -i[1])) + ".",
        why="The policy waits until its batch is ready, and the device waits too.",
        do="Smaller images reduce this work. With an accelerator the processors can run on it (--policy.device).",
        gain=f"at most {percent(training.shares['host'])} of the step",
        evidence={"gain_share": training.shares["host"]},
    )


def ranks(result: TrainResult, _: Thresholds) -> Iterator[Finding]:
    """A rank that the others wait for, or a network that all wait for."""
    training = result.training
    if len(training.ranks) < 2:
        return
    slowest = max(training.ranks, key=lambda rank: rank.own_ms)
    others = [rank for rank in training.ranks if rank is not slowest]
    late = slowest.own_ms - fmean(rank.own_ms for rank in others)
    step_ms = fmean(rank.step_ms for rank in training.ranks)
    if step_ms <= 0:
        return
    if late >= STRAGGLER * step_ms:
        part, more = _where(slowest, others)
        yield Finding(
            rule="straggler",
            level="warning",
            title=f"Rank {slowest.rank} holds the others up",
            seen=f"Its own work takes {ms(slowest.own_ms)} a step, that of the others "
            f"{ms(slowest.own_ms - late)}; most of the difference, {ms(more)}, is in {part}.",
            why="Gradients are averaged in every step, so all ranks wait for the slowest.",
            do=f"Find out why {part} is slower there: another device, fewer free cores, or slower storage.",
            gain=f"up to {percent(late / step_ms)} of the step",
            evidence={"rank": slowest.rank, "late_ms": late, "gain_share": late / step_ms, "part": part},
        )
    elif slowest.communication_ms >= MAX_COMMUNICATION * step_ms:
        share = slowest.communication_ms / step_ms
        yield Finding(
            rule="communication",
            level="warning",
            title=f"Averaging gradients takes {percent(share)} of the step",
            seen=f"{ms(slowest.communication_ms)} of {ms(step_ms)} on the rank that waits least.",
            why="The backward pass hides a part of the network's time. This is the rest of it.",
            do="Use larger batches, gradient accumulation, or a faster connection between the devices.",
            gain=f"at most {percent(share)} of the step",
            evidence={"gain_share": share},
        )


def _where(slowest: Rank, others: list[Rank]) -> tuple[str, float]:
    """The part of the step in which ``slowest`` differs most from the others, and by how many milliseconds."""

    def own(rank: Rank, name: str) -> float:
        return rank.parts.get(name, 0.0) - (rank.exposed_ms if name == "backward" else 0.0)

    names = [name for name in slowest.parts if not name.startswith("wait for")]
    more = {name: own(slowest, name) - fmean(own(rank, name) for rank in others) for name in names}
    if not more:
        return "no part of its own", 0.0
    name = max(more, key=lambda part: more[part])
    return name, more[name]


def losses(result: TrainResult, _: Thresholds) -> Iterator[Finding]:
    """Losses that are infinite or not a number."""
    losses = result.training.losses
    first = next((step for step, loss in enumerate(losses, 1) if loss is None), None)
    if first is None:
        return
    yield Finding(
        rule="loss-not-finite",
        level="warning",
        title=f"The loss is infinite or not a number from step {first:,} on",
        seen=f"{losses.count(None):,} of {len(losses):,} recorded steps have such a loss.",
        why="Its gradients make the weights so, too, and nothing is learned from there on. The times are as measured.",
        do="Look for such numbers in the dataset: the notes name those that stand in its tables. If there are none, "
        "lower the learning rate, or train in float32.",
        evidence={"first": first, "steps": losses.count(None)},
    )


def unexplained(result: TrainResult, _: Thresholds) -> Iterator[Finding]:
    """Time of the step that no part explains."""
    step = _step(result)
    share = sum(c.share for c in step.components if c.other and c.depth == 1) if step is not None else 0.0
    if step is None or share <= MAX_OTHER_SHARE:
        return
    yield Finding(
        rule="other-large",
        level="warning",
        title=f"{percent(share)} of the training step belongs to no named part",
        seen=f"{ms(share * step.samples.summary.mean)} of {ms(step.samples.summary.mean)} per step.",
        why="Advice on the named parts misses what happens between them.",
        do="--python_profile=cprofile shows what runs there.",
        evidence={"share": share},
    )


def few_steps(result: TrainResult, thresholds: Thresholds) -> Iterator[Finding]:
    """A training too short to say much."""
    step = _step(result)
    if step is None or len(step.samples.values) >= thresholds.few_samples:
        return
    yield Finding(
        rule="few-samples",
        level="warning",
        title=f"Few steps: {len(step.samples.values)} after the warm-up",
        seen=f"{thresholds.few_samples} or more are wanted.",
        why="With so few, one slow step moves every figure.",
        do="Train longer: --steps=100 after the --.",
        evidence={"samples": len(step.samples.values)},
    )


def _step(result: TrainResult) -> Measurement | None:
    return next((m for m in result.measurements if m.phase == "training step"), None)


def training_memory_churn(result: TrainResult, _: Thresholds) -> Iterator[Finding]:
    """A training that spends its time in the kernel, fetching memory."""
    share = result.training.kernel_share
    if result.training.bound != "memory" or share is None:
        return
    yield churn_finding(
        "training",
        share,
        seen=f"{percent(share)} of the steps, averaged over {result.machine.threads} threads.",
        do=f"On Linux, put {IN_ENVIRONMENT} before lerobot-train or strobe train. `strobe compare --phase='training "
        "step' --variant 'kept: memory=kept'` judges it first.",
        gain=f"about {percent(share)} of the step",
        evidence={"gain_share": share},
    )


RULES = (
    losses,
    data,
    epochs,
    forward,
    optimizer,
    interruptions,
    host,
    ranks,
    unexplained,
    few_steps,
    training_memory_churn,
)
