"""Put a recipe on a subject: its treatments in the order in which they belong, each known by its rung in the file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from strobe.core.errors import UserError
from strobe.core.measure.guard import Guard, Guards, strongest
from strobe.core.measure.host import versions
from strobe.core.results.recipe import Recipe, require_kind
from strobe.core.runs import recipe_file as files
from strobe.core.subjects.subject import Subject
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Effect, Spec, Treatment, Undo

if TYPE_CHECKING:
    import torch

ALL, EXACT_ALONE = "the whole recipe", "its exact part"
PACKAGES = ("strobe", "lerobot", "transformers", "torch")


def load(path: Path | str) -> Recipe:
    """Read a recipe whose treatments and guard are known here. Raises UserError with the path and the field."""
    recipe = files.load(path)
    for number, spec in enumerate(recipe.treatments, 1):
        try:
            _make_treatment(spec)
        except UserError as error:
            raise UserError(f"{path}: treatments.{number}: {error}") from None
    try:
        recipe_guard(recipe)
    except UserError as error:
        raise UserError(f"{path}: guard: {error}") from None
    return recipe


def recipe_guard(recipe: Recipe, effects: Sequence[Effect] = ("rounding",)) -> Guard:
    """Return the guard on the actions that the recipe is loaded under.

    That is the recipe's own, where it has limits on the actions. Else the usual one for ``effects``, those of its
    treatments, as `strobe verify` has it. A recipe that episodes judge, by `success_drop`, may move the actions by
    more: it is held to twice what it recorded, on other observations, maybe on another machine. One that recorded a
    cosine alone is held to twice its distance from 1.
    """
    written = Guard.parse(recipe.guard) if recipe.guard else None
    if written is not None and written.has_action_limits:
        # A cosine alone was the guard of all treatments once: such a recipe is held to what it says.
        return (
            written
            if written.blind_spots or strongest(effects) != "exact"
            else Guards(written).strictest_guard(effects)
        )
    recorded = recipe.agreement
    if recorded is not None and recorded.rms is None:
        return Guard({"cosine": 1 - 2 * (1 - recorded.cosine) - 1e-6})
    usual = Guards().strictest_guard(effects)
    if recorded is None or usual.exact or written is None or written.success_drop is None:
        return usual
    return Guard({name: max(limit, 2 * (getattr(recorded, name) or 0.0)) for name, limit in usual.limits.items()})


def recipe_guards(recipe: Recipe) -> Guards:
    """Return the guard of each effect: the recipe's own limits, where it has some on the actions."""
    written = Guard.parse(recipe.guard) if recipe.guard else None
    if written is None and recipe.agreement is not None and recipe.agreement.rms is None:
        written = recipe_guard(recipe)
    return Guards(written if written is not None and written.limits else None)


@dataclass(frozen=True)
class RecipeTreatment(Treatment):
    """A treatment of a recipe. Its errors give its number in the recipe, and what is written there."""

    treatment: Treatment
    rank: int
    label: str
    written: str  # as on a command line
    recipe: str | None = None

    def apply(self, subject: Subject) -> Undo:
        with _label_errors(self.label):
            return self.treatment.apply(subject)

    def settle(self) -> bool:
        """Free what only undoing needs, where the treatment knows how; return whether there was something."""
        settle = getattr(self.treatment, "settle", None)
        return settle is not None and bool(settle())


# All others are those of the treatment inside, its methods too.
for _member in {*Treatment.__annotations__, *vars(Treatment)} - {"apply", "recipe"}:
    if not _member.startswith("_"):
        setattr(RecipeTreatment, _member, property(attrgetter(f"treatment.{_member}")))


def check_device(recipe: Recipe, device: torch.device | None) -> None:
    """Raise UserError where a treatment of ``recipe`` does not work on ``device``; None if that is not known."""
    if device is not None:
        for spec in recipe.treatments:
            catalogue.make(spec).check_device(device)


def make_treatments(recipe: Recipe, name: str = "recipe") -> tuple[RecipeTreatment, ...]:
    """Return the recipe's treatments in the order in which they are applied; they can be reverted and applied again.

    Args:
        name: the file's name, for messages and facts.

    Raises:
        UserError: a rung that means nothing here, with its number and what is written there.
    """
    rungs = []
    for number, spec in enumerate(recipe.treatments, 1):
        label = f"{name}: step {number} ({catalogue.format_spec(spec)})"
        with _label_errors(label):
            treatment = _make_treatment(spec)
        rungs.append(RecipeTreatment(treatment, catalogue.spec_rank(spec), label, catalogue.format_spec(spec), name))
    return tuple(sorted(rungs, key=lambda rung: rung.rank))


def check_groups(treatments: Sequence[RecipeTreatment]) -> list[tuple[str, tuple[RecipeTreatment, ...]]]:
    """Return what a recipe is checked by, each with a name: its exact treatments if there are others, then all."""
    exact = tuple(treatment for treatment in treatments if treatment.effect == "exact")
    exact_only = [(EXACT_ALONE, exact)] if exact and len(exact) < len(treatments) else []
    return [*exact_only, (ALL, tuple(treatments))]


def load_rungs(subject: Subject, path: Path | None) -> tuple[RecipeTreatment, ...]:
    """Return new treatments of the recipe at ``path``; none for None. Raises UserError for another type's recipe."""
    if path is None:
        return ()
    recipe = load(path)
    require_kind(subject.info.kind, recipe, path.name)
    return make_treatments(recipe, path.name)


def merge_specs(rungs: Sequence[RecipeTreatment], specs: Sequence[Spec]) -> tuple[Treatment, ...]:
    """Return ``rungs`` and the treatments of ``specs``, in the order in which they are applied. Raises UserError."""
    made: list[tuple[int, Treatment]] = [(rung.rank, rung) for rung in rungs]
    made += [(catalogue.spec_rank(spec), catalogue.make(spec)) for spec in specs]
    return tuple(treatment for _, treatment in sorted(made, key=lambda ranked: ranked[0]))


def differences(recipe: Recipe, name: str = "recipe") -> list[str]:
    """Return a line with the packages whose versions differ from those the recipe was made with; none if all agree."""
    here = versions(PACKAGES)
    others = [
        f"{package} {version} (here {here.get(package, 'none')})"
        for package, version in recipe.versions.items()
        if package in PACKAGES and here.get(package) != version
    ]
    return [f"{name} was made with {', '.join(others)}: its times and its agreement may not hold"] if others else []


def _make_treatment(spec: Spec) -> Treatment:
    treatment = catalogue.make(spec)
    if "inference" not in treatment.phases:
        raise UserError(f"'{next(iter(spec))}' is of training, and a recipe is for inference")
    treatment.join_recipe()
    return treatment


@contextlib.contextmanager
def _label_errors(label: str) -> Iterator[None]:
    try:
        yield
    except UserError as error:
        raise UserError(f"{label}: {error}") from error
