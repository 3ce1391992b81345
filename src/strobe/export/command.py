"""strobe export: a policy as files that run without torch, and proof that they act as the policy does.

Writes the whole policy into a folder, for OpenVINO or ONNX Runtime: its processors, its sampling and its weights in
one model. A short program beside it, policy.py, runs it with that engine and NumPy, without torch and without
LeRobot. A policy that reads a prompt also gets its tokenizer's file (pip install tokenizers).

Then Strobe runs that program and the baseline on at least 16 observations with the same noise, and judges the
actions as `strobe verify` does: an export in float32 must agree as well as reordered sums do. The README in the folder
holds what the check said. `strobe verify --exported=FOLDER` checks it again, on other observations or another machine.

What a policy draws at random is an input of the model. So the check gives torch and the export the same noise, and
policy.py draws its own.

--precision=int8 puts the products in 8 bits, scaled by 16 observations. That changes the actions by more than rounding,
so it is judged by the wider guard, as int8 in a recipe is.

Of a recipe, the policy's own settings go into the export, such as its denoising steps. The rest says how torch
computes, and the export's engine does that its own way.

Not in an export: Real-Time Chunking, missing cameras (all that the first observation has are needed), and prompts that
hold more than the task (pi0.5 writes the state into it). The command names what cannot be exported, with the reason.

Exit code: 0 if the export acts the same, 1 if it does not, 2 for wrong input or a policy that cannot be exported, 3 if
the guard could not be judged, 130 after Ctrl-C.

Examples:
  strobe export --policy.path=FOLDER --dataset.root=DATASET --to=EXPORT
  strobe export --policy.path=FOLDER --to=EXPORT --precision=bf16          faster on CPUs that have it
  strobe export --policy.path=FOLDER --to=EXPORT --format=onnx             for ONNX Runtime
  strobe export --policy.path=FOLDER --recipe=recipe.yaml --to=EXPORT      with fewer denoising steps, for example
  strobe export --policy.type=act --policy.size=tiny --to=EXPORT           random weights, to try it
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from strobe.commands.verify import REFUSED, VerifyConfig, split_recipe_treatments, verify_export
from strobe.core.cli.bounds import custom_bound
from strobe.core.cli.live import Live
from strobe.core.cli.runner import EXIT_CODES, Command, Studied
from strobe.core.errors import UserError
from strobe.export.formats import FORMATS, require
from strobe.lerobot.flags.run_flags import SubjectFlags, check_recipe, read_flags
from strobe.lerobot.flags.subject import build_study_answer, load_subject, recipe_notes
from strobe.lerobot.flags.subject_flags import ModelFlags
from strobe.lerobot.policies.options import FactoryOptions

PRECISIONS = tuple(dict.fromkeys(name for each in FORMATS.values() for name in each.precisions))


def _choice_check(names: Collection[str]) -> Callable[[str], str]:
    return lambda name: "" if name in names else f"take one of {', '.join(names)}"


@dataclass
class ExportConfig(VerifyConfig):
    """Flags of `strobe export`."""

    # New folder for the exported policy.
    to: Path | None = None
    # What runs the export: openvino, onnx (ONNX Runtime), or executorch (XNNPACK).
    format: str = field(default="openvino", metadata=custom_bound(_choice_check(FORMATS)))
    # The dtype in which the engine computes: fp32, bf16 (weights stay in float32) or int8 (openvino alone).
    precision: str = field(default="fp32", metadata=custom_bound(_choice_check(PRECISIONS)))


def read(argv: Sequence[str]) -> tuple[SubjectFlags, ExportConfig]:
    """Return the command's flags, checked. Raises UserError."""
    flags, config = read_flags(ExportConfig, argv, refused=REFUSED)
    if isinstance(flags, ModelFlags | FactoryOptions):
        raise UserError("strobe export is for policies of LeRobot")
    if config.exported is not None or config.exported_python:
        raise UserError("--exported is what strobe verify checks: name the new folder with --to")
    if config.to is None:
        raise UserError("name a new folder for the exported policy: --to=FOLDER")
    if config.to.exists() and (not config.to.is_dir() or any(config.to.iterdir())):
        raise UserError(f"--to={config.to} is not empty: name a new folder")
    if config.precision not in (able := FORMATS[config.format].precisions):
        raise UserError(f"--precision={config.precision}: --format={config.format} computes in {', '.join(able)}")
    if config.recipe is not None:
        check_recipe(flags, config.recipe, ["inference"])
    return flags, config


def study(flags: SubjectFlags, config: ExportConfig, live: Live) -> Studied:
    """Load the policy, export it, and check the export. Raises UserError."""
    from strobe.core.report import verify as shown
    from strobe.core.treatments.treatment import Variant
    from strobe.export import folder
    from strobe.lerobot.policies.policy_of import require_policy

    require(config.format)
    assert config.to is not None  # checked when it was read
    subject = require_policy(load_subject(flags, config, live))
    inside, outside = split_recipe_treatments(config.recipe)
    undo = Variant("recipe", inside).apply(subject)
    try:
        folder.write(subject, config.to, folder.ExportOptions(config.format, config.precision), live.stage)
    finally:
        undo()
    result = verify_export(subject, config, config.to, live)
    said = " ".join(shown.answers(result))
    folder.write_readme(config.to, said)
    result.notes += [f"exported to {config.to}: {folder.size(config.to)}", *recipe_notes(config.recipe)]
    if outside:
        result.notes.append(
            f"of {config.recipe}, not in the export: {', '.join(treatment.written for treatment in outside)}. They say "
            "how torch computes, and the export's engine does that its own way (--precision gives its dtype)"
        )
    return build_study_answer(result, flags, config, code=EXIT_CODES[result.outcome])


run = Command(
    "export",
    __doc__,
    ExportConfig,
    read,
    study,
    subject="policy",
    heavy="untimed",
    gives_way=True,
)
