"""Rules on the levers of training: the gain of each, whether it still trains the same, and its flag in LeRobot."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.findings.texts import Found, finding
from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import compared_measurements, gib, percent, whole_ms
from strobe.core.results import units
from strobe.core.results.answer import CompareResult
from strobe.core.results.comparison import Comparison, GradientAgreement
from strobe.core.results.measurement import Measurement
from strobe.core.results.numerals import significant

MIN_GRADIENT_COSINE = 0.99  # least cosine to the baseline's gradient: under it something else is trained
MAX_UNDERFLOW = 0.01  # share of the gradient that float16 may lose without a loss scaler
MIN_MEMORY_SAVED = 0.05  # share of the peak: less is not worth the time that micro-batches take

# Keys of the treatments that are levers of a training step.
LEVERS = (
    "amp", "tf32", "cudnn", "compile", "channels_last", "fused", "foreach", "forloop", "accumulate", "checkpointing",
)  # fmt: skip
# How lerobot-train 0.6.1 has it, where that does not depend on the policy.
ALWAYS = "lerobot-train always has it on"
NO_FLAG = "lerobot-train has no flag for it"
FOR_MEMORY = ("accumulate", "checkpointing")  # levers that save memory, not time


@finding("lever-{names}-pays", "good")
def pays(result: CompareResult, _: Thresholds) -> Found:
    """{comparison.candidate:name} makes the training step {gain_share:percent} shorter.

    Found: {now:ms} instead of {then:ms}: {least:percent} to {most:percent} less ({interval.level:percent} CI,
        {comparison.verdict.pairs} pairs). {same}
    Why: Training takes as many steps as before. Each step is shorter, if the data loads fast enough.
    Do: In lerobot-train: {flags}.
    Gain: measured: {slow} became {fast}
    """
    for comparison, before, after in _lever_comparisons(result):
        if comparison.verdict.kind == "faster" and not _has_turned_gradient(comparison.gradient):
            names, flags = "-".join(_levers(after)), _lever_flags(_levers(after), after)
            now, then, slow, fast = whole_ms(after), whole_ms(before), _rate(before), _rate(after)
            interval, same = comparison.verdict.interval, _same(comparison.gradient)
            least, most = 1 - interval.high, 1 - interval.low
            yield {"ratio": comparison.verdict.ratio, "gain_share": 1 - comparison.verdict.ratio}, locals()


@finding("levers-without-effect", "info")
def ineffective_levers(result: CompareResult, _: Thresholds) -> Found:
    """{count} no time in this training step.

    Found: {seen} (Change of the step time, with its CI.)
    Why: A lever saves time only in the work that it speeds up. Here the time goes elsewhere, or this machine has no
        fast kernel for it.
    Do: Do not use them, or measure again on the machine and at the batch size of the training.
    """
    flat, slow = [], []
    for comparison, _before, after in _lever_comparisons(result):
        if len(_levers(after)) != 1 or _levers(after)[0] in FOR_MEMORY:
            continue
        lever = f"{comparison.candidate} ({units.change_span(comparison.verdict.interval)})"
        if comparison.verdict.kind == "slower":
            slow.append(lever)
        elif comparison.verdict.kind not in ("faster", "inconclusive"):
            flat.append(lever)
    if flat or slow:
        seen = [f"No clear difference: {', '.join(flat)}."] if flat else []
        seen += [f"Slower: {', '.join(slow)}."] if slow else []
        words = {"count": _count_levers(len(flat) + len(slow)), "seen": " ".join(seen)}
        yield {"without_effect": float(len(flat)), "slower": float(len(slow))}, words


@finding("lever-{names}-turns-gradient", "warning")
def direction(result: CompareResult, _: Thresholds) -> Found:
    """{comparison.candidate:name} changes the gradient: cosine {cosine:.4f} to {comparison.baseline:name}.

    Found: {loss}{noise}
    Why: The change is larger than rounding if the numbers fit the format, and larger than another noise draw. Training
        may reach another result, or hardly learn.
    Do: Train a few thousand steps both ways, and compare the losses, before you rely on it.
    """
    for comparison, _before, after in _lever_comparisons(result):
        same = comparison.gradient
        if same is not None and _has_turned_gradient(same):
            names, loss, noise = "-".join(_levers(after)), _loss(same), ""
            if same.seed_cosine is not None:
                noise = f" Two seeds of {units.quote(comparison.baseline)} have a cosine of {same.seed_cosine:.4f}."
            yield {"cosine": same.cosine, "loss_error": same.loss_error}, locals()


@finding("float16-needs-scaler", "{level}")
def range_of_float16(result: CompareResult, _: Thresholds) -> Found:
    """{candidate:name} needs a loss scaler for float16.

    Found: Without one, {lost}.
    Why: float16 has no numbers below 6e-8 and none above 65504. A scaler lifts small gradients. It cannot help numbers
        that already overflow in the forward pass.
    Do: In lerobot-train accelerate scales the loss in float16. A training loop of your own needs torch.amp.GradScaler.
        bfloat16 needs no scaler.
    """
    for comparison, *_measurements in _lever_comparisons(result):
        same, candidate = comparison.gradient, comparison.candidate
        if same is None or same.underflow is None or same.overflow is None:
            continue
        if same.underflow >= MAX_UNDERFLOW or same.overflow:
            level = "warning" if same.overflow else "info"
            gone = [f"{percent(same.underflow)} of the gradient's numbers become 0"] if same.underflow else []
            gone += [f"{same.overflow:,} are infinite or not a number"] if same.overflow else []
            lost = " and ".join(gone)
            yield {"underflow": same.underflow, "overflow": float(same.overflow)}, locals()


@finding(
    "{rule}",
    "info",
    ("accumulation-saves", "accumulation-saves-nothing", "checkpointing-saves", "checkpointing-saves-nothing"),
)
def accumulation(result: CompareResult, _: Thresholds) -> Found:
    """Memory that micro-batches and checkpoints save, and their cost in time.

    Title: {comparison.candidate:name} {does} {more} time
    Found: Peak {peak} instead of {peak_before}; {now:ms} instead of {then:ms} for the same effective batch.
    Why: {why}
    Do: {do}
    """
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
        words = {"peak": _gib(now), "peak_before": _gib(held), "now": whole_ms(after), "then": whole_ms(before)}
        yield {"saved": saved, "time": time}, {**locals(), **words}


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


def _count_levers(count: int) -> str:
    return "One lever saves" if count == 1 else f"{count} levers save"


RULES = (pays, ineffective_levers, direction, range_of_float16, accumulation)
