"""strobe compare: is it faster, and does the robot still act the same?

Runs variants of one policy in alternation (A B, B A, …) on the same observations with the same noise, and judges each
against the first on the paired ratio of its samples: faster, slower, no difference that these samples can show, or
too noisy to say. For RTC it shows what the guidance costs and where.

Without --variant, a flow policy (pi0, pi05, smolvla) is compared without and with Real-Time Chunking. With --precision
it is compared with itself in other floating-point formats: fp32, tf32 (CUDA), bf16, fp16, or auto for those that make
sense on the device.

With --levers it is a training step, with and without what makes training faster or smaller: amp (bf16 or fp16), tf32
(CUDA), compile, channels_last, fused (the optimizer in one kernel), foreach, forloop and accumulate=N (micro-batches).
Each step starts from the same weights (the learning rate is 0), and the loss and the gradient of each variant are
compared with the baseline's for the same batch and seed.

Examples:
  strobe compare --policy.path=FOLDER --rtc.execution_horizon=20 --iterations=50
  strobe compare --policy.type=smolvla --compile                       RTC off and on, eager and compiled
  strobe compare --policy.type=pi05 --variant '5 steps: policy.num_inference_steps=5'
  strobe compare --policy.type=pi05 --closed-form                      RTC's guidance without autograd beside it
  strobe compare --policy.type=act --compile --dataset.root=DATASET
  strobe compare --model.type=vjepa2 --model.dtype=bfloat16 --compile
  strobe compare --policy.type=act --precision fp32,bf16
  strobe compare --model.type=vjepa2 --precision=auto
  strobe compare --policy.type=act --variant 'half vision: precision=bf16, precision.part=model.backbone'
  strobe compare --policy.path=FOLDER --recipe=recipe.yaml             as it is against the recipe
  strobe compare --policy.type=act --variant 'a: recipe=a.yaml' --variant 'b: recipe=b.yaml'
  strobe compare --policy.type=pi05 --variant 'trimmed: padding=trimmed' --variant 'int8: precision=bf16, int8=dynamic'
  strobe compare --policy.type=act --variant 'engine: engine=openvino, engine.part=model.backbone'
  strobe compare --model.type=vjepa2 --variant 'fewer frames: frames=8' --variant 'smaller: images=192'
  strobe compare --policy.type=act --levers=auto --dataset.root=DATASET
  strobe compare --policy.type=diffusion --levers=amp,fused,amp+fused,accumulate=4 --batch_size=64

With --recipe every variant carries the recipe's treatments; by itself it is the policy as it is against the recipe.

A variant is 'NAME: key=value, key=value'. Its keys are rtc.FIELD (turns RTC on), recipe (a file), and the treatments
listed at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from lerobot.policies.rtc.configuration_rtc import RTCConfig

from strobe.cli.flags import RunConfig, SubjectFlags, check_phases, check_recipe, read_flags
from strobe.cli.keep import latest
from strobe.cli.live import Live
from strobe.cli.parse import ModelFlags, take_repeated
from strobe.cli.profilers import Profilers
from strobe.cli.study import Answer, run_study
from strobe.cli.subject import load_subject, options_of, recipe_notes, rungs_of
from strobe.errors import UserError, nearest
from strobe.subjects.subject import ITERATION

if TYPE_CHECKING:
    from strobe.treatments.recipe import RecipeTreatment
    from strobe.treatments.treatment import Spec, Treatment, Variant


@dataclass
class CompareConfig(RunConfig):
    # Also compare every variant compiled with torch.compile.
    compile: bool = False
    # torch.compile's mode: default, reduce-overhead, max-autotune.
    compile_mode: str = "default"
    # Also compare RTC with its guidance in closed form: the same bits without autograd.
    closed_form: bool = False
    # Precisions side by side, the first one the baseline: fp32,tf32,bf16,fp16, or auto.
    precision: str = ""
    # Levers of a training step, each against the step as it is: auto, or e.g. amp,fused,accumulate=4; '+' joins some.
    levers: str = ""
    # What to compare: inference, training forward or training step (default: inference; with --levers training step).
    phase: str = ""
    # What to compare it with, 'NAME: key=value, key=value'; may be repeated (see above).
    variant: list[str] = field(default_factory=list)


def run(argv: Sequence[str]) -> int:
    """Run the command; see the module's docstring."""
    doc = with_treatments(__doc__ or "") if {"-h", "--help"} & set(argv) else __doc__
    return run_study("compare", doc, CompareConfig, read, study, argv)


