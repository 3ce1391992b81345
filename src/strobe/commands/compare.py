"""strobe compare: is it faster, and does the robot still act the same?

Runs variants of one policy in turn (A B, B A, …) on the same observations with the same noise. It compares each variant
with the first one: faster, slower, as fast within 2 %, or inconclusive with the number of pairs that it needs. It also
shows how far each variant changes the actions, and whether that is within the limits.

A variant is 'NAME: key=value, key=value', such as 'half: precision=bf16'. Without --variant, Strobe compares a policy
that RTC can guide (pi0, pi05, smolvla, evo1, molmoact2) without and with Real-Time Chunking. --policy.type builds a
policy with random weights if you have no checkpoint. A comparison takes about a minute, and longer for a slow policy.

Examples:
  strobe compare --policy.path=FOLDER --dataset.root=DATASET --variant 'half: precision=bf16'
  strobe compare --policy.type=smolvla --rtc.execution_horizon=20 --compile

More:
More examples:
  strobe compare --policy.type=pi05 --variant '5 steps: policy.num_inference_steps=5'
  strobe compare --policy.type=pi05 --closed-form                      also RTC's guidance without autograd
  strobe compare --policy.type=smolvla --policy.n_action_steps=10 --pace=30   a call every 333 ms
  strobe compare --model.type=vjepa2 --model.dtype=bfloat16 --compile
  strobe compare --model.type=vjepa2 --precision=auto
  strobe compare --policy.type=act --variant 'half vision: precision=bf16, precision.part=model.backbone'
  strobe compare --policy.path=FOLDER --recipe=recipe.yaml             the baseline and the recipe
  strobe compare --policy.factory=FILE.py:make --variant 'half: precision=bf16' --variant 'compiled: compile=default'
  strobe compare --policy.type=act --variant 'a: recipe=a.yaml' --variant 'b: recipe=b.yaml'
  strobe compare --policy.type=pi05 --variant 'trimmed: padding=trimmed' --variant 'int8: precision=bf16, int8=dynamic'
  strobe compare --policy.type=act --variant 'engine: engine=openvino, engine.part=model.backbone'
  strobe compare --policy.path=FOLDER --variant 'recipe: recipe=recipe.yaml' --variant 'export: exported=EXPORT'
  strobe compare --model.type=vjepa2 --variant 'fewer frames: frames=8' --variant 'smaller: images=192'
  strobe compare --policy.type=act --levers=auto --dataset.root=DATASET
  strobe compare --policy.type=diffusion --levers=amp,fused,amp+fused,accumulate=4 --batch_size=64
  strobe compare --policy.server=ws://A:8000 --against.server=ws://B:8000   two policy servers: see below
  strobe compare --policy.path=FOLDER --variant 'next: python=PYTHON'  the policy in two environments: see below

Verdicts are paired ratios with a 99 % confidence interval (CI). --as_fast_within sets the margin of "as fast as".

Keys of a variant: rtc.FIELD (turns RTC on), recipe (a file), exported (a folder of strobe export; no other key goes
with it), and the treatments. --precision compares floating-point formats: fp32, tf32 (CUDA), bf16, fp16, or auto for
those that make sense on the device.

--levers compares a training step with and without levers that make training faster or smaller: amp (bf16 or fp16),
compile, channels_last, fused (the optimizer in one kernel), foreach, forloop, accumulate=N (micro-batches) and
checkpointing. On CUDA, TF32 and cudnn.benchmark are on, as in lerobot-train; tf32=false and cudnn=default show their
gain. Each step starts from the same weights (the learning rate is 0). Strobe compares the loss and the gradient of each
variant with the baseline's, for the same batch and seed.

--policy.factory measures a policy of another project. Only treatments for torch modules apply to it. Strobe judges the
outputs in σ of each column of an output: its own spread over the rows and calls.

--recipe applies the recipe to every variant. With --recipe alone, Strobe compares the baseline with the recipe.

--pace=HZ calls every variant as a robot of that control rate does, with gaps between the calls.

Exit code: 0; 2 for wrong input, 130 after Ctrl-C. With an export among the variants also 1 if the export does not act
like the first variant, and 3 if that is inconclusive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from strobe.commands.compare_config import CompareConfig, list_recipes
from strobe.core.cli.live import Live, importing
from strobe.core.cli.parse import take_repeated
from strobe.core.cli.runner import EXIT_CODES, Command, Studied
from strobe.core.errors import UserError, nearest
from strobe.lerobot.policies.options import FactoryOptions, PolicyOptions
from strobe.policy_cli.run_flags import check_pace, check_phases, check_recipe, read_flags
from strobe.policy_cli.subject import Profilers, build_study_answer, load_subject, measurement_options, recipe_notes


def read(argv: Sequence[str]) -> CompareConfig:
    """Return the command's flags, checked. Raises UserError."""
    texts, rest = take_repeated(argv, "--variant")
    config = read_flags(CompareConfig, rest, extra=["--variant"])
    config.phase = config.phase or ("training step" if config.levers else "inference")
    if config.phase not in ("inference", "training forward", "training step"):
        raise UserError(f"unknown phase '{config.phase}': inference, training forward or training step")
    from strobe.commands.variant_text import check_levers
    from strobe.core.treatments.words import MODES, precisions

    if config.compile_mode not in MODES:
        raise UserError(f"--compile_mode={config.compile_mode}: {nearest(config.compile_mode, MODES)}")
    check_phases(config.subject, [config.phase])
    check_pace(config, [config.phase])
    config.variant = texts
    if isinstance(config.subject, FactoryOptions) and config.closed_form:
        raise UserError("--closed_form is for the guidance of Real-Time Chunking, which needs a policy of LeRobot")
    if config.levers:
        others = config.precision or config.closed_form or config.recipe or config.rtc is not None
        check_levers(config.levers, config.phase, other_flags=bool(others))
    precisions(config.precision, "cpu")
    recipes = list_recipes(config)
    if not isinstance(config.subject, PolicyOptions) and not (
        texts or config.precision.strip() or config.compile or config.recipe
    ):
        raise UserError(
            "a comparison needs two variants: add --precision=auto, --compile, --recipe=FILE or "
            "--variant 'NAME: key=value'"
        )
    if texts or config.levers or config.precision or config.rtc is not None:
        check_variants(config)
    for path in recipes:
        check_recipe(config.subject, path, [config.phase], config.device)
    return config


