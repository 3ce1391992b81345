"""Rules on the levers of training: the gain of each, whether it still trains the same, and its flag in LeRobot."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import compared_measurements, gib, ms, percent, whole_ms
from strobe.core.results import units
from strobe.core.results.answer import CompareResult
from strobe.core.results.comparison import Comparison, GradientAgreement
from strobe.core.results.finding import Finding, good, info, warning
from strobe.core.results.measurement import Measurement
from strobe.core.results.numerals import significant
from strobe.core.treatments.words import BATCH_NORM, FOR_MEMORY, LEVERS

MIN_GRADIENT_COSINE = 0.99  # least cosine to the baseline's gradient: under it something else is trained
MAX_UNDERFLOW = 0.01  # share of the gradient that float16 may lose without a loss scaler
MIN_MEMORY_SAVED = 0.05  # share of the peak: less is not worth the time that micro-batches take

# How lerobot-train 0.6.1 has it, where that does not depend on the policy.
ALWAYS = "lerobot-train always has it on"
NO_FLAG = "lerobot-train has no flag for it"


def pays(result: CompareResult, _: Thresholds) -> Iterator[Finding]:
    for comparison, before, after in _lever_comparisons(result):
        if comparison.verdict.kind == "faster" and not _has_turned_gradient(comparison.gradient):
            levers, interval, saved = _levers(after), comparison.verdict.interval, 1 - comparison.verdict.ratio
            yield good(
                rule=f"lever-{'-'.join(levers)}-pays",
                title=f"{units.quote(comparison.candidate)} makes the training step {percent(saved)} shorter",
                found=f"{ms(whole_ms(after))} instead of {ms(whole_ms(before))}: {percent(1 - interval.high)} to "
                f"{percent(1 - interval.low)} less ({percent(interval.level)} CI, {comparison.verdict.pairs} pairs). "
                f"{_same(comparison.gradient)}",
                why="Training takes as many steps as before. Each step is shorter, if the data loads fast enough.",
                do=f"In lerobot-train: {_lever_flags(levers, after)}.",
                gain=f"measured: {_rate(before)} became {_rate(after)}",
                evidence={"gain_share": saved},
            )


def ineffective_levers(result: CompareResult, _: Thresholds) -> Iterator[Finding]:
    flat, slow = [], []
    for comparison, _before, after in _lever_comparisons(result):
        if len(_levers(after)) != 1 or _levers(after)[0] in FOR_MEMORY:
            continue
        lever = f"{comparison.candidate} ({units.change_span(comparison.verdict.interval)})"
        if comparison.verdict.kind == "slower":
            slow.append(lever)
        elif comparison.verdict.kind not in ("faster", "inconclusive"):
            flat.append(lever)
    if count := len(flat) + len(slow):
        seen = [f"No clear difference: {', '.join(flat)}."] if flat else []
        seen += [f"Slower: {', '.join(slow)}."] if slow else []
        yield info(
            rule="levers-without-effect",
            title=f"{f'{count} levers save' if count > 1 else 'One lever saves'} no time in this training step",
            found=f"{' '.join(seen)} (Change of the step time, with its CI.)",
            why="A lever saves time only in the work that it speeds up. Here the time goes elsewhere, or this machine "
            "has no fast kernel for it.",
            do="Do not use them, or measure again on the machine and at the batch size of the training.",
        )


def direction(result: CompareResult, _: Thresholds) -> Iterator[Finding]:
    for comparison, _before, after in _lever_comparisons(result):
        same = comparison.gradient
        if same is not None and _has_turned_gradient(same):
            noise = ""
            if same.seed_cosine is not None:
                noise = f" Two seeds of {units.quote(comparison.baseline)} have a cosine of {same.seed_cosine:.4f}."
            norms = ""
            if (own := after.traits.treatment("accumulate")) is not None and BATCH_NORM in own.notes:
                norms = f" {own.notes[BATCH_NORM]} {BATCH_NORM} use the mean and variance of a micro-batch. GroupNorm"
                norms += " does not need them (Diffusion: --policy.use_group_norm=true)."
            yield warning(
                rule=f"lever-{'-'.join(_levers(after))}-turns-gradient",
                title=f"{units.quote(comparison.candidate)} changes the gradient: cosine {same.cosine:.4f} to "
                f"{units.quote(comparison.baseline)}",
                found=f"{_loss(same)}{noise}",
                why="The change is larger than rounding if the numbers fit the format, and larger than another noise "
                f"draw. Training may reach another result, or hardly learn.{norms}",
                do="Train a few thousand steps both ways, and compare the losses, before you rely on it.",
            )


def range_of_float16(result: CompareResult, _: Thresholds) -> Iterator[Finding]:
    for comparison, *_measurements in _lever_comparisons(result):
        same = comparison.gradient
        if same is None or same.underflow is None or same.overflow is None:
            continue
        if same.underflow >= MAX_UNDERFLOW or same.overflow:
            gone = [f"{percent(same.underflow)} of the gradient's numbers become 0"] if same.underflow else []
            are = "is" if same.overflow == 1 else "are"
            gone += [f"{same.overflow:,} {are} infinite or not a number"] if same.overflow else []
            yield Finding(
                rule="float16-needs-scaler",
                level="warning" if same.overflow else "info",
                title=f"{units.quote(comparison.candidate)} needs a loss scaler for float16",
                found=f"Without one, {' and '.join(gone)}.",
                why="float16 has no numbers below 6e-8 and none above 65504. A scaler lifts small gradients. It "
                "cannot help numbers that already overflow in the forward pass.",
                do="In lerobot-train accelerate scales the loss in float16. A training loop of your own needs "
                "torch.amp.GradScaler. bfloat16 needs no scaler.",
            )


def accumulation(result: CompareResult, _: Thresholds) -> Iterator[Finding]:
    """Memory that micro-batches and checkpoints save, and their cost in time."""
    for comparison, before, after in _lever_comparisons(result):
        held, now = _peak(before), _peak(after)
        pulled = _levers(after)
        alone = len(pulled) == 1 and pulled[0] in FOR_MEMORY
        if not alone or not held or not now or comparison.verdict.kind == "inconclusive":
            continue
        saved, time = 1 - now / held, comparison.verdict.ratio - 1
        kind = "accumulation" if pulled == ["accumulate"] else "checkpointing"
        why, worth = _FOR_MEMORY[kind]
        rule, does, do = f"{kind}-saves-nothing", "saves no memory here and takes", "Do not use it."
        if saved >= MIN_MEMORY_SAVED:
            flag = next((each.lerobot_flag for each in after.traits.treatments if each.key == pulled[0]), "")
            rule, does, do = f"{kind}-saves", f"takes {percent(saved)} less memory and", worth.format(flag=flag)
        more = f"{percent(abs(time))} {'more' if time >= 0 else 'less'}"
        yield info(
            rule=rule,
            title=f"{units.quote(comparison.candidate)} {does} {more} time",
            found=f"Peak {_gib(now)} instead of {_gib(held)}; {ms(whole_ms(after))} instead of {ms(whole_ms(before))} "
            "for the same effective batch.",
            why=why,
            do=do,
        )


_STAYS = "Weights, gradients and the optimizer's moments stay."
# Lever → why it saves what it saves, and what to do where it does.
_FOR_MEMORY = {
    "accumulation": (
        f"Only the activations shrink, to those of a micro-batch. {_STAYS} Small batches use the device less well.",
        f"{NO_FLAG[0].upper()}{NO_FLAG[1:]}. There, take a smaller --batch_size with a smaller learning rate. "
        "`strobe batch` finds the largest batch that fits without gradient accumulation.",
    ),
    "checkpointing": (
        f"Activations are computed once more in the backward pass, and not stored. {_STAYS} The gradient is the same.",
        "If a larger batch trains better, use {flag} in lerobot-train. With that flag "
        "`strobe batch` finds the largest one that fits.",
    ),
}


def _lever_comparisons(result: CompareResult) -> Iterator[tuple[Comparison, Measurement, Measurement]]:
    for comparison, before, after in compared_measurements(result):
        if after.phase != "training step":
            continue
        alike = before.traits.drop_treatments(*LEVERS) == after.traits.drop_treatments(*LEVERS)
        if _levers(after) and not _levers(before) and alike and comparison.verdict.ratio > 0:
            yield comparison, before, after


def _levers(measurement: Measurement) -> list[str]:
    return [key for key in LEVERS if measurement.traits.treatment(key) is not None]


def _has_turned_gradient(same: GradientAgreement | None) -> bool:
    if same is None:
        return False
    # What other noise does to the gradient anyway is no harm; a variant with noise of its own has it to spare.
    noise = (2 if same.own_noise else 1) * (1 - same.seed_cosine) if same.seed_cosine is not None else 0.0
    return same.cosine < min(MIN_GRADIENT_COSINE, 1 - noise)


def _lever_flags(names: list[str], measurement: Measurement) -> str:
    flags = {}
    for name in names:
        treatment = measurement.traits.treatment(name)
        flag = treatment.lerobot_flag if treatment is not None else ""
        always = name == "tf32" and treatment is not None and treatment.value is True
        flags[name] = flag or (ALWAYS if always else NO_FLAG)
    return flags[names[0]] if len(names) == 1 else "; ".join(f"{name}: {how}" for name, how in flags.items())


def _same(same: GradientAgreement | None) -> str:
    if same is None:
        return "Its gradient was not compared."
    return f"The gradient's cosine to the baseline's is {same.cosine:.5f}."


def _loss(same: GradientAgreement) -> str:
    if same.loss is None or same.baseline_loss is None or same.loss_error is None:
        return "The loss is infinite or not a number."
    losses = f"{significant(same.loss, 5)} instead of {significant(same.baseline_loss, 5)}"
    return f"The loss is {losses} ({percent(same.loss_error)} apart)."


def _rate(measurement: Measurement) -> str:
    batch = measurement.traits.batch_size
    many = batch if batch is not None and 0 < batch < 1e9 else 1
    return f"{significant(many * 1e3 / whole_ms(measurement))} samples/s"


def _peak(measurement: Measurement) -> int | None:
    memory = measurement.memory
    return memory.peak_device or memory.peak_activations


def _gib(value: int) -> str:
    return gib(value, 2) if value >= 2**30 / 10 else f"{value / 2**20:.1f} MiB"


RULES = (pays, ineffective_levers, direction, range_of_float16, accumulation)
