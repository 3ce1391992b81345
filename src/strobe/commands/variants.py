"""Compose the variants of a comparison: from the command's config to treatments that can be applied.

A variant is written down as a `Draft`: specs and files of recipes. It is made for a subject only once that is loaded,
since a recipe's treatments are for one type, and 'auto' depends on the device. What is wrong with it before is reported
by `check`, which loads nothing. Each kind of comparison is one function, whose first draft is the baseline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from lerobot.policies.rtc.configuration_rtc import RTCConfig

from strobe.commands.variant_text import check_rtc, split_variant
from strobe.core.errors import UserError, error_line
from strobe.core.slices import Offer
from strobe.core.subjects.subject import Subject
from strobe.core.treatments import catalogue
from strobe.core.treatments.recipe import RecipeTreatment, load_rungs, merge_specs
from strobe.core.treatments.treatment import Spec, Treatment, Variant
from strobe.core.treatments.words import AUTO, FOR_MEMORY, known_lever, precisions
from strobe.core.treatments.words import levers as read_levers
from strobe.lerobot.policies.options import find_device
from strobe.treatments.flow.rtc import RealTimeChunking, WithoutRealTimeChunking, require, supports

if TYPE_CHECKING:
    from strobe.commands.compare_config import CompareConfig

EXPORTED: Offer[Callable[[Path], tuple[str, tuple[RecipeTreatment, ...]]]] = Offer("exported policies")


@dataclass(frozen=True)
class Draft:
    """A variant before its treatments are made.

    Args:
        name: of the variant.
        first: treatments that are made already, put on before all others.
        specs: of treatments that are applied by their ranks.
        recipes: files, whose treatments join those of ``specs``.
    """

    name: str
    first: tuple[Treatment, ...] = ()
    specs: tuple[Spec, ...] = ()
    recipes: tuple[Path, ...] = ()

    def variant(self, rungs: Sequence[RecipeTreatment] = ()) -> Variant:
        """Return the variant with ``rungs``, in the order in which all of it is applied. Raises UserError."""
        return Variant(self.name, (*self.first, *merge_specs(rungs, self.specs)))


def parse_variant(text: str, inference_delay: int) -> Draft:
    """Parse ``'NAME: key=value, key=value'`` into a draft. Raises UserError.

    Keys are ``rtc.FIELD``, ``recipe``, ``exported``, and those of the catalogue. ``inference_delay`` is RTC's,
    in control ticks.
    """
    parts = split_variant(text)
    try:
        specs = tuple(catalogue.parse(parts.treatments))
        first: list[Treatment] = []
        if parts.rtc:
            first.append(RealTimeChunking(_rtc_config(parts.rtc), inference_delay))
        if parts.exported is not None:
            first += EXPORTED.require()(parts.exported)[1]
        draft = Draft(parts.name, tuple(first), specs, (parts.recipe,) if parts.recipe is not None else ())
        draft.variant()
    except UserError as error:
        raise UserError(f"--variant '{text}': {error}") from None
    return draft


def check(config: CompareConfig) -> None:
    """Raise UserError for a variant that would measure nothing in the phase, or needs another batch size."""
    flag = "--levers" if config.levers else "--phase"
    device = find_device(config.subject, config.device)
    drafts = [*_draft_levers(config), *_draft_precisions(config, str(device or "cpu")), *_draft_written(config)]
    if config.rtc is not None and config.rtc.enabled:
        drafts.append(Draft("--rtc", (RealTimeChunking(config.rtc, config.inference_delay),)))
    for variant in (draft.variant() for draft in drafts):
        variant.require(config.compared_phase, flag)
        if device is not None:
            for treatment in variant.treatments:
                treatment.check_device(device)
        count, size = variant.micro_batches, config.samples
        if size % count:
            raise UserError(f"'{variant.name}': a batch of {size} cannot be cut into {count}: change --batch_size")


def compose(subject: Subject, config: CompareConfig) -> tuple[list[Variant], list[str]]:
    """Make the variants that the flags ask for, the baseline first. Raises UserError where ``subject`` lacks something.

    Returns:
        The variants, and the levers that 'auto' did not take, each with the reason.
    """
    left_out: list[str] = []
    written = [*_draft_levers(config), *_draft_written(config)]
    if config.levers == AUTO:
        tried, left_out = worth_trying(subject, config.samples)
        written = [*(Draft(variant.name, variant.treatments) for variant in tried), *written]
    if config.rtc is not None:
        require(subject)
    drafts = _choose_comparison(subject, config, written)
    if config.compile:
        compiled: Spec = {"compile": config.compile_mode}
        drafts += [replace(draft, name=f"{draft.name}, compiled", specs=(*draft.specs, compiled)) for draft in drafts]
    # Every variant has rungs of its own: a treatment may build on what was applied before it.
    rungs = [[rung for path in draft.recipes for rung in load_rungs(subject, path)] for draft in drafts]
    return [draft.variant(each) for draft, each in zip(drafts, rungs, strict=True)], left_out


# The kinds of comparison: the drafts of each, its baseline first.


def _choose_comparison(subject: Subject, config: CompareConfig, written: list[Draft]) -> list[Draft]:
    rtc_is_off = config.rtc is not None and not config.rtc.enabled
    by_itself = not written and not config.precision
    if config.precision:
        drafts = [*_draft_precisions(config, str(subject.device)), *written]
    elif config.recipe is not None and by_itself and not config.closed_form and (config.rtc is None or rtc_is_off):
        return [Draft("baseline"), Draft("recipe", recipes=(config.recipe,))]
    elif (
        by_itself
        and config.phase == "inference"
        and not rtc_is_off
        and (config.rtc is not None or not config.compile or supports(subject))
    ):
        drafts = _draft_guidance(subject, config)
    elif config.closed_form:
        raise UserError("--closed_form is for RTC's guidance in inference: leave out --variant and --rtc.enabled=false")
    else:
        drafts = [Draft(_name_baseline(config)), *written]
    own = (config.recipe,) if config.recipe is not None else ()
    return [replace(draft, recipes=(*own, *draft.recipes)) for draft in drafts]


def _name_baseline(config: CompareConfig) -> str:
    return "recipe" if config.recipe is not None else "baseline"


def _draft_guidance(subject: Subject, config: CompareConfig) -> list[Draft]:
    require(subject)
    rtc = RealTimeChunking(config.rtc or RTCConfig(), config.inference_delay)
    drafts = [Draft("without RTC", (WithoutRealTimeChunking(),)), Draft("with RTC", (rtc,))]
    if config.closed_form:
        drafts.append(Draft("RTC in closed form", (rtc,), ({"guidance": "closed form"},)))
    return drafts


def _draft_precisions(config: CompareConfig, device: str) -> list[Draft]:
    guided: tuple[Treatment, ...] = ()
    if config.rtc is not None and config.phase == "inference":
        on = RealTimeChunking(config.rtc, config.inference_delay)
        guided = (on if config.rtc.enabled else WithoutRealTimeChunking(),)
    drafts = [Draft(name, guided, ({"precision": name},)) for name in precisions(config.precision, device)]
    return [Draft(_name_baseline(config), guided), *drafts] if len(drafts) == 1 else drafts


def _draft_levers(config: CompareConfig) -> list[Draft]:
    """Return a draft for each of the levers, but for 'auto', which needs the subject. Raises UserError."""
    if config.levers in ("", AUTO):
        return []
    return [Draft(variant.name, variant.treatments) for variant in parse_levers(config.levers)]


def _draft_written(config: CompareConfig) -> list[Draft]:
    return [parse_variant(text, config.inference_delay) for text in config.variant]


def _rtc_config(pairs: Sequence[str]) -> RTCConfig:
    """Make LeRobot's config from ``'rtc.FIELD=value'`` texts. Raises UserError."""
    values = {
        key.strip().removeprefix("rtc."): yaml.safe_load(raw) for key, _, raw in (p.partition("=") for p in pairs)
    }
    known = {item.name for item in fields(RTCConfig)}
    for name in values:
        check_rtc(name, known)
    try:
        return RTCConfig(**values)
    except (TypeError, ValueError) as error:
        raise UserError(error_line(error)) from None


