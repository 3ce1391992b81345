"""Compose the variants of a comparison: from flags to treatments that can be applied.

A variant is written down as a `Draft`: specs and the file of a recipe. It is made for a subject only once that is
loaded, since a recipe's treatments are for one type, and 'auto' depends on the device. What is
wrong with it before is reported by `check`, which loads nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import yaml
from lerobot.policies.rtc.configuration_rtc import RTCConfig

from strobe.commands.variant_text import check_levers, check_rtc, split_variant
from strobe.core.errors import UserError, error_line
from strobe.core.slices import Offer
from strobe.core.subjects.subject import Phase, Subject
from strobe.core.treatments import catalogue
from strobe.core.treatments.recipe import RecipeTreatment, load_rungs, merge_specs
from strobe.core.treatments.treatment import Spec, Treatment, Variant
from strobe.core.treatments.words import AUTO, known_lever, precisions
from strobe.core.treatments.words import levers as read_levers
from strobe.treatments.flow.rtc import RealTimeChunking, WithoutRealTimeChunking, require, supports

EXPORTED: Offer[Callable[[Path], tuple[str, tuple[RecipeTreatment, ...]]]] = Offer("exported policies")


@dataclass(frozen=True)
class Draft:
    """A variant before its treatments are made.

    Args:
        name: of the variant.
        first: treatments that are made already, put on before all others.
        specs: of treatments that are applied by their ranks.
        recipe: a file, whose treatments join those of ``specs``.
    """

    name: str
    first: tuple[Treatment, ...] = ()
    specs: tuple[Spec, ...] = ()
    recipe: Path | None = None

    def variant(self, rungs: Sequence[RecipeTreatment] = ()) -> Variant:
        """Return the variant with ``rungs``, in the order in which all of it is applied. Raises UserError."""
        return Variant(self.name, (*self.first, *merge_specs(rungs, self.specs)))


@dataclass(frozen=True)
class RequestedVariants:
    """The flags from which the variants of a comparison are composed.

    Args:
        phase: in which they are compared.
        drafts: variants that are written out.
        levers: variants of a training step, such as 'amp,fused,amp+fused', or 'auto' for those that the subject has.
        precision: variants in these precisions, the first one the baseline, or 'auto'; empty: none.
        compile_mode: every variant is also compiled, in this mode of torch.compile; empty: none.
        closed_form: RTC is also compared with its guidance in closed form.
        rtc: the configuration of Real-Time Chunking; None if nothing is said of it.
        inference_delay: of RTC, in control ticks.
        recipe: a file whose treatments are on every variant; by itself it is compared with the baseline.
        batch_size: samples in a training batch.
    """

    phase: Phase = "inference"
    drafts: tuple[Draft, ...] = ()
    levers: str = ""
    precision: str = ""
    compile_mode: str = ""
    closed_form: bool = False
    rtc: RTCConfig | None = None
    inference_delay: int = 4
    recipe: Path | None = None
    batch_size: int = 8

    @property
    def is_rtc_disabled(self) -> bool:
        """Whether RTC is to be off."""
        return self.rtc is not None and not self.rtc.enabled


@dataclass(frozen=True)
class Composed:
    """The variants of a comparison, the baseline first.

    Args:
        variants: ready to be applied.
        left_out: levers that 'auto' did not take, each with the reason.
        recipes: the files that they carry, each once.
    """

    variants: list[Variant]
    left_out: list[str] = field(default_factory=list)
    recipes: list[Path] = field(default_factory=list)


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
        draft = Draft(parts.name, tuple(first), specs, parts.recipe)
        draft.variant()
    except UserError as error:
        raise UserError(f"--variant '{text}': {error}") from None
    return draft


def check(requested: RequestedVariants) -> None:
    """Raise UserError for a variant that would measure nothing in the phase, or needs another batch size."""
    if requested.levers:
        others = requested.precision or requested.closed_form or requested.recipe or requested.rtc is not None
        check_levers(requested.levers, requested.phase, other_flags=bool(others))
    flag = "--levers" if requested.levers else "--phase"
    drafts = [*_levers(requested), *_precision_drafts(requested, "cpu"), *requested.drafts]
    if requested.rtc is not None and requested.rtc.enabled:
        drafts.append(Draft("--rtc", (RealTimeChunking(requested.rtc, requested.inference_delay),)))
    for variant in (draft.variant() for draft in drafts):
        variant.require(requested.phase, flag)
        count, size = variant.micro_batches, requested.batch_size
        if size % count:
            raise UserError(f"'{variant.name}': a batch of {size} cannot be cut into {count}: change --batch_size")


def compose(subject: Subject, requested: RequestedVariants) -> Composed:
    """Make the requested variants of ``subject``. Raises UserError where it lacks what they need."""
    drafts, left_out = [*_levers(requested), *requested.drafts], list[str]()
    if requested.levers == AUTO:
        tried, left_out = worth_trying(subject, requested.batch_size)
        drafts = [*(Draft(variant.name, variant.treatments) for variant in tried), *drafts]
    if requested.rtc is not None:
        require(subject)
    against_recipe = _needs_recipe_comparison(requested, drafts)
    drafts = _prepend_baseline(subject, requested, drafts)
    if requested.compile_mode:
        compiled: Spec = {"compile": requested.compile_mode}
        drafts += [replace(draft, name=f"{draft.name}, compiled", specs=(*draft.specs, compiled)) for draft in drafts]
    # Every variant has rungs of its own: a treatment may build on what was applied before it.
    paths = [[path for path in (requested.recipe, draft.recipe) if path is not None] for draft in drafts]
    variants = [
        draft.variant([rung for path in carried for rung in load_rungs(subject, path)])
        for draft, carried in zip(drafts, paths, strict=True)
    ]
    if against_recipe:
        variants.insert(0, Variant("baseline"))
    return Composed(variants, left_out, list(dict.fromkeys(path for carried in paths for path in carried)))


def _needs_recipe_comparison(requested: RequestedVariants, drafts: Sequence[Draft]) -> bool:
    recipe_only = not drafts and not requested.closed_form and (requested.rtc is None or requested.is_rtc_disabled)
    return requested.recipe is not None and recipe_only


def _prepend_baseline(subject: Subject, requested: RequestedVariants, drafts: list[Draft]) -> list[Draft]:
    baseline = Draft("recipe" if requested.recipe else "baseline")
    if in_precisions := _precision_drafts(requested, str(subject.device)):
        if len(in_precisions) == 1:
            in_precisions.insert(0, replace(baseline, first=in_precisions[0].first))
        return [*in_precisions, *drafts]
    if _needs_recipe_comparison(requested, drafts):
        return [baseline]
    with_rtc = requested.rtc is not None or not requested.compile_mode
    if (
        requested.phase == "inference"
        and not drafts
        and not requested.is_rtc_disabled
        and (with_rtc or supports(subject))
    ):
        return _rtc_drafts(subject, requested)
    if requested.closed_form:
        raise UserError("--closed_form is for RTC's guidance in inference: leave out --variant and --rtc.enabled=false")
    return [baseline, *drafts]


def _rtc_drafts(subject: Subject, requested: RequestedVariants) -> list[Draft]:
    require(subject)
    rtc = RealTimeChunking(requested.rtc or RTCConfig(), requested.inference_delay)
    drafts = [Draft("without RTC", (WithoutRealTimeChunking(),)), Draft("with RTC", (rtc,))]
    if requested.closed_form:
        drafts.append(Draft("RTC in closed form", (rtc,), ({"guidance": "closed form"},)))
    return drafts


def _precision_drafts(requested: RequestedVariants, device: str) -> list[Draft]:
    guided: tuple[Treatment, ...] = ()
    if requested.rtc is not None and requested.phase == "inference":
        off = requested.is_rtc_disabled
        guided = (WithoutRealTimeChunking() if off else RealTimeChunking(requested.rtc, requested.inference_delay),)
    return [Draft(name, guided, ({"precision": name},)) for name in precisions(requested.precision, device)]


def _levers(requested: RequestedVariants) -> list[Draft]:
    """Return a draft for each of the levers, but for 'auto', which needs the subject. Raises UserError."""
    if requested.levers in ("", AUTO):
        return []
    return [Draft(variant.name, variant.treatments) for variant in parse_levers(requested.levers)]


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
FOR_MEMORY = ("accumulate", "checkpointing")
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
