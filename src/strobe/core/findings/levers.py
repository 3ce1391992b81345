"""Rules on the levers of training: what each bought, whether it still trains the same, and its flag in LeRobot."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import compared, gib, ms, percent, whole_ms
from strobe.core.results import units
from strobe.core.results.answer import CompareResult
from strobe.core.results.comparison import Comparison, GradientAgreement
from strobe.core.results.finding import Finding
from strobe.core.results.measurement import Measurement
from strobe.core.results.numerals import significant

MIN_GRADIENT_COSINE = 0.99  # least cosine to the baseline's gradient: under it something else is trained
MAX_UNDERFLOW = 0.01  # share of the gradient that float16 may lose without a loss scaler
MIN_MEMORY_SAVED = 0.05  # share of the peak: less is not worth the time that micro-batches take

# Keys of the treatments that are levers of a training step.
LEVERS = ("amp", "tf32", "compile", "channels_last", "fused", "foreach", "forloop", "accumulate")
# How lerobot-train 0.6.1 has it, where that does not depend on the policy.
ALWAYS = "lerobot-train always has it on"
NO_FLAG = "lerobot-train has no flag for it"


def pays(result: CompareResult, _: Thresholds) -> Iterator[Finding]:
    """Levers that make the step faster and leave the gradient what it is."""
    for comparison, before, after in _pulled(result):
        if comparison.verdict.kind != "faster" or _turned(comparison.gradient):
            continue
        names = _levers(after)
        interval = comparison.verdict.interval
        yield Finding(
            rule=f"lever-{'-'.join(names)}-pays",
            level="good",
            title=f"{comparison.candidate} makes the training step {percent(1 - comparison.verdict.ratio)} shorter",
            seen=f"{ms(whole_ms(after))} against {ms(whole_ms(before))}: {percent(1 - interval.high)} to "
            f"{percent(1 - interval.low)} at {percent(interval.level)}, {comparison.verdict.pairs} pairs. "
            f"{_same(comparison.gradient)}",
            why="Training takes as many steps as before, and each step is shorter, if the data comes fast enough.",
            do=f"In lerobot-train: {_spelt(names, after)}.",
            gain=f"measured: {_rate(before)} became {_rate(after)}",
            evidence={"ratio": comparison.verdict.ratio, "gain_share": 1 - comparison.verdict.ratio},
        )


def without_effect(result: CompareResult, _: Thresholds) -> Iterator[Finding]:
    """Single levers that make no difference to the time, or a bad one, together in one finding."""
    flat, slow = [], []
    for comparison, _before, after in _pulled(result):
        if len(_levers(after)) != 1 or _levers(after) == ["accumulate"]:
            continue
        lever = f"{comparison.candidate} ({units.change_span(comparison.verdict.interval)})"
        if comparison.verdict.kind == "no difference shown":
            flat.append(lever)
        elif comparison.verdict.kind == "slower":
            slow.append(lever)
    if not flat and not slow:
        return
    seen = [f"No difference shown: {', '.join(flat)}." if flat else "", f"Slower: {', '.join(slow)}." if slow else ""]
    yield Finding(
        rule="levers-without-effect",
        level="info",
        title=f"{_counted(len(flat) + len(slow))} no time in this training step",
        seen=" ".join(filter(None, seen)) + " (Change of the step's time.)",
        why="A lever saves time only where the time goes. Here it goes elsewhere, or this machine has no fast way "
        "for the lever.",
        do="Do not use them, or measure again on the machine and at the batch size of the training.",
        evidence={"without_effect": float(len(flat)), "slower": float(len(slow))},
    )


def direction(result: CompareResult, _: Thresholds) -> Iterator[Finding]:
    """A lever whose gradient points elsewhere than rounding, or other noise, can explain."""
    for comparison, _before, after in _pulled(result):
        same = comparison.gradient
        if same is None or not _turned(same):
            continue
        noise = ""
        if same.seed_cosine is not None:
            noise = f" Two seeds of {comparison.baseline} have a cosine of {same.seed_cosine:.4f}."
        yield Finding(
            rule=f"lever-{'-'.join(_levers(after))}-turns-gradient",
            level="warning",
            title=f"{comparison.candidate} changes the gradient: cosine {same.cosine:.4f} to {comparison.baseline}",
            seen=f"{_loss(same)}{noise}",
            why="That is more than rounding causes if the numbers fit the format, and more than other noise causes. "
            "The training goes to another result, or hardly learns.",
            do="Train a few thousand steps both ways, and compare the losses, before you rely on it.",
            evidence={"cosine": same.cosine, "loss_error": same.loss_error},
        )


def range_of_float16(result: CompareResult, _: Thresholds) -> Iterator[Finding]:
    """Numbers that float16 would lose without a loss scaler."""
    for comparison, *_measurements in _pulled(result):
        same = comparison.gradient
        if same is None or same.underflow is None or same.overflow is None:
            continue
        if same.underflow < MAX_UNDERFLOW and not same.overflow:
            continue
        lost = f"{percent(same.underflow)} of the gradient's numbers become 0" if same.underflow else ""
        broken = f"{same.overflow:,} are infinite or not a number" if same.overflow else ""
        yield Finding(
            rule="float16-needs-scaler",
            level="info" if not same.overflow else "warning",
            title=f"{comparison.candidate}: float16 needs its loss scaler here",
            seen=f"Without one, {' and '.join(filter(None, [lost, broken]))}.",
            why="float16 has no numbers below 6e-8 and none above 65504. A scaler lifts small gradients. It cannot "
            "help numbers that already overflow in the forward pass.",
            do="In lerobot-train accelerate scales the loss in float16. A training loop of your own needs "
            "torch.amp.GradScaler. bfloat16 needs no scaler.",
            evidence={"underflow": same.underflow, "overflow": float(same.overflow)},
        )


def accumulation(result: CompareResult, _: Thresholds) -> Iterator[Finding]:
    """Memory that micro-batches save, and their price in time."""
    for comparison, before, after in _pulled(result):
        if _levers(after) != ["accumulate"]:
            continue
        held, now = _peak(before), _peak(after)
        if not held or not now or comparison.verdict.kind == "too noisy":
            continue
        saved, more = 1 - now / held, comparison.verdict.ratio - 1
        saves = saved >= MIN_MEMORY_SAVED
        time = f"{percent(abs(more))} {'more' if more >= 0 else 'less'} time"
        yield Finding(
            rule="accumulation-saves" if saves else "accumulation-saves-nothing",
            level="info",
            title=f"{comparison.candidate} takes {percent(saved)} less memory and {time}"
            if saves
            else f"{comparison.candidate} saves no memory here, and takes {time}",
            seen=f"Peak {_gib(now)} against {_gib(held)}; {ms(whole_ms(after))} against {ms(whole_ms(before))} for the "
            "same effective batch.",
            why="Only the activations shrink, to those of a micro-batch. Weights, gradients and the optimizer's "
            "moments stay. Small batches use the device less well.",
            do=f"{NO_FLAG[0].upper()}{NO_FLAG[1:]}. There, take a smaller --batch_size with a smaller learning rate. "
            "`strobe batch` finds the largest batch that fits without gradient accumulation."
            if saves
            else "Do not use it.",
            evidence={"saved": saved, "time": more},
        )


def _pulled(result: CompareResult) -> Iterator[tuple[Comparison, Measurement, Measurement]]:
    """Comparisons in a training step with the variant that has no lever pulled."""
    for comparison, before, after in compared(result):
        if after.phase != "training step":
            continue
        alike = before.traits.without(*LEVERS) == after.traits.without(*LEVERS)
        if _levers(after) and not _levers(before) and alike and comparison.verdict.ratio > 0:
            yield comparison, before, after


def _levers(measurement: Measurement) -> list[str]:
    return [key for key in LEVERS if measurement.traits.treatment(key) is not None]


def _turned(same: GradientAgreement | None) -> bool:
    if same is None:
        return False
    limit = MIN_GRADIENT_COSINE
    if same.seed_cosine is not None:
        # What other noise does to the gradient anyway is no harm; a variant with noise of its own has it to spare.
        limit = min(limit, 1 - (2 if same.own_noise else 1) * (1 - same.seed_cosine))
    return same.cosine < limit


def _spelt(names: list[str], measurement: Measurement) -> str:
    flags = {}
    for name in names:
        treatment = measurement.traits.treatment(name)
        flag = treatment.lerobot_flag if treatment is not None else ""
        flags[name] = flag or (ALWAYS if name == "tf32" else NO_FLAG)
    return flags[names[0]] if len(names) == 1 else "; ".join(f"{name}: {how}" for name, how in flags.items())


def _same(same: GradientAgreement | None) -> str:
    if same is None:
        return "Its gradient was not compared."
    return f"The gradient's cosine to the baseline's is {same.cosine:.5f}."


def _loss(same: GradientAgreement) -> str:
    if same.loss is None or same.baseline_loss is None or same.loss_error is None:
        return "The loss is infinite or not a number."
    losses = f"{significant(same.loss, 5)} against {significant(same.baseline_loss, 5)}"
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


def _counted(count: int) -> str:
    return "One lever saves" if count == 1 else f"{count} levers save"


RULES = (pays, without_effect, direction, range_of_float16, accumulation)