def check_variants(config: CompareConfig) -> None:
    """Make the variants' treatments, which imports torch, and check them. Raises UserError."""
    with importing():
        from strobe.commands.variants import check

    check(config)


def study(config: CompareConfig, live: Live) -> Studied:
    """Load the subject and compare its variants. Raises UserError; KeyboardInterrupt before the first measurement."""
    subject = load_subject(config, live)
    from strobe.commands.variants import compose
    from strobe.core.studies.compare import compare

    variants, left_out = compose(subject, config)
    options = replace(measurement_options(config, phases=1), nvtx=config.nvtx, within=config.as_fast_within)
    profilers = Profilers(subject, config, options)
    result, measured = compare(subject, variants, config.compared_phase, options, live)
    result.caveats += [f"not compared: {reason}" for reason in left_out]
    result.notes += [note for path in list_recipes(config) for note in recipe_notes(path)]
    exported = {each.name for each in variants if any(one.key == "exported" for one in each.treatments)}
    found = {pair.outcome for pair in result.comparisons if pair.candidate in exported}
    code = next((EXIT_CODES[outcome] for outcome in ("broken", "not judged") if outcome in found), None)
    answer = build_study_answer(result, config, [measured.sections], code=code)
    return profilers.look(answer, config.compared_phase, variants[0], live)


run = Command(
    "compare",
    __doc__,
    CompareConfig,
    read,
    study,
    subject="policy or model",
    treatments=True,
    common={
        "Policy": ("policy.path", "policy.type", "policy.size", "model.type", "device"),
        "Variants": ("variant", "compile", "precision", "rtc", "recipe", "levers"),
        "Observations": ("dataset", "env"),
        "Length": ("iterations", "seconds", "pace"),
        "Closer look": ("depth", "operators"),
        "Output": ("output_dir",),
    },
    heavy="timed",
    gives_way=True,
)
