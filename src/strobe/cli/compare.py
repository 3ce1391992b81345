"""strobe compare: is it faster, and does the robot still act the same?

Runs variants of one policy in alternation (A B, B A, …) on the same observations with the same noise, and judges each
against the first on the paired ratio of its samples: faster, slower, no difference that these samples can show, or
too noisy to say. For RTC it shows what the guidance costs and where.

Without --variant, a flow policy (pi0, pi05, smolvla) is compared without and with Real-Time Chunking.

Examples:
  strobe compare --policy.path=FOLDER --rtc.execution_horizon=20 --iterations=50
  strobe compare --policy.type=smolvla --compile                       RTC off and on, eager and compiled
  strobe compare --policy.type=pi05 --variant '5 steps: policy.num_inference_steps=5'
  strobe compare --policy.type=pi05 --closed-form                      RTC's guidance without autograd beside it
  strobe compare --policy.type=act --compile --dataset.root=DATASET
  strobe compare --model.type=vjepa2 --model.dtype=bfloat16 --compile

A variant is 'NAME: key=value, key=value', with the keys policy.FIELD (a setting that is read on every call),
rtc.FIELD (turns RTC on) and compile (a torch.compile mode).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import yaml

from strobe.cli.common import (
    Answer,
    RTCConfig,
    RunConfig,
    SubjectFlags,
    check_phases,
    latest,
    load_subject,
    options_of,
    read_flags,
    run_study,
)
from strobe.cli.live import Live
from strobe.cli.parse import ModelFlags, take_repeated
from strobe.cli.profilers import Profilers
from strobe.errors import UserError, nearest
from strobe.subjects.subject import ITERATION


@dataclass
class CompareConfig(RunConfig):
    # Also compare every variant compiled with torch.compile.
    compile: bool = False
    # torch.compile's mode: default, reduce-overhead, max-autotune.
    compile_mode: str = "default"
    # Also compare RTC with its guidance in closed form: the same bits without autograd.
    closed_form: bool = False
    # What to compare: inference, training forward or training step.
    phase: str = "inference"
    # What to compare it with, 'NAME: key=value, key=value'; may be repeated (see above).
    variant: list[str] = field(default_factory=list)


def run(argv: Sequence[str]) -> int:
    """Run the command; see the module's docstring."""
    return run_study("compare", __doc__, CompareConfig, read, study, argv)


def read(argv: Sequence[str]) -> tuple[SubjectFlags, CompareConfig]:
    """The command's flags, checked. Raises UserError."""
    texts, rest = take_repeated(argv, "--variant")
    flags, config = read_flags(CompareConfig, rest, extra=["--variant"])
    if config.phase not in ("inference", "training forward", "training step"):
        raise UserError(f"unknown phase '{config.phase}': inference, training forward or training step")
    from strobe.treatments.compile import MODES

    if config.compile_mode not in MODES:
        raise UserError(f"--compile_mode={config.compile_mode}: {nearest(config.compile_mode, MODES)}")
    check_phases(flags, [config.phase])
    config.variant = texts
    if isinstance(flags, ModelFlags) and not (texts or config.compile):
        raise UserError("a comparison needs two variants: add --compile (a model's settings are swept, not compared)")
    for text in texts:
        parse_variant(text, config)
    return flags, config


def study(flags: SubjectFlags, config: CompareConfig, live: Live) -> Answer:
    """Load the subject and compare its variants. Raises UserError; KeyboardInterrupt where nothing was measured."""
    from strobe.studies.compare import compare
    from strobe.treatments.closed_form import ClosedFormGuidance
    from strobe.treatments.compile import Compile
    from strobe.treatments.rtc import RealTimeChunking, WithoutRealTimeChunking, require, supports
    from strobe.treatments.treatment import Variant

    variants = [parse_variant(text, config) for text in config.variant]
    subject = load_subject(flags, config, live)
    if config.rtc is not None:
        require(subject)
    asked = config.rtc is not None or not (variants or config.compile)
    off = config.rtc is not None and not config.rtc.enabled
    if (asked or supports(subject)) and not variants and not off and config.phase == "inference":
        require(subject)
        rtc = RealTimeChunking(config.rtc or RTCConfig(), config.inference_delay)
        variants = [Variant("without RTC", (WithoutRealTimeChunking(),)), Variant("with RTC", (rtc,))]
        if config.closed_form:
            variants.append(Variant("RTC in closed form", (rtc, ClosedFormGuidance())))
    elif config.closed_form:
        raise UserError(
            "--closed_form is about RTC's guidance in inference: leave out --variant and --rtc.enabled=false"
        )
    else:
        variants = [Variant("as it is"), *variants]
    if config.compile:
        compiled = Compile(config.compile_mode)
        variants += [replace(v, name=f"{v.name}, compiled", treatments=(*v.treatments, compiled)) for v in variants]
    options = options_of(config)
    profilers = Profilers(subject, config, options)
    result, measured = compare(subject, variants, config.phase, options, live)  # type: ignore[arg-type]
    if not result.measurements:
        raise KeyboardInterrupt
    answer = Answer(result, flags, config, latest(measured.sections, ITERATION))
    return profilers.look(answer, config.phase, variants[0], live)  # type: ignore[arg-type]


def parse_variant(text: str, config: CompareConfig) -> Any:
    """``'NAME: key=value, key=value'`` as a Variant. Raises UserError."""
    from strobe.treatments.compile import MODES, Compile
    from strobe.treatments.rtc import RealTimeChunking
    from strobe.treatments.settings import Settings
    from strobe.treatments.treatment import Treatment, Variant

    name, colon, body = text.partition(":")
    settings = [part.partition("=") for part in body.split(",") if part.strip()]
    if not colon or not name.strip() or not settings or not all(equals for _, equals, _ in settings):
        raise UserError(f"--variant '{text}': write 'NAME: key=value, key=value', e.g. '5 steps: policy.num_steps=5'")
    treatments: list[Treatment] = []
    policy: dict[str, Any] = {}
    rtc: dict[str, Any] = {}
    for key, _, raw in settings:
        key, value = key.strip(), yaml.safe_load(raw)
        if key.startswith("policy."):
            policy[key.removeprefix("policy.")] = value
        elif key.startswith("rtc."):
            known = [item.name for item in fields(RTCConfig)]
            if key.removeprefix("rtc.") not in known:
                raise UserError(f"--variant '{text}': no setting '{key}': {nearest(key.removeprefix('rtc.'), known)}")
            rtc[key.removeprefix("rtc.")] = value
        elif key == "compile":
            if value not in MODES:
                raise UserError(f"--variant '{text}': compile={value}: {nearest(str(value), MODES)}")
            treatments.append(Compile(value))
        else:
            raise UserError(f"--variant '{text}': unknown key '{key}': policy.FIELD, rtc.FIELD or compile")
    if policy:
        treatments.insert(0, Settings(policy))
    if rtc:
        try:
            treatments.insert(0, RealTimeChunking(RTCConfig(**rtc), config.inference_delay))
        except (TypeError, ValueError) as error:
            raise UserError(f"--variant '{text}': {error}") from None
    return Variant(name.strip(), tuple(treatments))
