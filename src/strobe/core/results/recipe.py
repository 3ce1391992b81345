"""A recipe: treatments that make a policy fast, in a file that people read and any machine loads.

`strobe.treatments` knows the meaning of the treatments, and its ``recipe.load`` checks them. `strobe.core.runs.recipe_file`
reads and writes the file. Here it is data.
"""

from __future__ import annotations

from datetime import UTC, datetime

from pydantic import Field

from strobe.core.errors import UserError
from strobe.core.results.agreement import Agreement, Effect
from strobe.core.results.data import Data, Finite

VERSION = 1
NOT_USED = "strobe_recipe_not_used"  # attribute of a log record: why a robot's process did not use a recipe, in words


class RecipeRung(Data):
    """Speed and cost of one treatment, together with those before it."""

    name: str
    ms: Finite = Field(description="of one chunk, median")
    hz: Finite = Field(description="chunks per second")
    times: Finite = Field(description="how often as fast as the untouched policy")
    effect: Effect
    cosine: Finite | None = Field(default=None, description="of the actions with the untouched policy's")
    rms: Finite | None = Field(default=None, description="σ: how far it moves the actions, root mean square")
    worst: Finite | None = Field(default=None, description="σ: how far it moves any action at most")
    build_s: Finite | None = Field(default=None, description="seconds to put it on: compiling, building, calibrating")


class RecipeEpisodes(Data):
    """Episodes of the treated policy in a simulator, and the untouched one's from the same starts."""

    environment: str
    pairs: int
    success: Finite = Field(description="share of the treated policy's episodes, 0 to 1")
    baseline_success: Finite = Field(description="share of the untouched policy's")
    possible_drop: Finite = Field(description="loss of success rate that these pairs do not exclude, 0 to 1")
    same: int = Field(description="pairs in which every action was the same to the bit")


class Recipe(Data):
    """Treatments for one type of policy, with their measured effect and the machine."""

    version: int = VERSION
    policy: str = Field(description="the policy's type, e.g. 'pi05'")
    size: str = Field(default="full", description="of the policy that it was found on")
    object: str = Field(
        default="", description="class of the object in Python that it was found on; '' for a policy of LeRobot's"
    )
    treatments: list[dict[str, str | int | Finite | bool]] = Field(
        min_length=1, description="as in --variant: a key with its value, then its options"
    )
    guard: str = Field(default="", description="what the agreement must satisfy, e.g. 'rms<=0.02, worst<=0.2'")
    agreement: Agreement | None = Field(default=None, description="of the treated policy with the untouched one")
    episodes: RecipeEpisodes | None = Field(default=None, description="in a simulator, where that was asked for")
    baseline_ms: Finite | None = Field(default=None, description="of one chunk of the untouched policy, median")
    ms: Finite | None = Field(default=None, description="of one chunk of the treated policy, median")
    rungs: list[RecipeRung] = Field(default_factory=list, description="what each treatment bought, in their order")
    device_name: str = ""
    versions: dict[str, str] = Field(default_factory=dict, description="of strobe, lerobot, transformers, torch")
    command: str = Field(default="", description="that found it")
    made: datetime = Field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0))


def require_kind(kind: str, recipe: Recipe, name: str = "recipe") -> None:
    """Raise UserError unless ``recipe`` is for policies (or models) of the type ``kind``."""
    if kind != recipe.policy:
        raise UserError(f"{name} is a recipe for the type '{recipe.policy}', and this is '{kind}'")