def read(argv: Sequence[str]) -> tuple[SubjectFlags, CompareConfig]:
    """The command's flags, checked. Raises UserError."""
    texts, rest = take_repeated(argv, "--variant")
    flags, config = read_flags(CompareConfig, rest, extra=["--variant"])
    config.phase = config.phase or ("training step" if config.levers else "inference")
    if config.phase not in ("inference", "training forward", "training step"):
        raise UserError(f"unknown phase '{config.phase}': inference, training forward or training step")
    from strobe.treatments.engines.compile import MODES

    if config.compile_mode not in MODES:
        raise UserError(f"--compile_mode={config.compile_mode}: {nearest(config.compile_mode, MODES)}")
    check_phases(flags, [config.phase])
    config.variant = texts
    drafts = [*_levers(config), *(parse_variant(text, config) for text in texts)]
    for path in (config.recipe, *(draft.recipe for draft in drafts)):
        check_recipe(flags, path, [config.phase])
    parsed = [draft.variant() for draft in drafts]
    _check_batch(parsed, config)
    precisions = _precisions(config.precision, "cpu")
    if config.phase == "training step" and (precisions or any("precision" in variant.facts() for variant in parsed)):
        raise UserError("a training step would train each precision's copy of the weights: compare 'training forward'")
    if isinstance(flags, ModelFlags) and not (texts or precisions or config.compile or config.recipe):
        raise UserError("a comparison needs two variants: add --precision=auto, --compile, --recipe or --variant")
    return flags, config


@dataclass(frozen=True)
class Draft:
    """A variant before its treatments are made: those that are there already and go first, then specs and a recipe."""

    name: str
    first: tuple[Treatment, ...] = ()
    specs: tuple[Spec, ...] = ()
    recipe: Path | None = None

    def variant(self, rungs: Sequence[RecipeTreatment] = ()) -> Variant:
        """The variant with ``rungs``, in the order in which all of it is put on. Raises UserError."""
        from strobe.treatments.recipe import with_specs
        from strobe.treatments.treatment import Variant

        return Variant(self.name, (*self.first, *with_specs(rungs, self.specs)))


def study(flags: SubjectFlags, config: CompareConfig, live: Live) -> Answer:
    """Load the subject and compare its variants. Raises UserError; KeyboardInterrupt where nothing was measured."""
    from strobe.studies.compare import compare
    from strobe.treatments.flow.rtc import RealTimeChunking, WithoutRealTimeChunking, require, supports

    drafts = [*_levers(config), *(parse_variant(text, config) for text in config.variant)]
    subject = load_subject(flags, config, live)
    left_out: list[str] = []
    if config.levers == "auto":
        from strobe.treatments.training.levers import worth_trying

        found, left_out = worth_trying(subject, options_of(config).batch_size)
        drafts = [*(Draft(variant.name, variant.treatments) for variant in found), *drafts]
    if config.rtc is not None:
        require(subject)
    asked = config.rtc is not None or not (drafts or config.compile)
    off = config.rtc is not None and not config.rtc.enabled
    untouched = Draft("recipe" if config.recipe else "as it is")
    against_recipe = config.recipe is not None and not drafts and not config.closed_form and (off or config.rtc is None)
    if precisions := _precisions(config.precision, str(subject.device)):
        guided: tuple[Treatment, ...] = ()
        if config.rtc is not None:
            guided = (WithoutRealTimeChunking() if off else RealTimeChunking(config.rtc, config.inference_delay),)
        side_by_side = [Draft(name, guided, ({"precision": name},)) for name in precisions]
        if len(side_by_side) == 1:
            side_by_side.insert(0, replace(untouched, first=guided))
        drafts = [*side_by_side, *drafts]
    elif against_recipe:
        drafts = [untouched]
    elif (asked or supports(subject)) and not drafts and not off and config.phase == "inference":
        require(subject)
        rtc = RealTimeChunking(config.rtc or RTCConfig(), config.inference_delay)
        drafts = [Draft("without RTC", (WithoutRealTimeChunking(),)), Draft("with RTC", (rtc,))]
        if config.closed_form:
            drafts.append(Draft("RTC in closed form", (rtc,), ({"guidance": "closed form"},)))
    elif config.closed_form:
        raise UserError(
            "--closed_form is about RTC's guidance in inference: leave out --variant and --rtc.enabled=false"
        )
    else:
        drafts = [untouched, *drafts]
    if config.compile:
        mode: Spec = {"compile": config.compile_mode}
        drafts += [replace(draft, name=f"{draft.name}, compiled", specs=(*draft.specs, mode)) for draft in drafts]
    paths = [(config.recipe, draft.recipe) for draft in drafts]
    variants = [
        draft.variant([rung for path in both for rung in rungs_of(subject, path)])
        for draft, both in zip(drafts, paths, strict=True)
    ]
    if against_recipe:
        variants.insert(0, Draft("as it is").variant())
    options = options_of(config)
    profilers = Profilers(subject, config, options)
    result, measured = compare(subject, variants, config.phase, options, live)  # type: ignore[arg-type]
    if not result.measurements:
        raise KeyboardInterrupt
    result.notes += [f"left out: {reason}" for reason in left_out]
    result.notes += [
        note for path in dict.fromkeys(one for both in paths for one in both) for note in recipe_notes(path)
    ]
    answer = Answer(result, flags, config, latest(measured.sections, ITERATION))
    return profilers.look(answer, config.phase, variants[0], live)  # type: ignore[arg-type]


