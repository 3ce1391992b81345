"""Look at every policy that LeRobot has loaded from a checkpoint, and put a recipe on it where there is one.

LeRobot imports plug-ins in all its commands, also in those that load no policy. So nothing is imported here, and
nothing happens until a policy is loaded that a recipe is for.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import logging
import os
import sys
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any

logger = logging.getLogger("strobe")

RECIPE, WATCH = "STROBE_RECIPE", "STROBE_WATCH"
FILE = "recipe.yaml"
_BASE = "lerobot.policies.pretrained"
_TRAINING = "lerobot.scripts.lerobot_train"
_OFF = ("off", "no", "none", "false", "0")
_MARK = "_strobe_looks_at_it"

_loading: ContextVar[bool] = ContextVar("loading", default=False)


def install() -> None:
    """Have `from_pretrained` of LeRobot's policies, of those to come as well, end with a look for a recipe."""
    module = sys.modules.get(_BASE)
    base = getattr(module, "PreTrainedPolicy", None)
    if base is not None:
        _wrap_loaders(base)
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _wrap_loaders(base: Any) -> None:
    """Wrap ``from_pretrained`` of the base class, and of all classes that have one of their own."""
    if _MARK in vars(base):
        return
    setattr(base, _MARK, True)
    classes = [base]
    while classes:
        kind = classes.pop()
        _wrap(kind)
        classes += kind.__subclasses__()
    plain = vars(base)["__init_subclass__"].__func__

    def init_subclass(cls: Any, **options: Any) -> None:
        plain(cls, **options)
        _wrap(cls)

    base.__init_subclass__ = classmethod(init_subclass)


def _wrap(kind: Any) -> None:
    own = vars(kind).get("from_pretrained")
    if not isinstance(own, classmethod) or hasattr(own.__func__, _MARK):
        return
    inner = own.__func__

    @functools.wraps(inner)
    def from_pretrained(cls: Any, *args: Any, **options: Any) -> Any:
        if _loading.get():  # a class that calls its parent's
            return inner(cls, *args, **options)
        token = _loading.set(True)
        try:
            policy = inner(cls, *args, **options)
        finally:
            _loading.reset(token)
        path = args[0] if args else options.get("pretrained_name_or_path")
        try:
            _apply_recipe(policy, path, options)
        except Exception:  # a robot waits for its policy
            logger.exception("strobe: no recipe was applied; the policy runs unchanged")
        return policy

    setattr(from_pretrained, _MARK, True)
    kind.from_pretrained = classmethod(from_pretrained)


def _apply_recipe(policy: Any, path: Any, options: dict[str, Any]) -> None:
    by = sys.modules.get("strobe.lerobot.policies.lerobot_policies")
    if by is not None and by.is_strobe_loading():  # Strobe measures the baseline, or applies a recipe itself
        return
    said = os.environ.get(RECIPE, "").strip()
    if said.lower() in _OFF:
        return
    recipe = Path(said).expanduser() if said else _find_adjacent_recipe(path, options)
    if recipe is None:
        return
    if _TRAINING in sys.modules:
        _log_unused_recipe(recipe.name, "recipes are for inference, and this is a training")
        return
    try:
        from strobe.deploy.trial import apply_on_trial
    except ImportError as error:
        _log_unused_recipe(recipe.name, f"Strobe cannot be imported ({error}): pip install strobe-lab")
        return
    apply_on_trial(policy, path, recipe, _share())


def _find_adjacent_recipe(path: Any, options: dict[str, Any]) -> Path | None:
    """Return the recipe next to the weights, in a folder or on the Hub."""
    if path is None:
        return None
    folder = Path(str(path))
    if folder.is_dir():
        return folder / FILE if (folder / FILE).is_file() else None
    from huggingface_hub import hf_hub_download

    known = ("revision", "cache_dir", "token", "local_files_only")
    given = {name: options[name] for name in known if options.get(name) is not None}
    try:
        return Path(hf_hub_download(str(path), FILE, **given))
    except Exception:  # most checkpoints hold none, and the Hub may be out of reach
        return None


def _share() -> float:
    said = os.environ.get(WATCH, "").strip()
    if not said:
        return 0.0
    try:
        share = float(said)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        logger.warning("strobe: %s=%s must be a share of the chunks from 0 to 1: nothing is watched", WATCH, said)
        return 0.0
    return share


def _log_unused_recipe(name: str, why: str) -> None:
    line = "strobe: %s is not used: %s; the policy runs unchanged"
    logger.warning(line, name, why, extra={"strobe_recipe_not_used": f"{name} is not used: {why}"})


class _Finder(importlib.abc.MetaPathFinder):
    """Waits for the module of LeRobot's base class, and looks at it once it has run."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _BASE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                _wrap_loaders(vars(module)["PreTrainedPolicy"])

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
