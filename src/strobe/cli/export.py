"""strobe export: a policy as files that run without torch, and proof that they act as the policy does.

Writes the whole policy into a folder, in OpenVINO: its processors, its sampling and its weights in one model. A
program of 80 lines beside it, policy.py, runs it with OpenVINO and NumPy, without torch and without LeRobot. A policy
that reads a prompt also gets its tokenizer's file (pip install tokenizers).

Then Strobe runs that program and the untouched policy on at least 16 observations with the same noise, and judges the
actions as `strobe verify` does. The README in the folder holds what the check said. `strobe verify --exported=FOLDER`
checks it again, on other observations or another machine.

What a policy draws at random is an input of the model. So the check gives torch and the export the same noise, and
policy.py draws its own.

Not in an export: Real-Time Chunking, missing cameras (all that the first observation has are needed), and prompts that
hold more than the task (pi0.5 writes the state into it). The command names what cannot be exported, with the reason.

Exit code: 0 if the export acts the same, 1 if it does not, 2 for wrong input or a policy that cannot be exported, 3 if
the guard could not be judged, 130 after Ctrl-C.

Examples:
  strobe export --policy.path=FOLDER --dataset.root=DATASET --to=EXPORT
  strobe export --policy.path=FOLDER --to=EXPORT --precision=bf16          faster on CPUs that have it
  strobe export --policy.path=FOLDER --recipe=recipe.yaml --to=EXPORT      with fewer denoising steps, for example
  strobe export --policy.type=act --policy.size=tiny --to=EXPORT           random weights, to try it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strobe.cli.bounds import checked
from strobe.cli.flags import SubjectFlags, check_recipe, read_flags
from strobe.cli.live import Live
from strobe.cli.runner import EXIT_CODES, Command, Studied
from strobe.cli.subject import load_subject, recipe_notes, studied
from strobe.cli.subject_flags import ModelFlags
from strobe.cli.verify import REFUSED, VerifyConfig, verify_export
from strobe.errors import UserError
from strobe.policies.options import FactoryOptions

PRECISIONS = ("fp32", "bf16")


def _known(name: str) -> str:
    return "" if name in PRECISIONS else f"take one of {', '.join(PRECISIONS)}"


@dataclass
class ExportConfig(VerifyConfig):
    """Flags of `strobe export`."""

    # New folder for the exported policy.
    to: Path | None = None
    # The dtype in which the engine computes: fp32 or bf16. The weights are kept in float32.
    precision: str = field(default="fp32", metadata=checked(_known))


def read(argv: Sequence[str]) -> tuple[SubjectFlags, ExportConfig]:
    """Return the command's flags, checked. Raises UserError."""
    flags, config = read_flags(ExportConfig, argv, refused=REFUSED)
    if isinstance(flags, ModelFlags | FactoryOptions):
        raise UserError("strobe export is for policies of LeRobot")
    if config.exported is not None:
        raise UserError("--exported is what strobe verify checks: name the new folder with --to")
    if config.to is None:
        raise UserError("name a new folder for the exported policy: --to=FOLDER")
    if config.to.exists() and (not config.to.is_dir() or any(config.to.iterdir())):
        raise UserError(f"--to={config.to} is not empty: name a new folder")
    if config.recipe is not None:
        check_recipe(flags, config.recipe, ["inference"])
    return flags, config


def study(flags: SubjectFlags, config: ExportConfig, live: Live) -> Studied:
    """Load the policy, export it, and check the export. Raises UserError."""
    from strobe.exports import folder
    from strobe.report import verify as shown

    folder.require_engine()
    assert config.to is not None  # checked when it was read
    subject: Any = load_subject(flags, config, live)
    undo = _with_recipe(subject, config.recipe)
    try:
        folder.write(subject, config.to, config.precision, live.stage)
    finally:
        undo()
    result = verify_export(subject, config, config.to, live)
    said = " ".join(shown.answers(result))
    folder.write_readme(config.to, said)
    result.notes += [f"exported to {config.to}: {folder.size(config.to)}", *recipe_notes(config.recipe)]
    return studied(result, flags, config, code=EXIT_CODES[result.outcome])


def _with_recipe(subject: Any, path: Path | None) -> Callable[[], None]:
    """Put the recipe at ``path`` on ``subject``; the result takes it off. Raises UserError for what is built."""
    if path is None:
        return lambda: None
    from strobe.treatments.recipe import load, treatments_of
    from strobe.treatments.treatment import Variant

    treatments = treatments_of(load(path), path.name)
    built = [treatment.written for treatment in treatments if treatment.builds]
    if built:
        raise UserError(f"{path}: an export is one engine of its own, so leave out {', '.join(built)}")
    return Variant(path.name, treatments).apply(subject)


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
