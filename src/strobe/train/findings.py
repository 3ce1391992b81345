"""Rules on a training: the causes of its waits, and the flag of ``lerobot-train`` that ends each."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean, median

from strobe.core.findings.machine import IN_ENVIRONMENT, churn
from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.trust import MAX_OTHER_SHARE
from strobe.core.findings.view import ms, percent
from strobe.core.results import units
from strobe.core.results.finding import Finding, info, warning
from strobe.core.results.measurement import Measurement
from strobe.core.results.numerals import significant
from strobe.train.results import LoaderPart, LoaderWorker, Rank, Training, TrainResult

# Limits as shares of a training step, where nothing else is said.
SLOW_WORKER = 1.5  # × the other workers' time for a batch
STORAGE_WAIT = 0.5  # share of a part of loading without CPU time: it waits for storage …
BUSY_CORES = 0.75  # … unless the machine's cores are busier than this: then it waits for them
MAX_EPOCH_STARTS = 0.05  # share of a training
MAX_OPTIMIZER = 0.4
MAX_CHECKPOINTS = 0.05  # share of the planned training
MAX_EVALUATIONS = 0.2  # share of the planned training
MAX_HOST = 0.2  # share of the time on the host, outside the policy
MAX_COMMUNICATION = 0.2  # averaging gradients
LOW_MFU = 0.3  # forward and backward reach less: PaLM's appendix B lists 21 to 46 % for large tuned trainings

READS = ("video decoding", "row reads", "delta timestamps", "frame times")
HOST = ("images to floats", "preprocessing", "logging", "to the device")


# Cause → the title of the finding on it.
_STARVED = {
    "loads-itself": "The training process loads its own data",
    "slow-worker": "One worker is slower than the others",
    "slow-storage": "Loading waits for storage",
    "slow-transforms": "Image transforms are too slow for the training",
    "slow-decoding": "Video decoding is too slow for the training",
    "slow-rows": "Reading rows is too slow for the training",
    "slow-collate": "Collating batches is too slow for the training",
}


def data(result: TrainResult, thresholds: Thresholds) -> Iterator[Finding]:
    """Steps that wait for their batch, with the one cause that the workers' sections show."""
    training = result.training
    share, slow = training.data_share, _slow_worker(training.loader)
    top = max((part for part in training.loader_parts if part.name != "other"), key=lambda p: p.share, default=None)
    if share < thresholds.data_bound:
        return
    if not training.workers:
        cause, why = "loads-itself", "Workers load the next batches while this one trains."
        seen = "With --num_workers=0 the training process reads, decodes and trains in turn"
        if top is not None:
            seen += f". The longest part of that is {top.name}, {percent(top.share)} of loading"
        do = "--num_workers=2 or more; `strobe dataloader -- …` finds how many."
    elif slow is not None:
        others = median(worker.batch_ms for worker in training.loader if worker is not slow)
        cause, seen = "slow-worker", f"{slow.name} takes {ms(slow.batch_ms)} for a batch, the others {ms(others)}"
        why = "Workers get batches in turn, and the training takes them in order. "
        why += "The slowest worker sets the pace of all."
        do = "Check what else runs on its core, and whether its share of the data lies on slower storage."
    elif top is None:
        return
    else:
        cause, why, do = _cause(top, training)
        each = f"{ms(top.ms)} of a batch in each of {training.workers} workers"
        seen = f"{top.name} is {percent(top.share)} of loading, {each}"
        if top.waiting is not None and cause == "slow-storage":
            seen += f", and for {percent(top.waiting)} of that the worker used no CPU"
    yield warning(
        rule=cause,
        title=_STARVED[cause],
        found=f"A step waits for its batch for {percent(share)} of its time. {seen}.",
        why=why,
        do=do,
        gain=f"up to {percent(share)} of the step, {significant(share * training.planned_hours)} h of "
        f"{training.planned_steps:,} steps (computed)",
        evidence={"gain_share": share},
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
    more = "more workers (`strobe dataloader -- …` finds how many)"
    cores = training.machine_cpu or 0.0
    busy = cores > BUSY_CORES
    if busy:
        more = f"more free cores ({percent(cores)} of them are busy: more workers gain little)"
    if top.name in READS and (top.waiting or 0.0) >= STORAGE_WAIT and not busy:
        why = "Files that come slowly (a network drive, a cold disk), a container's CPU limit and a lock look alike."
        return "slow-storage", why, f"Copy the dataset to a local disk or to /dev/shm, or hide the wait behind {more}."
    if top.name == "image transforms":
        do = f"Use fewer transforms (--dataset.image_transforms.max_num_transforms), or {more}."
        return "slow-transforms", "They run on the CPU, image by image, in every worker.", do
    if top.name == "collate":
        return (
            "slow-collate",
            "Collating copies every sample into the batch.",
            "Use smaller images, or smaller batches.",
        )
    more = f"{more[:1].upper()}{more[1:]}"
    if top.name == "video decoding":
        why = "To reach a frame, the decoder starts at the key frame before it and decodes every frame in between."
        do = f"{more}, another --dataset.video_backend, or another encoding of the dataset "
        return "slow-decoding", why, f"{do}(`strobe dataloader --encodings -- …` shows what each encoding would save)."
    return (
        "slow-rows",
        "Each past or future time step that the policy needs is another row to fetch and convert.",
        f"{more}.",
    )


def epochs(result: TrainResult, _: Thresholds) -> Iterator[Finding]:
    for stall in result.training.stalls:
        if stall.cause == "start of an epoch" and stall.share >= MAX_EPOCH_STARTS:
            yield warning(
                rule="slow-epochs",
                title=f"The start of an epoch takes {percent(stall.share)} of the run",
                found=f"{stall.steps:,} epochs began with {ms(stall.each_ms)} of waiting.",
                why="At the end of an epoch the prefetched batches run out. Without persistent workers, new workers "
                "start.",
                do="Set --persistent_workers=true if it is not set. The fewer steps an epoch has, the more the "
                "waiting costs.",
                gain=f"up to {percent(stall.share)} of the run",
                evidence={"gain_share": stall.share},
            )


def optimizer(result: TrainResult, _: Thresholds) -> Iterator[Finding]:
    step = _step(result)
    share = sum(c.share for c in step.components if c.path == ["optimizer"]) if step is not None else 0.0
    if step is not None and share >= MAX_OPTIMIZER:
        yield warning(
            rule="slow-optimizer",
            title=f"The optimizer takes {percent(share)} of the step",
            found=f"{ms(share * step.samples.summary.mean)} of {ms(step.samples.summary.mean)} per step, for "
            f"{result.subject.parameters / 1e6:,.1f} M parameters.",
            why="Its time depends only on the number of parameters, not on the batch.",
            do="A larger batch or gradient accumulation spreads it over more samples. A fused optimizer does it in "
            "one pass. `strobe compare --phase='training step' --levers=fused,accumulate=4` shows what each saves.",
            gain=f"at most {percent(share)} of the step",
            evidence={"gain_share": share},
        )


def utilisation(result: TrainResult, thresholds: Thresholds) -> Iterator[Finding]:
    mfu, share = result.training.mfu, result.training.data_share
    reached = mfu.passes_share if mfu is not None else None
    if mfu is not None and reached is not None and reached < LOW_MFU and share < thresholds.data_bound:
        least = mfu.least_ms or 0.0
        took = least / reached if reached > 0 else 0.0
        yield info(
            rule="low-mfu",
            title=f"Forward and backward pass reach {percent(reached)} of this machine's peak",
            found=f"Both passes take {ms(took)} for {significant(sum(mfu.gflop.values()))} GFLOP per step; at the "
            f"peak they would take {ms(least)}. The MFU of the whole step is {percent(mfu.share or 0.0)}.",
            why="The steps do not wait for data. In the remaining time the passes do elementwise work, access memory, "
            "or wait for launches.",
            do="`strobe compare --levers=auto` measures what mixed precision, channels_last, torch.compile and other "
            "levers save. `strobe batch` finds the batch size from which a larger one is no faster.",
        )


def interruptions(result: TrainResult, _: Thresholds) -> Iterator[Finding]:
    """Checkpoints and evaluations that come too often for what they cost."""
    training = result.training
    flags = {
        "checkpoint": ("frequent-checkpoints", "--save_freq", MAX_CHECKPOINTS),
        "evaluation": ("frequent-evaluations", "--eval_steps", MAX_EVALUATIONS),
        "environment evaluation": ("frequent-evaluations", "--env_eval_freq", MAX_EVALUATIONS),
    }
    for stall in training.stalls if training.planned_hours > 0 else ():
        if stall.cause in flags and stall.planned_hours is not None:
            rule, flag, limit = flags[stall.cause]
            share = stall.planned_hours / training.planned_hours
            if share >= limit:
                yield warning(
                    rule=rule,
                    title=f"{units.capital(stall.cause)}s will take {percent(share)} of the training",
                    found=f"{ms(stall.each_ms)} each, {significant(stall.planned_hours)} h of "
                    f"{significant(training.planned_hours)} h for {training.planned_steps:,} steps.",
                    why="The training stands still during that time.",
                    do=f"Raise {flag}.",
                    gain=f"up to {percent(share)} of the training",
                    evidence={"gain_share": share},
                )


def host(result: TrainResult, _: Thresholds) -> Iterator[Finding]:
    step, share = _step(result), result.training.shares.get("host", 0.0)
    if step is None or share < MAX_HOST or result.training.straggler is not None:  # waiting for it is such work too
        return
    named = {c.name: c.share for c in step.components if c.depth <= 2 and c.name in HOST}
    if ranked := sorted(named.items(), key=lambda part: -part[1]):
        yield warning(
            rule="host-work",
            title=f"{ranked[0][0]} and other work outside the policy take {percent(share)} of the step",
            found=f"{', '.join(f'{name} {percent(of)}' for name, of in ranked)}.",
            why="The policy waits until its batch is ready, and the device waits too.",
            do="See the functions with --python_profile=cprofile: all that runs between two steps counts as logging."
            if ranked[0][0] == "logging"
            else "Smaller images reduce this work. With an accelerator the processors can run on it (--policy.device).",
            gain=f"at most {percent(share)} of the step",
            evidence={"gain_share": share},
        )


def ranks(result: TrainResult, _: Thresholds) -> Iterator[Finding]:
    """A rank that the others wait for, or a network that all wait for."""
    all_ranks = result.training.ranks
    step_ms = fmean(rank.step_ms for rank in all_ranks) if len(all_ranks) >= 2 else 0.0
    if step_ms <= 0:
        return
    slowest = max(all_ranks, key=lambda rank: rank.own_ms)
    if (found := result.training.straggler) is not None:
        slowest, late = found
        part, more = _slowest_part(slowest, [rank for rank in all_ranks if rank is not slowest])
        where = part if more >= late / 2 else "it"
        yield warning(
            rule="straggler",
            title=f"The other ranks wait for rank {slowest.rank}",
            found=f"Its own work takes {ms(slowest.own_ms)} per step, the work of the others "
            f"{ms(slowest.own_ms - late)}; of the parts {part} differs most, by {ms(more)}.",
            why="Gradients are averaged in every step, so all ranks wait for the slowest.",
            do=f"Find out why {where} is slower there: another device, fewer free cores, or slower storage.",
            gain=f"up to {percent(late / step_ms)} of the step",
            evidence={"rank": slowest.rank, "gain_share": late / step_ms, "part": part},
        )
    elif slowest.communication_ms >= MAX_COMMUNICATION * step_ms:
        share = slowest.communication_ms / step_ms
        yield warning(
            rule="communication",
            title=f"Averaging gradients takes {percent(share)} of the step",
            found=f"{ms(slowest.communication_ms)} of {ms(step_ms)} on the rank that waits least.",
            why="The backward pass overlaps a part of the network's time. This is the exposed part. Ranks that are "
            "late in turns look alike: traces of all ranks tell them apart (`strobe report`).",
            do="Use larger batches, gradient accumulation, or a faster connection between the devices.",
            gain=f"at most {percent(share)} of the step",
            evidence={"gain_share": share},
        )


def _slowest_part(slowest: Rank, others: list[Rank]) -> tuple[str, float]:
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
    losses = result.training.losses
    if None in losses:
        first, steps = losses.index(None) + 1, losses.count(None)
        yield warning(
            rule="loss-not-finite",
            title=f"The loss is infinite or not a number from step {first:,} on",
            found=f"{steps:,} of {len(losses):,} recorded steps have such a loss.",
            why="Its gradients make the weights infinite too, and nothing is learned from that step on. The times are "
            "valid.",
            do="Look for such numbers in the dataset: the notes name those in its tables. If there are none, lower "
            "the learning rate, or train in float32.",
            evidence={"gain_share": 1.0},  # before all else
        )


def unexplained_time(result: TrainResult, _: Thresholds) -> Iterator[Finding]:
    step = _step(result)
    share = sum(c.share for c in step.components if c.other and c.depth == 1) if step is not None else 0.0
    if step is not None and share > MAX_OTHER_SHARE:
        yield warning(
            rule="other-large",
            title=f"{percent(share)} of the training step belongs to no named part",
            found=f"{ms(share * step.samples.summary.mean)} of {ms(step.samples.summary.mean)} per step.",
            why="Advice on the named parts misses what happens between them.",
            do="See the functions with --python_profile=cprofile.",
        )


def few_steps(result: TrainResult, thresholds: Thresholds) -> Iterator[Finding]:
    step = _step(result)
    if step is not None and (samples := len(step.samples.values)) < thresholds.few_samples:
        yield warning(
            rule="few-samples",
            title=f"Only {samples} steps remain after the warm-up",
            found=f"{thresholds.few_samples} or more are needed.",
            why="With so few steps, one slow step changes every figure.",
            do="Train longer: --steps=100 after the --.",
        )


def _step(result: TrainResult) -> Measurement | None:
    return next((m for m in result.measurements if m.phase == "training step"), None)


def training_memory_churn(result: TrainResult, _: Thresholds) -> Iterator[Finding]:
    """A training that spends its time on memory allocation in the kernel."""
    share = result.training.kernel_share
    if result.training.bound == "memory" and share is not None:
        seen = f"{percent(share)} of the steps, averaged over {result.machine.threads} threads."
        judged = "Measure it first: `strobe compare --phase='training step' --variant memory=kept`."
        do = f"On Linux, put {IN_ENVIRONMENT} before lerobot-train or strobe train. {judged}"
        yield from churn("training", share, seen, do, f"about {percent(share)} of the step")


RULES = (
    losses,
    data,
    epochs,
    optimizer,
    utilisation,
    interruptions,
    host,
    ranks,
    unexplained_time,
    few_steps,
    training_memory_churn,
)
