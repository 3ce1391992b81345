"""Rules on what a training trained on: statistics, episodes, an adapter, accumulation, the workers' start-up."""

from __future__ import annotations

from strobe.core.findings.texts import Found, finding
from strobe.core.findings.thresholds import Thresholds
from strobe.train.results import TrainResult

FAR = 0.1  # a statistic that lies farther off is of other data; in the data's own spread
MAX_STARTUP = 0.2  # share of the recorded steps
SHOWN = 6  # episodes that are named


@finding("statistics-of-other-data", "warning")
def statistics(result: TrainResult, _: Thresholds) -> Found:
    """The resumed training normalises its data with the statistics of other data.

    Found: {named:list} lie off the data's statistics, in the data's own spread.
    Why: On --resume LeRobot takes the statistics from the checkpoint, whatever the dataset is. The policy sees numbers
        of another range.
    Do: If the new data is meant, start from the weights: --policy.path=CHECKPOINT/pretrained_model without --resume
        takes the statistics of the data. Else resume on the dataset of the checkpoint.
    """
    found = result.training.trained_on
    if found is not None and found.resumed is not None:
        far = {name: off for name, off in found.statistics_off.items() if off >= FAR}
        if far:
            named = [f"those of {name} by {off:.2g}" for name, off in far.items()]
            yield {"farthest": max(far.values()), "features": len(far)}, {"named": named}


@finding("episodes-not-asked", "warning")
def unrequested_episodes(result: TrainResult, _: Thresholds) -> Found:
    """The training reads episodes that --dataset.episodes excludes.

    Found: {asked:,} of {there:,} episodes were asked for; {count:,} others came: {named:list}.
    Why: {why}
    Do: {do}
    """
    found = result.training.trained_on
    if found is not None and found.not_asked and found.episodes_asked is not None:
        why, do = "Held-out episodes are trained on.", "Look for the code that changes the episodes of the dataset."
        if found.streaming:
            why = f"A streamed dataset of LeRobot 0.6.1 does not read --dataset.episodes. {why}"
            do = "Train without --dataset.streaming: files are read by episodes."
        words = {"asked": found.episodes_asked, "there": found.episodes_there, "named": _list_episodes(found.not_asked)}
        yield {"count": len(found.not_asked)}, {**words, "why": why, "do": do}


@finding("episodes-missing", "warning")
def missing(result: TrainResult, _: Thresholds) -> Found:
    """{count:,} episode{count:plural} never came from the stream.

    Found: An epoch ended, and no sample was of episode {named:list}.
    Why: The policy learns nothing from them.
    Do: Check that their files in data/ exist.
    """
    found = result.training.trained_on
    if found is not None and found.never_came:
        yield {"count": len(found.never_came)}, {"named": _list_episodes(found.never_came)}


@finding("{rule}", "warning", ("adapter-idle", "adapter-not-applied"))
def adapter(result: TrainResult, _: Thresholds) -> Found:
    """An adapter of the checkpoint that changes nothing.

    Title: The checkpoint's {method} adapter {what}
    Found: {seen}.
    Why: The training begins at the base policy, as if the adapter had never been trained.
    Do: {do}
    """
    found = result.training.trained_on
    its = found.adapter if found is not None else None
    if its is None or not its.loaded:
        return
    if not its.applied:
        do = "Set use_peft to true in the checkpoint's config.json, so that LeRobot loads the adapter."
        seen = "The checkpoint has adapter_config.json, and the policy has no adapter"
        yield {"rule": "adapter-not-applied"}, {"method": its.method, "what": "is not applied", "seen": seen, "do": do}
    elif its.layers and its.idle == its.layers:
        do = "Compare the names in adapter_model.safetensors to those of the policy. PEFT skips the ones that differ."
        seen = f"With the adapter the weights of all {its.layers:,} layers are bit-identical to the base's"
        yield {"rule": "adapter-idle", "layers": its.layers}, {
            "method": its.method, "what": "does nothing", "seen": seen, "do": do,
        }  # fmt: skip


@finding("accumulation-ignored", "warning")
def accumulation(result: TrainResult, _: Thresholds) -> Found:
    """Gradients are divided by {batches:,} and not accumulated.

    Found: accelerate was given {batches:,} accumulation steps, and lerobot-train takes an optimizer step after each
        batch.
    Why: A step has {samples:,} samples, and the clipping limit is {batches:,} times as wide for the gradient.
    Do: Launch without --gradient_accumulation_steps, and raise --batch_size.
    """
    found = result.training.trained_on
    if found is not None and found.accumulation > 1:
        yield {"batches": found.accumulation}, {"samples": found.samples_per_step}


@finding("slow-start", "info")
def startup(result: TrainResult, _: Thresholds) -> Found:
    """Worker start-up is {share:percent} of this short run.

    Found: {startup:ms} passed before a worker began to load.
    Why: It comes once. The rate above leaves the warm-up out; a rate over the whole run would be too low.
    Do: Ignore it, or record longer: --steps=100 after the --.
    """
    found = result.training.trained_on
    step = next((m for m in result.measurements if m.phase == "training step"), None)
    if found is None or found.startup_ms is None or step is None:
        return
    share = found.startup_ms / max(sum(step.samples.warmup) + sum(step.samples.values), 1e-9)
    if share >= MAX_STARTUP:
        yield {"share": share}, {"startup": found.startup_ms}


def _list_episodes(episodes: list[int]) -> list[str]:
    named = [str(episode) for episode in episodes[:SHOWN]]
    return named + ([f"{len(episodes) - SHOWN:,} more"] if len(episodes) > SHOWN else [])


RULES = (statistics, unrequested_episodes, missing, adapter, accumulation, startup)