def with_treatments(doc: str) -> str:
    """The command's docstring with the keys of all treatments, as the catalogue has them."""
    from strobe.treatments.catalogue import ENTRIES

    lines = [doc.rstrip(), "", "Treatments (exact, rounding or lossy: the most they do to the actions):"]
    for entry in ENTRIES:
        key = f"{entry.key}FIELD" if entry.key.endswith(".") else entry.key
        lines += [f"  {key} ({entry.effect})", f"      {entry.help}"]
    return "\n".join(lines)


def _levers(config: CompareConfig) -> list[Draft]:
    """``--levers``' variants, but for 'auto', which needs the policy. Raises UserError."""
    from strobe.treatments.training.levers import parse

    if not config.levers:
        return []
    if config.phase != "training step":
        raise UserError(f"--levers are pulled in a training step, not in '{config.phase}': leave out --phase")
    if config.precision or config.closed_form or config.recipe or config.rtc is not None:
        raise UserError("--levers are about training: leave out --precision, --recipe, --closed_form and --rtc")
    named = [] if config.levers == "auto" else parse(config.levers)
    return [Draft(variant.name, variant.treatments) for variant in named]


def _check_batch(variants: Sequence[Any], config: CompareConfig) -> None:
    """Raises UserError for micro-batches that the batch cannot be cut into, or levers that inference does not have."""
    size = options_of(config).batch_size
    for variant in variants:
        facts = variant.facts()
        of_training = [name for name in ("amp", "micro-batches", "optimizer") if name in facts]
        if of_training and config.phase == "inference":
            raise UserError(f"'{variant.name}': {of_training[0]} is of training: add --phase='training step'")
        of_inference = [name for name in ("int8", "fp8", "engine", "frames", "images") if name in facts]
        if of_inference and config.phase != "inference":
            raise UserError(f"'{variant.name}': {of_inference[0]} is of inference: leave out --phase")
        if size % int(facts.get("micro-batches", 1)):
            count = facts["micro-batches"]
            raise UserError(f"'{variant.name}': a batch of {size} cannot be cut into {count}: change --batch_size")


def _precisions(text: str, device: str) -> tuple[str, ...]:
    """``--precision``'s names. Raises UserError."""
    from strobe.treatments.numbers.precision import name_of, sensible

    if text.strip().lower() in ("", "auto"):
        return sensible(device) if text.strip() else ()
    if text.replace(".", "", 1).isdecimal():
        raise UserError(
            f"--precision={text}: fp32, tf32, bf16, fp16 or auto; the width to stop at is --interval={text}"
        )
    names = tuple(name_of(part) for part in text.split(","))
    if len(set(names)) < len(names):
        raise UserError(f"--precision={text}: each precision once")
    return names


def parse_variant(text: str, config: CompareConfig) -> Draft:
    """``'NAME: key=value, key=value'``. Raises UserError."""
    from strobe.treatments import catalogue
    from strobe.treatments.flow.rtc import RealTimeChunking

    name, colon, body = text.partition(":")
    pairs = [pair.strip() for pair in body.split(",") if pair.strip()]
    if not colon or not name.strip() or not pairs:
        raise UserError(f"--variant '{text}': write 'NAME: key=value, key=value', e.g. '5 steps: policy.num_steps=5'")
    guided = [pair for pair in pairs if pair.startswith("rtc.")]
    named = [pair for pair in pairs if pair.partition("=")[0].strip() == "recipe"]
    others = [pair for pair in pairs if pair not in guided and pair not in named]
    if len(named) > 1:
        raise UserError(f"--variant '{text}': one recipe, not {len(named)}")
    try:
        specs = tuple(catalogue.parse(", ".join(others)))
        rtc = (RealTimeChunking(_rtc(guided), config.inference_delay),) if guided else ()
        draft = Draft(name.strip(), rtc, specs, Path(named[0].partition("=")[2].strip()) if named else None)
        draft.variant()
    except UserError as error:
        raise UserError(f"--variant '{text}': {error}") from None
    return draft


def _rtc(pairs: Sequence[str]) -> RTCConfig:
    """``'rtc.FIELD=value'`` texts as LeRobot's config. Raises UserError."""
    values = {
        key.strip().removeprefix("rtc."): yaml.safe_load(raw) for key, _, raw in (p.partition("=") for p in pairs)
    }
    known = [item.name for item in fields(RTCConfig)]
    if wrong := [name for name in values if name not in known]:
        raise UserError(f"no setting 'rtc.{wrong[0]}': {nearest(wrong[0], known)}")
    try:
        return RTCConfig(**values)
    except (TypeError, ValueError) as error:
        raise UserError(" ".join(str(error).split())) from None
