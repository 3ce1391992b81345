"""strobe breakdown: where does the time of a policy or a backbone go?

Runs the policy as LeRobot does, with probes on its parts. For each part it shows calls, milliseconds (median and 95 %
CI), share of the whole, GFLOP, share of this machine's measured peak, and peak memory. The parts and 'other' add up to
the whole. The answer also says how much faster this machine could run the same work.

--policy.type builds a policy with random weights, in full size, if you have no checkpoint. Without --dataset.root or
--env.type the observations are synthetic. A breakdown takes about a minute, and longer for a slow policy.

Examples:
  strobe breakdown --policy.path=FOLDER --dataset.root=DATASET
  strobe breakdown --policy.type=pi05 --policy.dtype=bfloat16 --depth=2

More:
More examples:
  strobe breakdown --policy.type=act                                   full size, random weights, synthetic inputs
  strobe breakdown --policy.type=act --phases='[inference, training forward, training step]' --batch_size=8
  strobe breakdown --policy.type=pi05 --rtc.execution_horizon=20       with the parts of Real-Time Chunking
  strobe breakdown --policy.path=FOLDER --recipe=recipe.yaml           with the treatments of a recipe
  strobe breakdown --policy.type=act --policy.n_action_steps=10 --pace=30   a call every 333 ms, and back to back
  strobe breakdown --policy.type=diffusion --policy.size=tiny --env.type=pusht
  strobe breakdown --model.type=vjepa2 --model.size=large --model.img_size=256 --model.num_frames=16
  strobe breakdown --model.path=FOLDER_OR_HUB_ID --input.video=FILE --depth=2
  strobe breakdown --policy.factory=path/to/file.py:make               a policy of another project
  strobe breakdown --policy.server=ws://HOST:8000                      a policy server: see below

Strobe times each part while the policy runs, and adds no synchronisation inside a call.

With --pace=HZ Strobe also calls inference as a robot does, in the same rounds: one call every few control ticks, with
the machine idle in between. The answer shows the cost of those gaps. A round takes at least as long as the time between
two calls. If that time is long, raise --seconds.

A model is a vision or video backbone of transformers: V-JEPA 2 (--model.size=tiny, large, huge, giant, giant-384), or
another --model.type (vit, dinov2, videomae, …) that Strobe divides along its modules. Its blocks are parts of the first
level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from strobe.core.cli.live import Live
from strobe.core.cli.runner import Command, Studied
from strobe.core.errors import UserError, nearest
from strobe.policy_cli.run_flags import RunConfig, check_pace, check_phases, check_recipe, read_flags
from strobe.policy_cli.subject import Profilers, build_study_answer, load_subject, measurement_options, recipe_notes

PHASES = ("inference", "training forward", "training step")


@dataclass
class BreakdownConfig(RunConfig):
    """Flags of `strobe breakdown`."""

    # Phases to measure: inference, training forward, training step.
    phases: list[str] = field(default_factory=lambda: ["inference"])


def read(argv: Sequence[str]) -> BreakdownConfig:
    """Return the command's flags, checked. Raises UserError."""
    config = read_flags(BreakdownConfig, argv)
    for phase in config.phases:
        if phase not in PHASES:
            raise UserError(f"unknown phase '{phase}': {nearest(phase, PHASES)}")
    check_phases(config.subject, config.phases)
    check_pace(config, config.phases)
    check_recipe(config.subject, config.recipe, config.phases, config.device)
    return config


def study(config: BreakdownConfig, live: Live) -> Studied:
    """Load the subject and measure it. Raises UserError; KeyboardInterrupt before the first measurement."""
    subject = load_subject(config, live)
    from strobe.core.studies.breakdown import breakdown
    from strobe.core.treatments.recipe import load_rungs
    from strobe.core.treatments.treatment import Treatment, Variant
    from strobe.treatments.flow.rtc import RealTimeChunking, require

    options = replace(measurement_options(config, len(config.phases)), nvtx=config.nvtx)
    treatments: tuple[Treatment, ...] = ()
    if config.recipe is not None:
        treatments = load_rungs(subject, config.recipe)
    if config.rtc is not None and config.rtc.enabled:
        require(subject)
        treatments = (RealTimeChunking(config.rtc, config.inference_delay), *treatments)
    profilers = Profilers(subject, config, options)
    result, measured = breakdown(subject, config.phases, options, treatments, live)  # type: ignore[arg-type]
    if not result.measurements:
        raise KeyboardInterrupt
    result.notes += recipe_notes(config.recipe)
    sections = [measurement.sections for measurement in measured]
    first = Variant(config.phases[0], treatments if config.phases[0] == "inference" else ())
    return profilers.look(build_study_answer(result, config, sections), first.name, first, live)  # type: ignore[arg-type]


run = Command(
    "breakdown",
    __doc__,
    BreakdownConfig,
    read,
    study,
    subject="policy or model",
    heavy="timed",
    gives_way=True,
    common={
        "Policy": ("policy.path", "policy.type", "policy.size", "model.type", "device"),
        "Observations": ("dataset", "env"),
        "What to measure": ("phases", "depth", "batch_size", "rtc", "recipe", "pace"),
        "Length": ("iterations", "seconds"),
        "Closer look": ("operators", "python_profile", "memory_snapshot"),
        "Output": ("output_dir",),
    },
)
