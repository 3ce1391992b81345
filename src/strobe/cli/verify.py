"""strobe verify: does a policy with a recipe on it act as it does without? The whole check, without timing.

Both are run on at least 16 observations that differ in frame, state, prompt, its length, and in the cameras that are
there, with the same noise: earlier observations again, after a reset, with Real-Time Chunking and without where the
policy has it, and with the treatments put on for one call alone. Errors are given per action dimension, in units of its
spread (σ), next to reference values from the same run: how far the untouched policy's own actions move when its sums
are taken in another order, by another noise draw, by the next frame.

The guard is --guard, else the recipe's own. Exact treatments must agree as well as reordered sums do, also by
themselves where the recipe has others.

Exit code: 0 where it acts the same, 1 where it does not, 2 for wrong input, 3 where the guard could not be judged (the
answer says what to give), 130 after Ctrl-C.

Examples:
  strobe verify --recipe=recipe.yaml --policy.path=FOLDER --dataset.root=DATASET
  strobe verify --recipe=recipe.yaml --policy.path=FOLDER --env.type=pusht
  strobe verify --recipe=recipe.yaml --policy.path=FOLDER --guard "rms<=0.01, worst<=0.1, flips<=0"
  strobe verify --recipe=recipe.yaml --policy.type=pi05 --policy.size=tiny        synthetic observations, random weights
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from strobe.cli.bounds import above, at_least
from strobe.cli.flags import InputFlags, OutputFlags, RecipeFlags, SubjectFlags, check_recipe, read_flags
from strobe.cli.live import Live
from strobe.cli.runner import EXIT_CODES, Command, Studied
from strobe.cli.subject import load_subject, recipe_notes, studied
from strobe.cli.subject_flags import ModelFlags
from strobe.errors import UserError

UNTIMED = (
    "iterations", "interval", "batch_size", "depth", "serialised", "skip_counting", "operators", "skip_detailed",
    "python_profile", "profile_functions", "memory_snapshot", "pace", "rtc", "inference_delay",
)  # fmt: skip
REFUSED = {
    f"--{name}": f"--{name} is about timing or calls, which verify chooses itself: leave it out" for name in UNTIMED
}


@dataclass
class VerifyConfig(OutputFlags, RecipeFlags, InputFlags):
    """Flags of `strobe verify`."""

    # How far the actions may be from the untouched policy's, e.g. "rms<=0.02, worst<=0.2, flips<=0" (default: the
    # recipe's own guard, else by what its treatments do).
    guard: str = ""
    # How many observations to look at.
    observations: int = field(default=16, metadata=at_least(2))
    # How many times to go through them, each time in another order.
    passes: int = field(default=2, metadata=at_least(1))
    # Seconds that all of it may take, roughly: where a chunk takes long, fewer observations are looked at, 4 at least.
    # A machine that becomes slower on the way gets three times as long for those 4; then nothing is judged.
    seconds: float | None = field(default=600.0, metadata=above(0))


def read(argv: Sequence[str]) -> tuple[SubjectFlags, VerifyConfig]:
    """Return the command's flags, checked. Raises UserError."""
    from strobe.measure.guard import Guards

    flags, config = read_flags(VerifyConfig, argv, refused=REFUSED)
    if isinstance(flags, ModelFlags):
        raise UserError("a model does not act: strobe compare shows how far its features are apart")
    if config.recipe is None:
        raise UserError("name the recipe to verify: --recipe=recipe.yaml (strobe optimize writes one)")
    check_recipe(flags, config.recipe, ["inference"])
    try:
        guard = Guards.parse(config.guard)
        if guard.requested is not None:
            guard.requested.require_figures("actions")
    except UserError as error:
        raise UserError(f"--guard={error}") from None
    if guard.success_drop is not None:
        raise UserError(f"--guard={config.guard}: success_drop is seen in episodes: strobe optimize plays them")
    return flags, config


def study(flags: SubjectFlags, config: VerifyConfig, live: Live) -> Studied:
    """Load the policy and verify the recipe on it. Raises UserError."""
    subject = load_subject(flags, config, live)
    from strobe.measure.guard import Guards
    from strobe.results.recipe import require_kind
    from strobe.studies.verify import verify
    from strobe.treatments.recipe import guards_of, load
    from strobe.treatments.treatment import policy_of

    assert config.recipe is not None  # checked when it was read
    policy = policy_of(subject)
    recipe = load(config.recipe)
    require_kind(policy.info.kind, recipe, config.recipe.name)
    guards = Guards.parse(config.guard) if config.guard.strip() else guards_of(recipe)
    result = verify(
        policy,
        recipe,
        config.recipe.name,
        guards,
        live,
        count=config.observations,
        passes=config.passes,
        seconds=config.seconds or math.inf,
    )
    result.notes += recipe_notes(config.recipe)
    return studied(result, flags, config, code=EXIT_CODES[result.outcome])


run = Command("verify", __doc__, VerifyConfig, read, study, subject="policy or model", heavy="untimed", gives_way=True)
