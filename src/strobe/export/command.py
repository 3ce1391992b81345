"""strobe export: can the policy run without torch, with the same actions?

Writes the whole policy into a folder, for OpenVINO, ONNX Runtime or ExecuTorch: processors, sampling and weights in one
model. The program policy.py next to it runs the model with NumPy, without torch and LeRobot. Then Strobe runs that
program and the baseline on at least 16 observations with the same noise, and judges the actions as `strobe verify`
does. The README in the folder has the verdict.

Needs a policy of LeRobot and the engine's package (extras openvino, onnx, executorch). A policy that reads a prompt
also needs the package tokenizers to run. Takes seconds for ACT, minutes for a full-size SmolVLA.

Examples:
  strobe export --policy.path=FOLDER --dataset.root=DATASET --to=EXPORT
  strobe export --policy.path=FOLDER --to=EXPORT --format=onnx

More:
An export in float32 must agree with the policy up to floating-point noise (another summation order). bf16 is faster on
CPUs that have it. int8 computes the products in 8 bits, scaled by 16 observations: that changes the actions by more
than rounding, so the wider limits judge it, as they judge int8 in a recipe.
`strobe verify --exported=FOLDER` checks an export again, on other observations or another machine.

The policy's random noise is an input of the model. So the check gives torch and the export the same noise, and
policy.py draws its own.

A recipe's settings of the policy go into the export, such as its denoising steps. Its other treatments do not: they say
how torch computes, and the engine computes in its own way.

Not possible in an export: Real-Time Chunking, missing cameras (it needs all cameras of the first observation), and
prompts with more than task and state. The command names what it cannot export, with the reason.

  strobe export --policy.path=FOLDER --to=EXPORT --precision=bf16
  strobe export --policy.path=FOLDER --recipe=recipe.yaml --to=EXPORT      with fewer denoising steps, for example
  strobe export --policy.type=act --policy.size=tiny --to=EXPORT           random weights, to try it

Exit code: 0 if the export acts the same, 1 if it does not, 2 for wrong input or a policy that cannot be exported, 3 if
the limits could not be judged, 130 after Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from strobe.commands.verify import REFUSED, VerifyConfig
from strobe.core.cli.bounds import custom_bound
from strobe.core.cli.live import Live
from strobe.core.cli.runner import EXIT_CODES, Command, Studied
from strobe.core.errors import UserError
from strobe.export.formats import FORMATS, require
from strobe.lerobot.policies.options import FactoryOptions
from strobe.policy_cli.run_flags import check_recipe, read_flags
from strobe.policy_cli.subject import build_study_answer, load_subject, recipe_notes
from strobe.policy_cli.subject_flags import ModelFlags

if TYPE_CHECKING:
    from strobe.core.results.answer import VerifyResult
    from strobe.core.subjects.subject import Subject
    from strobe.core.treatments.recipe import RecipeTreatment

    Treatments = tuple[RecipeTreatment, ...]

PRECISIONS = tuple(dict.fromkeys(name for each in FORMATS.values() for name in each.precisions))


def _choice_check(names: Collection[str]) -> Callable[[str], str | None]:
    return lambda name: None if name in names else f"use one of {', '.join(names)}"


@dataclass
class ExportConfig(VerifyConfig):
    """Flags of `strobe export`."""

    # New folder for the exported policy.
    to: Path | None = None
    # What runs the export: openvino, onnx (ONNX Runtime), or executorch (XNNPACK).
    format: str = field(default="openvino", metadata=custom_bound(_choice_check(FORMATS)))
    # The dtype in which the engine computes: fp32, bf16 (weights stay in float32) or int8 (openvino alone).
    precision: str = field(default="fp32", metadata=custom_bound(_choice_check(PRECISIONS)))


def read(argv: Sequence[str]) -> ExportConfig:
    """Return the command's flags, checked. Raises UserError."""
    config = read_flags(ExportConfig, argv, refused=REFUSED)
    if isinstance(config.subject, ModelFlags | FactoryOptions):
        raise UserError("strobe export needs a policy of LeRobot: use --policy.path or --policy.type")
    if config.exported is not None:
        raise UserError("--exported is for strobe verify: use --to=FOLDER for the new folder")
    if config.to is None:
        raise UserError("--to is missing: use --to=FOLDER for the exported policy")
    if config.to.exists() and (not config.to.is_dir() or any(config.to.iterdir())):
        raise UserError(f"--to={config.to} is not empty: use a new folder")
    if config.precision not in (able := FORMATS[config.format].precisions):
        raise UserError(f"--precision={config.precision}: --format={config.format} supports {', '.join(able)}")
    if config.recipe is not None:
        check_recipe(config.subject, config.recipe, ["inference"], config.device)
    return config


def study(config: ExportConfig, live: Live) -> Studied:
    """Load the policy, export it, and check the export. Raises UserError."""
    from strobe.core.report import verify as shown
    from strobe.core.treatments.treatment import Variant
    from strobe.export import folder
    from strobe.lerobot.config_fields import require_policy

    require(config.format)
    assert config.to is not None  # checked when it was read
    subject = require_policy(load_subject(config, live))
    inside, outside = split_recipe_treatments(config.recipe)
    undo = Variant("recipe", inside).apply(subject)
    try:
        folder.write(subject, config.to, folder.ExportOptions(config.format, config.precision), live.stage)
    finally:
        undo()
    result = verify_export(subject, config, config.to, live)
    said = " ".join(shown.answers(result))
    folder.write_readme(config.to, said)
    size = sum(file.stat().st_size for file in config.to.iterdir())
    result.notes += [f"exported to {config.to}: {size / 2**20:,.1f} MiB", *recipe_notes(config.recipe)]
    if outside:
        result.notes.append(
            f"of {config.recipe}, not in the export: {', '.join(treatment.written for treatment in outside)}. They say "
            "how torch computes, and the export's engine does that its own way (--precision gives its dtype)"
        )
    return build_study_answer(result, config, code=EXIT_CODES[result.outcome])


def verify_export(subject: Subject, config: VerifyConfig, folder: Path, live: Live) -> VerifyResult:
    """Compare the export in ``folder`` with the baseline. Raises UserError."""
    from strobe.core.measure.guard import Guards
    from strobe.export import verify as study_of
    from strobe.lerobot.config_fields import require_policy

    export = study_of.Export(folder, split_recipe_treatments(config.recipe)[0])
    return study_of.verify_export(require_policy(subject), export, Guards.parse(config.guard), live, **config.effort)


def split_recipe_treatments(path: Path | None) -> tuple[Treatments, Treatments]:
    """Return the recipe's treatments that an export holds, and the others.

    It holds the policy's own settings, such as its denoising steps. The others may keep what they computed for one
    observation, such as its prompt, and an export would keep it for ever.
    """
    if path is None:
        return (), ()
    from strobe.core.treatments.recipe import load, make_treatments
    from strobe.core.treatments.spec import SETTING

    treatments = make_treatments(load(path), path.name)
    inside = tuple(treatment for treatment in treatments if treatment.rank == SETTING)
    return inside, tuple(treatment for treatment in treatments if treatment.rank != SETTING)


run = Command(
    "export",
    __doc__,
    ExportConfig,
    read,
    study,
    subject="policy",
    heavy="untimed",
    gives_way=True,
    common={
        "Policy and data": ("policy.path", "policy.type", "policy.size", "dataset", "recipe"),
        "Export": ("to", "format", "precision"),
        "Check": ("guard", "observations", "passes", "seconds", "output_dir"),
    },
)
