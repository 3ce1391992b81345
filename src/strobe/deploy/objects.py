"""A recipe on a policy of another project, in the program that runs it: on a torch module, or an object with some."""

from __future__ import annotations

import gc
import warnings
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from strobe.core.errors import UserError
from strobe.core.results import units
from strobe.core.results.recipe import Recipe
from strobe.core.runs.recipe_file import NAME
from strobe.core.subjects.callable_subject import CallableSubject
from strobe.core.subjects.callables import METHODS, Target, make_target
from strobe.core.subjects.subject import Phase
from strobe.core.treatments import recipe as recipes
from strobe.core.treatments.treated import Treated, find_treated
from strobe.core.treatments.treatment import Variant

P = TypeVar("P")


def apply_recipe(recipe: Recipe | str | PathLike[str], policy: P, inputs: Any = None) -> P:
    """Apply a recipe to ``policy``, until `revert_recipe`, and return the policy.

        policy = strobe.apply_recipe("runs/2026-11-26_1200_optimize_mypolicy", MyPolicy())

    The recipe is one that `strobe optimize --policy.factory` or `strobe.optimize` found. It warns if the
    class or the versions of packages differ from those of the search. It does not check how far the outputs change:
    `strobe.verify` does that.

    The original weights stay in memory, so that `revert_recipe` can restore them. With a recipe the policy is for
    inference: call it under `torch.no_grad()`. It warns if another policy or module in memory shares a module or a
    weight with this one, because the recipe changes both. A module that an object gets later has no recipe.

    Args:
        recipe: the file, the folder of the run, or what `strobe.optimize` returned as ``answer.recipe``.
        policy: a torch module, or an object with modules among its attributes.
        inputs: one input, or a list of inputs, as `strobe.compare` takes them. Only treatments that calibrate use them.

    Raises:
        UserError: no such file; a recipe for a type of LeRobot's policies; one of its modules is missing, or a
            treatment does not apply; a recipe is already applied to the policy. Then nothing stays applied.
    """
    made, name = _read(recipe)
    if not made.object:
        raise UserError(f"{name} is a recipe for the type '{made.policy}': strobe.load_policy loads a policy with it")
    target = make_target("policy", policy)
    if not target.modules:
        raise UserError(f"{name}: no torch module was found in {target.label}: there is nothing to apply it to")
    if (other := _find_treated(policy)) is not None:
        raise UserError(
            f"{other.variant.name} is already applied to this policy: strobe.revert_recipe(policy) reverts it"
        )
    given = list(inputs) if type(inputs) is list else [inputs]
    subject = CallableSubject([target], given) if inputs is not None else _WithoutInputs([target], [()])
    treatments = recipes.make_treatments(made, name)
    notes = recipes.differences(made, name)
    if made.object != target.label:
        notes.append(f"{name} was found on a {made.object}, and this is a {target.label}: its figures may not hold")
    if sharing := _find_sharers(target):
        notes.append(f"{name} changes {units.join_names(sharing)} too: it shares modules or weights with this policy")
    Treated(subject, Variant(name, treatments))
    for line in notes:
        warnings.warn(line, stacklevel=2)
    return policy


def revert_recipe(policy: P) -> P:
    """Revert the recipe of `apply_recipe`, and return ``policy``. Raises UserError if no recipe is applied."""
    found = _find_treated(policy)
    if found is None:
        raise UserError("no recipe is applied to this policy: there is nothing to revert")
    found.revert()
    return policy


class _WithoutInputs(CallableSubject):
    """A target that a treatment cannot call."""

    def call(self, phase: Phase, batch_size: int = 1) -> Any:
        raise UserError("it is calibrated on observations: pass them, strobe.apply_recipe(recipe, policy, inputs)")


def _find_treated(policy: object) -> Treated | None:
    modules = make_target("policy", policy).modules.values()
    return next((found for module in modules if (found := find_treated(module)) is not None), None)


def _find_sharers(target: Target) -> list[str]:
    """Return the classes of other policies and modules in memory that hold a module or a weight of ``target``."""
    modules = [module for top in target.modules.values() for module in top.modules()]
    parts = {id(part) for part in (*modules, *target.module.parameters())} - {id(target.owner)}
    own, found = {id(target.owner), id(target.module), *map(id, modules)}, dict[str, None]()
    for other in gc.get_objects():
        kind = type(other)  # not isinstance: lazy objects make themselves when they are asked
        if id(other) in own or kind.__module__ == make_target.__module__:  # a holder of an object's modules
            continue
        if not issubclass(kind, nn.Module) and not any(name in vars(kind) for name in METHODS):
            continue
        held = list(getattr(other, "__dict__", {}).values())
        if issubclass(kind, nn.Module):
            held = [*other._modules.values(), *other._parameters.values()]
        if any(id(each) in parts for each in held):
            found[kind.__name__] = None
    return list(found)


def _read(recipe: Recipe | str | PathLike[str]) -> tuple[Recipe, str]:
    """Return the recipe, and its name for messages. Raises UserError."""
    if isinstance(recipe, Recipe):
        return recipe, "recipe"
    path = Path(recipe)
    if path.is_dir():
        path /= NAME
        if not path.is_file():
            raise UserError(f"there is no {NAME} in {path.parent}: the search found nothing faster")
    return recipes.load(path), path.name