# What auto tries: the last two are for memory, not for time, and no part of the combination.
WORTH_TRYING = ("amp", "channels_last", "fused", "compile", *FOR_MEMORY)
MICRO_BATCHES = 4


def lever(name: str, value: str = "") -> Treatment:
    """Return the treatment ``name``, such as 'amp', with ``value``, such as 'bf16' or the default. Raises UserError."""
    known_lever(name)
    return catalogue.make({name: {"": True, "true": True, "false": False}.get(value.lower(), value)})


def parse_levers(text: str) -> list[Variant]:
    """Return the variants of ``'amp=bf16,fused,amp=bf16+fused'``, each named as written. Raises UserError."""
    return [
        Variant(written, tuple(lever(name, value) for name, value in pairs)) for written, pairs in read_levers(text)
    ]


def worth_trying(subject: Subject, batch_size: int) -> tuple[list[Variant], list[str]]:
    """Return each lever that applies to ``subject``, those for time all together, and why the others do not apply."""
    variants, left_out = [], []
    for name in WORTH_TRYING:
        written = f"accumulate={MICRO_BATCHES}" if name == "accumulate" else name
        if name == "accumulate" and batch_size % MICRO_BATCHES:
            left_out.append(f"{written}: a batch of {batch_size} cannot be cut into {MICRO_BATCHES} equal parts")
            continue
        variant = parse_levers(written)[0]
        try:
            variant.apply(subject)()
        except UserError as error:
            left_out.append(f"{written}: {error}")
            continue
        variants.append(variant)
    # Compiling once more takes minutes on a CPU, where it buys least.
    not_combined = FOR_MEMORY if subject.device.type == "cuda" else (*FOR_MEMORY, "compile")
    together = [variant for variant in variants if not variant.name.startswith(not_combined)]
    if len(together) > 1:
        names = "+".join(variant.name for variant in together)
        # Treatments of its own: compiled code is made for the settings that it first meets.
        variants.append(parse_levers(names)[0])
    return variants, left_out
