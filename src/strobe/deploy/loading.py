"""Load a policy with a recipe on it, or have LeRobot's own programs load it so."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any
from unittest import mock

from lerobot.policies.factory import get_policy_class

from strobe.core.errors import UserError, nearest
from strobe.core.results.agreement import Agreement
from strobe.core.results.recipe import Recipe
from strobe.core.treatments import recipe as recipes
from strobe.deploy.checking import Applied, apply_checked_recipe
from strobe.deploy.live_check import Watch, require_share
from strobe.lerobot.policies import inputs, lerobot_policies
from strobe.lerobot.policies.policy_subject import PolicySubject

AnyRecipe = Recipe | str | PathLike[str]


@dataclass
class Loaded:
    """A policy in eval mode on its device with LeRobot's processors; unpacks as these three.

    Args:
        agreement: with the baseline, as the check found it; None without a recipe, or where it was not checked.
        watch: the record of a policy that is watched; None for one that is not.
    """

    policy: Any
    preprocessor: Any
    postprocessor: Any
    agreement: Agreement | None = None
    watch: Watch | None = None
    _applied: Applied | None = field(default=None, repr=False)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.policy, self.preprocessor, self.postprocessor))


def load_policy(
    path: str | PathLike[str],
    recipe: AnyRecipe | None = None,
    *,
    device: str | None = None,
    overrides: Sequence[str] = (),
    check: bool = True,
    watch: float = 0.0,
) -> Loaded:
    """Load a LeRobot checkpoint (a folder or a Hub id), and put ``recipe`` on it for good.

    Where versions differ from the recipe's, it warns.

    Args:
        device: 'cpu', 'cuda', 'cuda:1', 'mps'; None for the checkpoint's own.
        overrides: settings of the policy's config, ``--name=value`` as on LeRobot's command line.
        check: compare chunks with the baseline's, with the same noise, and compare them with the recipe's
            guard: on several synthetic observations and prompts, on returning to one, and under Real-Time Chunking
            where the policy has it. It takes about ten seconds, longer where a chunk takes seconds, and the time of
            compiling, if the recipe compiles.
        watch: share of the chunks that the baseline computes again while the robot moves, 0 to 1; 0.01 is one
            in a hundred. That is done on a thread of its own, which competes with the program for cores. At the first
            chunk that breaks the guard the policy goes back to the baseline, with a warning. The price is that the
            original weights are kept in memory besides those of the recipe's precision; and a sampled call takes the
            time of copying its observation.

    Raises:
        UserError: the checkpoint or the recipe is not available, the recipe is for another type of policy, a rung does
            not fit (which one, and why), or the check falls short of the guard.
    """
    if watch:
        require_share(watch)
    named = None if recipe is None else read(recipe)
    options = [*overrides, *([f"--device={device}"] if device is not None else [])]
    config = lerobot_policies.config_from_path(Path(path) if isinstance(path, PathLike) else path, options)
    if named is not None:
        recipes.require_kind(config.type, *named)
    fed = replace(inputs.synthetic(config, count=1), kind="pending")
    tiny = named is not None and named[0].size == "tiny"
    loaded = lerobot_policies.load(config, fed, size="tiny" if tiny else "full")
    result = Loaded(loaded.policy, loaded.preprocessor, loaded.postprocessor)
    if named is not None:
        applied = apply_checked_recipe(PolicySubject(loaded, fed), *named, check=check, twin=bool(watch))
        result.agreement, result._applied = applied.agreement, applied
        result.preprocessor = loaded.preprocessor  # which a treatment may have changed
        result.watch = _start_watch(applied, watch)
    return result


def watch(loaded: Loaded, share: float) -> Watch:
    """Watch a policy that was loaded without: ``share`` of its chunks, as `load_policy` does with ``watch``.

    Raises:
        UserError: there is no recipe on it, it is watched already, or its original weights were let go.
    """
    require_share(share)
    applied = loaded._applied
    if applied is None:
        raise UserError("this policy has no recipe, so there is nothing to watch")
    if loaded.watch is not None:
        raise UserError(f"this policy is already watched: {loaded.watch}")
    if applied.is_settled:
        raise UserError(
            f"{applied.name}: the original weights were freed when it was loaded, so there is nothing to compare "
            f"with: load it with watch={share:g}, which does not free them"
        )
    applied.undo()
    applied = apply_checked_recipe(applied.subject, applied.recipe, applied.name, check=False, twin=True)
    loaded._applied, loaded.watch = applied, Watch(applied, share)
    return loaded.watch


@contextlib.contextmanager
def attach_recipe_on_load(recipe: AnyRecipe, *, check: bool = True, watch: float = 0.0) -> Iterator[list[Watch]]:
    """Inside, every checkpoint of the recipe's type that LeRobot loads in this process carries ``recipe``.

    For LeRobot's own programs, which load the policy themselves::

        with with_recipe("recipe.yaml"):
            lerobot_eval.main()

    It is applied at the end of ``from_pretrained``, as by `load_policy`, and stays on after the block. LeRobot's
    program makes its own processors: a treatment of those does not reach them. Where nothing was loaded, that is a
    warning.

    Args:
        check, watch: as of `load_policy`.

    Yields:
        The record of each policy that is watched, in the order in which they are loaded.

    Raises:
        UserError: as `load_policy`, at the policy's loading; or the policy is a PEFT adapter.
    """
    if watch:
        require_share(watch)
    made, name = read(recipe)
    if made.policy not in lerobot_policies.known_types():
        raise UserError(
            f"{name}: no policy type '{made.policy}': {nearest(made.policy, lerobot_policies.known_types())}"
        )
    kind: Any = get_policy_class(made.policy)
    plain = kind.from_pretrained.__func__
    watches: list[Watch] = []
    carried = 0

    def from_pretrained(cls: object, pretrained_name_or_path: object, *args: object, **options: object) -> Any:
        nonlocal carried
        with lerobot_policies.mark_strobe_loading():
            policy = plain(cls, pretrained_name_or_path, *args, **options)
            applied = carry(policy, pretrained_name_or_path, made, name, check=check, twin=bool(watch))
        if (record := _start_watch(applied, watch)) is not None:
            watches.append(record)
        carried += 1
        return policy

    with mock.patch.object(kind, "from_pretrained", classmethod(from_pretrained)):
        yield watches
    if not carried:
        warnings.warn(f"no policy of the type '{made.policy}' was loaded: {name} was not used", stacklevel=3)


def carry(policy: Any, path: Any, recipe: Recipe, name: str, **options: Any) -> Applied:
    """Apply ``recipe`` to a policy that LeRobot has loaded from ``path``; ``options``: of `apply_checked_recipe`.

    Raises:
        UserError: as `load_policy`; or the policy is a PEFT adapter.
    """
    if getattr(policy.config, "use_peft", False):
        raise UserError(f"{name}: {path} has a PEFT adapter: merge it into its policy first")
    recipes.require_kind(policy.config.type, recipe, name)
    fed = replace(inputs.synthetic(policy.config, count=1), kind="pending")
    return apply_checked_recipe(PolicySubject(lerobot_policies.adopt(policy, path), fed), recipe, name, **options)


def read(recipe: AnyRecipe) -> tuple[Recipe, str]:
    """Return the recipe and its name for messages. Raises UserError for a file that is none."""
    if isinstance(recipe, Recipe):
        return recipe, "recipe"
    return recipes.load(Path(recipe)), Path(recipe).name


def _start_watch(applied: Applied, share: float) -> Watch | None:
    if share:
        return Watch(applied, share)
    applied.settle()
    return None
