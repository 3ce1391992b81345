"""Rules on a search for a data loader: does the step wait for data, why, and which loader would feed it?"""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.results.finding import Finding, good, info, warning
from strobe.dataloader.results import Dataloader, LoaderRow, Rate, Recommendation, StepNeed

MIN_ENCODING_GAIN = 1.2  # × the samples per second of the original dataset: with less, encoding it again hardly pays


def _users_case(answer: Dataloader) -> tuple[Recommendation | None, StepNeed | None, LoaderRow | None]:
    recommended = next(iter(answer.recommendations), None)
    sizes = {need.batch_size: need for need in reversed(answer.needs)}
    need = sizes.get(recommended.batch_size) if recommended is not None else None
    return recommended, need, next((row for row in answer.rows if row.own), None)


def failing_own_loader(answer: Dataloader, _: Thresholds) -> Iterator[Finding]:
    own = _users_case(answer)[2]
    if own is not None and own.status in ("refused", "failed"):
        yield warning(
            rule="own-loader-fails",
            title="A loader with your flags does not run here",
            found=f"{own.settings.num_workers} workers, prefetch {own.settings.prefetch_factor}: {own.reason}.",
            why="lerobot-train would start, and end when a worker dies, perhaps after hours.",
            do="Train with the flags that this report recommends, or add what this machine lacks.",
        )


def starving_loader(answer: Dataloader, _: Thresholds) -> Iterator[Finding]:
    recommended, need, row = _users_case(answer)
    if recommended is None or need is None or recommended.own is None:
        return
    own, needed = recommended.own, need.samples_per_s
    serial = row is not None and row.settings.num_workers == 0
    if not serial and (own.interval is None or own.interval.high >= needed):
        return
    level, gain, do = "info", "", "No other setting that was measured is faster."
    now, then = recommended.step_ms_now, recommended.step_ms_then
    if now and then and then < now:
        level, do = "warning", f"Train with {' '.join(recommended.flags)}."
        hours = (now - then) * recommended.steps / 3.6e6
        gain = f"at most {now - then:,.0f} of {now:,.0f} ms per step, {hours:.2g} h of {recommended.steps:,} steps, "
        gain += "computed from the rates of loader and step, measured separately."
    how = "Without workers, loading and the step take turns" if serial else "The loader is slower than the step"
    yield Finding(
        rule="loader-slower-than-step",
        level=level,
        title=f"{how}: {own.samples_per_s:,.1f} samples/s against {needed:,.1f}",
        found=f"Your loader delivers {_span(own)}; the step needs {needed:,.1f} samples/s.",
        why="The device waits for every batch that is not ready.",
        do=do,
        gain=gain,
    )


def sufficient_loader(answer: Dataloader, _: Thresholds) -> Iterator[Finding]:
    recommended, need, row = _users_case(answer)
    if recommended is None or need is None or row is None or row.settings.num_workers == 0:
        return
    own = recommended.own
    if own is not None and own.interval is not None and own.interval.low >= need.samples_per_s:
        yield good(
            rule="loader-feeds-step",
            title=f"Your loader feeds the step: {own.samples_per_s:,.1f} samples/s against {need.samples_per_s:,.1f}",
            found=f"It delivers {_span(own)}.",
            why="The step is slower than the loader, so data does not limit the training.",
            do="Keep your loader. See where the step spends its time: strobe breakdown --phases='[training step]'.",
        )


def insufficient_loaders(answer: Dataloader, _: Thresholds) -> Iterator[Finding]:
    recommended, need = _users_case(answer)[:2]
    if recommended is None or need is None:
        return
    chosen, needed = recommended.chosen, need.samples_per_s
    if chosen.interval is None or chosen.interval.high >= needed:
        return
    tried = "what --encodings shows" if not answer.encodings else "the encodings in the table"
    which, do = "here", f"More cores for the workers, smaller or fewer images, or another encoding: {tried}."
    if (still := _grows_at_the_edge(answer)) is not None:
        which, do = (
            "that was tried",
            f"Try more workers: --workers={still},{2 * still},{4 * still}. With {still}, the most ",
        )
        do += "that was tried, the rate still grew."
    idle = 1 - chosen.samples_per_s / needed
    yield warning(
        rule="no-loader-feeds-step",
        title=f"No loader {which} feeds the step: the best delivers {chosen.samples_per_s:,.1f} samples/s of "
        f"{needed:,.1f}",
        found=f"{_span(chosen)} with {' '.join(recommended.flags)}, on {answer.machine.cores} cores.",
        why=f"Even with the best setting the device waits for {100 * idle:.0f} % of the time.",
        do=do,
    )


