"""Rules on what a training trained on: statistics, episodes, an adapter, accumulation, the workers' start-up."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import percent
from strobe.core.results import units
from strobe.core.results.finding import Finding, warning
from strobe.train.results import TrainResult

FAR = 0.1  # a statistic that lies farther off is of other data; in the data's own spread
SHOWN = 6  # episodes, or modules, that are named
MOST_IN_FULL = 0.5  # share of the FLOP of the products that may run in float32 where half the width was asked for
MOST_IDLE = 0.01  # share of the trained weights
AS_IF_UNTRAINED = "The training begins at the base policy, as if the adapter had never been trained."


def statistics(result: TrainResult, _: Thresholds) -> Iterator[Finding]:
    found = result.training.trained_on
    if found is not None and found.resumed is not None:
        far = {name: off for name, off in found.statistics_off.items() if off >= FAR}
        if far:
            named = [f"those of {name} by {off:.2g}" for name, off in far.items()]
            yield warning(
                rule="statistics-of-other-data",
                title="The resumed training normalises its data with the statistics of other data",
                found=f"{', '.join(named)} lie off the data's statistics, in the data's own spread.",
                why="On --resume LeRobot takes the statistics from the checkpoint, whatever the dataset is. The "
                "policy sees numbers of another range.",
                do="If the new data is meant, start from the weights: --policy.path=CHECKPOINT/pretrained_model "
                "without --resume takes the statistics of the data. Else resume on the dataset of the checkpoint.",
            )


def unrequested_episodes(result: TrainResult, _: Thresholds) -> Iterator[Finding]:
    found = result.training.trained_on
    if found is not None and found.not_asked and found.episodes_asked is not None:
        why, do = "Held-out episodes are trained on.", "Look for the code that changes the episodes of the dataset."
        if found.streaming:
            why = f"A streamed dataset of LeRobot 0.6.1 does not read --dataset.episodes. {why}"
            do = "Train without --dataset.streaming: files are read by episodes."
        count = len(found.not_asked)
        yield warning(
            rule="episodes-not-asked",
            title="The training reads episodes that --dataset.episodes excludes",
            found=f"{found.episodes_asked:,} of {found.episodes_there:,} episodes were asked for; {count:,} others "
            f"came: {units.join_names(list(map(str, found.not_asked)), SHOWN)}.",
            why=why,
            do=do,
        )


def missing(result: TrainResult, _: Thresholds) -> Iterator[Finding]:
    found = result.training.trained_on
    if found is not None and found.never_came:
        count = len(found.never_came)
        yield warning(
            rule="episodes-missing",
            title=f"{count:,} episode{units.plural(count)} never came from the stream",
            found="An epoch ended, and no sample was of episode "
            f"{units.join_names(list(map(str, found.never_came)), SHOWN)}.",
            why="The policy learns nothing from them.",
            do="Check that their files in data/ exist.",
        )


def adapter(result: TrainResult, _: Thresholds) -> Iterator[Finding]:
    """An adapter of the checkpoint that changes nothing."""
    found = result.training.trained_on
    its = found.adapter if found is not None else None
    if its is None or not its.loaded:
        return
    if not its.applied:
        yield warning(
            rule="adapter-not-applied",
            title=f"The checkpoint's {its.method} adapter is not applied",
            found="The checkpoint has adapter_config.json, and the policy has no adapter.",
            why=AS_IF_UNTRAINED,
            do="Set use_peft to true in the checkpoint's config.json, so that LeRobot loads the adapter.",
        )
    elif its.layers and its.idle == its.layers:
        yield warning(
            rule="adapter-idle",
            title=f"The checkpoint's {its.method} adapter does nothing",
            found=f"With the adapter the weights of all {its.layers:,} layers are bit-identical to the base's.",
            why=AS_IF_UNTRAINED,
            do="Compare the names in adapter_model.safetensors to those of the policy. PEFT skips the ones that "
            "differ.",
        )


def idle_transforms(result: TrainResult, _: Thresholds) -> Iterator[Finding]:
    found = result.training.trained_on
    if found is not None and found.transforms_idle:
        names = units.join_names(found.transforms_idle)
        yield warning(
            rule="transforms-idle",
            title=f"Image transforms change nothing: {names}",
            found=f"Applied many times to an image of the data set, which is read as uint8, {names} returned it "
            "unchanged. The same image in floating point was changed.",
            why="The policy never sees what these were to show it, and the loss does not tell.",
            do="Use a LeRobot from 0.7 on, or transforms of torchvision, such as ColorJitter.",
        )


def precision(result: TrainResult, _: Thresholds) -> Iterator[Finding]:
    """Mixed precision that was asked for, and that the products of a step did not run in."""
    found, mfu = result.training.trained_on, result.training.mfu
    if found is None or mfu is None or found.precision is None or not (whole := sum(mfu.gflop.values())):
        return
    asked = found.precision if found.precision != "no" else "policy.use_amp=true" if found.amp_asked else None
    full = mfu.gflop.get("float32", 0.0) / whole
    if asked is not None and full > MOST_IN_FULL:
        yield warning(
            rule="precision-not-used",
            title=f"{asked} was asked for, and {percent(full)} of the products run in float32",
            found=f"By FLOP, in a forward and a backward pass that were counted. accelerate's mixed precision is "
            f"'{found.precision}'.",
            why="LeRobot takes the precision of a policy that has the setting dtype from it, and ignores use_amp. "
            "Or the policy turns autocast off within.",
            do="Set --policy.dtype=bfloat16 if the policy has it. Else look where the policy casts its inputs to "
            "float32.",
        )


def gradients(result: TrainResult, _: Thresholds) -> Iterator[Finding]:
    found = result.training.trained_on.gradients if result.training.trained_on is not None else None
    if found is not None and found.without:
        share = found.without / found.trained
        yield Finding(
            rule="no-gradient",
            level="warning" if share >= MOST_IDLE else "info",
            title=f"{percent(share)} of the trained weights got no gradient",
            found=f"After a backward pass, tensors of {found.without:,} of {found.trained:,} trained weights had no "
            f"gradient, or one of zeros alone: {units.join_names(found.modules, SHOWN)}.",
            why="The optimizer holds them and does not change them, but for weight decay. A step was looked at: a part "
            "that is used in some steps alone looks alike.",
            do="If they should learn, look for a detach, a no_grad or an unused output on the way to the loss. Else "
            "freeze them (requires_grad=False): the optimizer's memory for them is free then.",
        )


def accumulation(result: TrainResult, _: Thresholds) -> Iterator[Finding]:
    found = result.training.trained_on
    if found is not None and found.accumulation > 1:
        yield warning(
            rule="accumulation-ignored",
            title=f"Gradients are divided by {found.accumulation:,} and not accumulated",
            found=f"accelerate was given {found.accumulation:,} accumulation steps, and lerobot-train takes an "
            "optimizer step after each batch.",
            why=f"A step has {found.samples_per_step:,} samples, and the clipping limit is {found.accumulation:,} "
            "times as wide for the gradient.",
            do="Launch without --gradient_accumulation_steps, and raise --batch_size.",
        )


RULES = (statistics, unrequested_episodes, missing, adapter, idle_transforms, precision, gradients, accumulation)
