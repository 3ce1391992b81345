"""A recipe: treatments that make a policy fast, in a file that people read and any machine loads.

`strobe.treatments` knows the meaning of the treatments, and its ``recipe.load`` checks them.
`strobe.core.runs.recipe_file` reads and writes the file. Here it is data.
"""

from __future__ import annotations

from datetime import datetime, timezone

from pydantic import Field

from strobe.core.errors import UserError
from strobe.core.results.agreement import Agreement, Effect
from strobe.core.results.data import Data, Finite, many, mapping, optional

VERSION = 1
NOT_USED = "strobe_recipe_not_used"  # attribute of a log record: why a robot's process did not use a recipe, in words


class RecipeRung(Data):
    """Speed and cost of one treatment, together with those before it."""

    name: str
    ms: Finite = Field(description="median time of one chunk")
    hz: Finite = Field(description="chunks per second")
    times: Finite = Field(description="speed relative to the baseline")
    effect: Effect
    cosine: Finite | None = optional("cosine with the baseline's actions")
    rms: Finite | None = optional("σ: RMS distance from the baseline's actions")
    worst: Finite | None = optional("σ: largest such distance")
    build_s: Finite | None = optional("seconds to put it on: compiling, building, calibrating")


class RecipeEpisodes(Data):
    """Episodes of the treated policy in a simulator, and the baseline's from the same starts."""

    environment: str
    pairs: int
    success: Finite = Field(description="share of the treated policy's episodes, 0 to 1")
    baseline_success: Finite = Field(description="share of the baseline's")
    possible_drop: Finite = Field(description="loss of success rate that these pairs cannot exclude, 0 to 1")
    same: int = Field(description="pairs in which all actions were bit-identical")


class Recipe(Data):
    """Treatments for one type of policy, with their measured effect and the machine."""

    version: int = VERSION
    policy: str = Field(description="the policy's type, e.g. 'pi05'")
    size: str = Field(default="full", description="size of the policy that it was found on")
    object: str = Field(
        default="", description="class of the Python object that it was found on; '' for a LeRobot policy"
    )
    treatments: list[dict[str, str | int | Finite | bool]] = Field(
        min_length=1, description="treatments as in --variant: a key with its value, then its options"
    )
    guard: str = Field(default="", description="what the agreement must satisfy, e.g. 'rms<=0.02, worst<=0.2'")
    agreement: Agreement | None = optional("the treated policy against the baseline")
    episodes: RecipeEpisodes | None = optional("paired episodes in a simulator, if requested")
    baseline_ms: Finite | None = optional("median time of one chunk of the baseline")
    ms: Finite | None = optional("median time of one chunk of the treated policy")
    rungs: list[RecipeRung] = many("what each treatment gained, in order")
    device_name: str = ""
    versions: dict[str, str] = mapping("versions of strobe, lerobot, transformers and torch")
    command: str = Field(default="", description="the command that found the recipe")
    made: datetime = Field(default_factory=lambda: datetime.now(timezone.utc).replace(microsecond=0))


def require_kind(kind: str, recipe: Recipe, name: str = "recipe") -> None:
    """Raise UserError unless ``recipe`` is for policies (or models) of the type ``kind``."""
    if kind != recipe.policy:
        raise UserError(f"{name} is a recipe for the type '{recipe.policy}', and this is '{kind}'")