def _grows_at_the_edge(answer: Dataloader) -> int | None:
    """Return the most workers that were tried, where they are the best and shown to beat fewer; else None."""
    measured = [(row, row.rate.interval) for row in answer.rows if row.rate and row.rate.interval]
    most = max((row.settings.num_workers for row, _ in measured), default=0)
    best = next(((row.settings, ends) for row, ends in measured if row.chosen), None)
    if best is None or best[0].num_workers < most:
        return None
    settings, ends = best
    fewer = [
        (row.settings.num_workers, below)
        for row, below in measured
        if row.settings.num_workers < most and row.settings.model_copy(update={"num_workers": most}) == settings
    ]
    return most if fewer and max(fewer, key=lambda each: each[0])[1].high < ends.low else None


def more_workers(answer: Dataloader, _: Thresholds) -> Iterator[Finding]:
    rated = [
        (row.settings, row.rate, row.rate.interval)
        for row in answer.rows
        if row.rate is not None and row.rate.interval is not None
    ]
    losses = [
        (1 - many_rate.samples_per_s / few_rate.samples_per_s, few, few_rate, many, many_rate)
        for few, few_rate, few_ends in rated
        for many, many_rate, many_ends in rated
        if many.num_workers > few.num_workers
        and few.model_copy(update={"num_workers": many.num_workers}) == many
        and many_ends.high < few_ends.low
    ]
    if losses:
        loss, few, few_rate, many, many_rate = max(losses, key=lambda pair: pair[0])
        yield info(
            rule="more-workers-slower",
            title=f"More workers are slower: {many.num_workers} deliver {100 * loss:.0f} % less than {few.num_workers}",
            found=f"{_span(many_rate)} with {many.num_workers}, {_span(few_rate)} with {few.num_workers} (prefetch "
            f"{few.prefetch_factor}, {answer.machine.cores} cores).",
            why="Workers beyond the cores wait for one another, decoders may start threads, or storage is the limit.",
            do="Do not raise --num_workers above the numbers that the table shows to help.",
        )


def start_up(answer: Dataloader, thresholds: Thresholds) -> Iterator[Finding]:
    recommended, _, row = _users_case(answer)
    if recommended is None or recommended.step_ms_then is None or row is None:
        return
    own = next((start_up for start_up in answer.start_ups if start_up.start_method == answer.own.start_method), None)
    timed = [start_up for start_up in answer.start_ups if start_up.first_batch_s is not None]
    if own is None or own.first_batch_s is None:
        return
    step_ms = recommended.step_ms_then
    steps = 1000 * own.first_batch_s / step_ms
    if steps < thresholds.start_up_steps:
        return
    level, do = "info", []
    why = "It happens once in the whole training."
    if not answer.own.persistent_workers:
        level, do = "warning", ["Keep the workers between epochs: --persistent_workers=true."]
        why = "It happens at the start of every epoch, because the workers end with the epoch."
    fastest = min(timed, key=lambda start_up: start_up.first_batch_s or 0.0)
    if fastest.first_batch_s is not None and fastest.first_batch_s < 0.8 * own.first_batch_s:
        flag = f"--dataloader_multiprocessing_context={fastest.start_method}"
        do.append(f"{flag} starts in {fastest.first_batch_s:.1f} s, if your libraries work with it.")
    yield Finding(
        rule="start-up-long",
        level=level,
        title=f"Starting the workers takes as long as {steps:,.0f} steps: {own.first_batch_s:.1f} s",
        found=f"That is the time to the first batch, with {own.start_method}. A step takes {step_ms:,.0f} ms.",
        why=why,
        do=" ".join(do),
    )


def encoding(answer: Dataloader, _: Thresholds) -> Iterator[Finding]:
    timed = [encoding for encoding in answer.encodings if encoding.rate is not None]
    if len(timed) < 2:
        return
    as_is, *others = timed
    best = max(others, key=lambda encoding: encoding.rate.samples_per_s if encoding.rate else 0.0)
    own, rate = as_is.rate, best.rate
    assert own is not None
    assert rate is not None
    factor = rate.samples_per_s / own.samples_per_s
    distinct = own.interval is not None and rate.interval is not None and rate.interval.low > own.interval.high
    if factor < MIN_ENCODING_GAIN or not distinct:
        return
    size = ""
    if best.bytes_per_hour and as_is.bytes_per_hour:
        size = f", at {best.bytes_per_hour / as_is.bytes_per_hour:.1f} × the size on disk"
    quality = f", {best.psnr_db:.1f} dB PSNR" if best.psnr_db is not None else ""
    yield info(
        rule="encoding-faster",
        title=f"Encoded as {best.name}, the dataset loads {factor:.1f} × as fast",
        found=f"{_span(rate)} vs {_span(own)} for the present encoding{size}{quality}.",
        why="It takes less decoding, or fewer bytes to read.",
        do="Encode the dataset again, once, with LeRobot's dataset tools, if you accept its new size and quality.",
    )


def _span(rate: Rate) -> str:
    between = f" ({rate.interval.low:,.1f} to {rate.interval.high:,.1f})" if rate.interval is not None else ""
    return f"{rate.samples_per_s:,.1f} samples/s{between}"


RULES = (failing_own_loader, starving_loader, sufficient_loader, insufficient_loaders, more_workers, start_up, encoding)
