"""Run a policy with a recipe, outside of Strobe: in a program of one's own, or in LeRobot's.

import strobe

policy, preprocessor, postprocessor = strobe.load_policy("FOLDER_OR_HUB_ID", "recipe.yaml")
action = postprocessor(policy.select_action(preprocessor(observation)))

The policy is LeRobot's own object of LeRobot's own class; the recipe's treatments are on it for as long as it lives. It
is for inference: weights may be in another precision, so train and save the untouched policy.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from lerobot.policies.factory import get_policy_class
from lerobot.policies.pretrained import PreTrainedPolicy
from torch import Tensor

from strobe.errors import UserError, nearest
from strobe.measure.agreement import agree, in_words
from strobe.results.agreement import Agreement
from strobe.results.recipe import Recipe
from strobe.subjects import inputs, policies
from strobe.subjects.policy_subject import PolicySubject
from strobe.treatments import recipe as recipes
from strobe.treatments.treatment import Undo, Variant

AnyRecipe = Recipe | str | PathLike[str]


@dataclass(frozen=True)
class Loaded:
    """A policy in eval mode on its device with LeRobot's processors; unpacks as these three.

    Args:
        agreement: of one chunk with the untouched policy's; None without a recipe, or where it was not checked.
    """

    policy: Any
    preprocessor: Any
    postprocessor: Any
    agreement: Agreement | None = None

    def __iter__(self) -> Iterator[Any]:
        return iter((self.policy, self.preprocessor, self.postprocessor))


def load_policy(
    path: str | PathLike[str],
    recipe: AnyRecipe | None = None,
    *,
    device: str | None = None,
    overrides: Sequence[str] = (),
    check: bool = True,
) -> Loaded:
    """Load a LeRobot checkpoint (a folder or a Hub id), and put ``recipe`` on it for good.

    Where versions differ from the recipe's, it warns.

    Args:
        device: 'cpu', 'cuda', 'cuda:1', 'mps'; None for the checkpoint's own.
        overrides: settings of the policy's config, ``--name=value`` as on LeRobot's command line.
        check: compare one chunk with the untouched policy's, on a synthetic observation with the same noise, and
            hold it against the recipe's guard. It takes the time of two chunks, and of compiling where that is asked
            for.

    Raises:
        UserError: the checkpoint or the recipe cannot be had, the recipe is for another type of policy, a rung does
            not fit (which one, and why), or the check falls short of the guard.
    """
    named = None if recipe is None else _read(recipe)
    options = [*overrides, *([f"--device={device}"] if device is not None else [])]
    config = policies.config_from_path(Path(path) if isinstance(path, PathLike) else path, options)
    if named is not None:
        recipes.require_kind(config.type, *named)
    fed = inputs.synthetic(config, count=1)
    tiny = named is not None and named[0].size == "tiny"
    loaded = policies.load(config, fed, size="tiny" if tiny else "full")
    agreement = None
    if named is not None:
        treatments = recipes.treatments_of(*named)
        _, agreement = _put(PolicySubject(loaded, fed), *named, treatments, check)
        for treatment in treatments:
            treatment.settle()
    return Loaded(loaded.policy, loaded.preprocessor, loaded.postprocessor, agreement)


@contextlib.contextmanager
def with_recipe(recipe: AnyRecipe, *, check: bool = True) -> Iterator[None]:
    """Inside, every checkpoint of the recipe's type that LeRobot loads in this process carries ``recipe``.

    For LeRobot's own programs, which load the policy themselves::

        with with_recipe("recipe.yaml"):
            lerobot_eval.main()

    It is put on at the end of ``from_pretrained``, as by `load_policy`, and stays on after the block. LeRobot's program
    makes its own processors: a treatment of those does not reach them. Where nothing was loaded, that is a warning.

    Raises:
        UserError: as `load_policy`, at the policy's loading; or the policy is a PEFT adapter.
    """
    read, name = _read(recipe)
    if read.policy not in policies.known_types():
        raise UserError(f"{name}: no policy type '{read.policy}': {nearest(read.policy, policies.known_types())}")
    kind: Any = get_policy_class(read.policy)
    plain = kind.from_pretrained.__func__
    carried: list[PreTrainedPolicy] = []

    def from_pretrained(cls: Any, pretrained_name_or_path: Any, *args: Any, **options: Any) -> Any:
        policy = plain(cls, pretrained_name_or_path, *args, **options)
        if getattr(policy.config, "use_peft", False):
            raise UserError(f"{name}: {pretrained_name_or_path} gets a PEFT adapter: merge it into its policy first")
        fed = inputs.synthetic(policy.config, count=1)
        subject = PolicySubject(policies.adopt(policy, pretrained_name_or_path), fed)
        recipes.require_kind(subject.info.kind, read, name)
        treatments = recipes.treatments_of(read, name)
        _put(subject, read, name, treatments, check)
        for treatment in treatments:
            treatment.settle()
        carried.append(policy)
        return policy

    with mock.patch.object(kind, "from_pretrained", classmethod(from_pretrained)):
        yield
    if not carried:
        warnings.warn(f"no policy of the type '{read.policy}' was loaded: {name} was put on nothing", stacklevel=3)


def _read(recipe: AnyRecipe) -> tuple[Recipe, str]:
    if isinstance(recipe, Recipe):
        return recipe, "recipe"
    return recipes.load(Path(recipe)), Path(recipe).name


def _put(
    subject: PolicySubject, recipe: Recipe, name: str, treatments: tuple[recipes.RecipeTreatment, ...], check: bool
) -> tuple[Undo, Agreement | None]:
    """Put the treatments on; nothing is left of them where one does not fit or the check falls short."""
    for line in recipes.differences(recipe, name):
        warnings.warn(line, stacklevel=3)
    before = _chunk(subject) if check else None
    undo = Variant(name, treatments).apply(subject)
    if before is None:
        return undo, None
    try:
        agreement = _agreement(before, _chunk(subject), name)
        guard = recipes.guard_of(recipe)
        if not guard.holds(agreement):
            raise UserError(
                f"{name}: not the policy that the recipe promises: {in_words(agreement)} on a synthetic observation, "
                f"and it demands {guard}; with check=False it is loaded all the same"
            )
    except BaseException:
        undo()
        raise
    return undo, agreement


def _chunk(subject: PolicySubject) -> Tensor:
    """One chunk with noise of its own, which leaves the program's generators, and the policy's queues, as they were."""
    devices = [subject.device] if subject.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        chunk = subject.chunk(0)
    subject.policy.reset()
    return chunk


def _agreement(before: Tensor, after: Tensor, name: str) -> Agreement:
    if before.shape != after.shape:
        raise UserError(
            f"{name}: chunks of {tuple(after.shape)} actions, and the untouched policy's {tuple(before.shape)}"
        )
    return agree([before], [after])
