"""strobe verify: does a policy with a recipe act like the policy without it?

Runs both on at least 16 observations with the same noise. The observations differ in frame, state, prompt and cameras.
Strobe also repeats earlier observations, after a reset, and with and without Real-Time Chunking. Nothing is timed.

Errors are per action dimension, in σ: the spread of that dimension. For comparison, the same run measures
floating-point noise (sums in another order), another noise draw, and the next frame. --guard sets the limits; the
default is the recipe's own guard. The check takes up to --seconds (10 minutes).

Examples:
  strobe verify --recipe=recipe.yaml --policy.path=FOLDER --dataset.root=DATASET
  strobe verify --exported=EXPORT --policy.path=FOLDER --dataset.root=DATASET     the folder that strobe export wrote

More:
More examples:
  strobe verify --recipe=recipe.yaml --policy.path=FOLDER --env.type=pusht
  strobe verify --recipe=recipe.yaml --policy.path=FOLDER --guard "rms<=0.01, worst<=0.1, flips<=0"
  strobe verify --recipe=recipe.yaml --policy.path=demo --env.type=metaworld_state    the trained policy of Strobe's own
  strobe verify --recipe=recipe.yaml --policy.type=pi05 --policy.size=tiny        synthetic observations, random weights
  strobe verify --recipe=recipe.yaml --policy.factory=FILE.py:make                a policy of another project
  strobe verify --policy.path=FOLDER --against_python=.venv-next/bin/python       another environment

Exact treatments may change the actions by floating-point noise only. If the recipe has other treatments too, Strobe
also checks the exact ones by themselves. For a few calls it applies the treatments just before the call.

Exit code: 0 if the policy acts the same, 1 if it does not, 2 for wrong input, 3 if that is inconclusive (the answer
names the missing flag), 130 after Ctrl-C.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from strobe.core.cli.bounds import exclusive_minimum_bound, minimum_bound
from strobe.core.cli.live import Live
from strobe.core.cli.runner import EXIT_CODES, Command, Studied
from strobe.core.errors import UserError
from strobe.core.slices import Offer
from strobe.lerobot.policies.options import FactoryOptions
from strobe.policy_cli.run_flags import InputFlags, RecipeFlags, check_recipe, read_flags
from strobe.policy_cli.subject import build_study_answer, load_subject, recipe_notes
from strobe.policy_cli.subject_flags import ModelFlags

if TYPE_CHECKING:
    from strobe.core.results.answer import VerifyResult
    from strobe.core.subjects.subject import Subject

UNTIMED = (
    "iterations", "interval", "batch_size", "depth", "serialised", "skip_counting", "nvtx", "operators", "memory",
    "skip_detailed", "python_profile", "profile_functions", "memory_snapshot", "pace", "rtc", "inference_delay",
)  # fmt: skip
REFUSED = {
    f"--{name}": f"--{name} is for timing or calls, which strobe verify chooses itself: leave it out"
    for name in UNTIMED
}


class Effort(TypedDict):
    """How much a check looks at: observations, passes over them, seconds."""

    count: int
    passes: int
    seconds: float


@dataclass
class VerifyConfig(RecipeFlags, InputFlags):
    """Flags of `strobe verify`."""

    # Folder that strobe export wrote. Strobe runs its program as a user does, with the same noise. If the export
    # contains a recipe, name it with --recipe.
    exported: Path | None = None
    # Limits on the change of the actions, such as "rms<=0.02, worst<=0.2, flips<=0" (default: the recipe's own guard,
    # else the usual limits for the effects of its treatments).
    guard: str = ""
    # Number of observations.
    observations: int = field(default=16, metadata=minimum_bound(2))
    # Passes over the observations, each in another order.
    passes: int = field(default=2, metadata=minimum_bound(1))
    # Seconds for the whole check, roughly. A slow policy gets fewer observations, but at least 4. These may take three
    # times as long if the machine becomes slower; after that the result is inconclusive.
    seconds: float | None = field(default=600.0, metadata=exclusive_minimum_bound(0))

    @property
    def effort(self) -> Effort:
        """The arguments of a verification that the flags give."""
        return Effort(count=self.observations, passes=self.passes, seconds=self.seconds or math.inf)


VERIFY_EXPORT: Offer[Callable[[Subject, VerifyConfig, Path, Live], VerifyResult]] = Offer("verification of exports")


def read(argv: Sequence[str]) -> VerifyConfig:
    """Return the command's flags, checked. Raises UserError."""
    from strobe.core.measure.guard import Guards

    config = read_flags(VerifyConfig, argv, refused=REFUSED)
    if isinstance(config.subject, ModelFlags):
        raise UserError("a model has no actions: strobe compare shows how far its features change")
    if config.exported is not None:
        _check_export(config)
    elif config.recipe is None:
        raise UserError("name the recipe to verify: --recipe=recipe.yaml (strobe optimize writes one)")
    if config.recipe is not None:
        check_recipe(config.subject, config.recipe, ["inference"], config.device)
    judged = "outputs" if isinstance(config.subject, FactoryOptions) else "actions"
    Guards.from_flag(config.guard, judged, "strobe optimize")
    return config


def _check_export(config: VerifyConfig) -> None:
    if isinstance(config.subject, FactoryOptions):
        raise UserError("--exported is for policies of LeRobot")
    if config.exported is not None and not (config.exported / "export.json").is_file():
        raise UserError(f"--exported={config.exported}: this folder has no export.json (of strobe export)")


def study(config: VerifyConfig, live: Live) -> Studied:
    """Load the policy and verify the recipe, or the export, on it. Raises UserError."""
    verify_export = None if config.exported is None else VERIFY_EXPORT.require()
    subject = load_subject(config, live)
    if verify_export is not None and config.exported is not None:
        result = verify_export(subject, config, config.exported, live)
        return build_study_answer(result, config, code=EXIT_CODES[result.outcome])
    from strobe.core.measure.guard import Guards
    from strobe.core.results.recipe import require_kind
    from strobe.core.studies.verify_outputs import verify_recipe
    from strobe.core.subjects.callable_subject import CallableSubject
    from strobe.core.treatments.recipe import load, recipe_guards
    from strobe.lerobot.config_fields import require_policy
    from strobe.lerobot.verify import verify

    assert config.recipe is not None  # checked when it was read
    recipe, name = load(config.recipe), config.recipe.name
    require_kind(subject.info.kind, recipe, name)
    guards = Guards.parse(config.guard) if config.guard.strip() else recipe_guards(recipe)
    if isinstance(subject, CallableSubject):
        result = verify_recipe(subject, recipe, name, replace(guards, kind="outputs"), live, **config.effort)
    else:
        result = verify(require_policy(subject), recipe, name, guards, live, **config.effort)
    result.notes += recipe_notes(config.recipe)
    return build_study_answer(result, config, code=EXIT_CODES[result.outcome])


run = Command(
    "verify",
    __doc__,
    VerifyConfig,
    read,
    study,
    subject="policy or model",
    heavy="untimed",
    gives_way=True,
    common={
        "What to check": ("recipe", "exported", "guard"),
        "Policy": ("policy.path", "policy.type", "policy.size", "policy.factory", "device"),
        "Observations": ("dataset", "env", "observations", "passes"),
        "Length": ("seconds",),
        "Output": ("output_dir",),
    },
)
