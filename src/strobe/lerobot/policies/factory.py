"""A policy of any project, made by a function in the user's own Python: ``package.module:make`` or ``FILE.py:make``."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from lerobot.policies.pretrained import PreTrainedPolicy

from strobe.core.devices.accelerators import check_device, generators_restored
from strobe.core.errors import UserError, error_line, nearest
from strobe.core.subjects.callable_subject import CallableSubject
from strobe.core.subjects.callables import make_target, one_part
from strobe.lerobot.policies import inputs, lerobot_policies
from strobe.lerobot.policies.options import split_factory
from strobe.lerobot.policies.policy_subject import PolicySubject

_MOST = 200  # characters of an error's own words
OBSERVATIONS = (
    "return them with the policy, (policy, observation) or (policy, [observation, …]); a tuple is the arguments of one "
    "call, and () a call without any"
)


def load(factory: str, *, seed: int = 0, device: str | None = None) -> CallableSubject | PolicySubject:
    """Call the function that ``factory`` names, and return what it makes, ready to be run.

    torch draws its random numbers from ``seed`` meanwhile. A policy of LeRobot that comes without observations gets
    synthetic ones, and is run with LeRobot's processors.

    Args:
        device: torch's name of the device whose time is taken; None for that of the weights.

    Raises:
        UserError: a line that begins with the flag: there is no such file, module or function; it takes arguments,
            fails, or returns nothing that can be called, or no observations.
    """
    named = f"--policy.factory={factory}"
    where, name = split_factory(factory)
    check_device(device)
    with _neighbours_importable(where):
        make = _function(_module(where, named), name, named)
        with generators_restored(torch.device("cpu")):
            torch.manual_seed(seed)
            made = _call_factory(make, name, named)
    policy, observations = made if type(made) is tuple and len(made) == 2 else (made, None)
    if type(made) is tuple and len(made) != 2:
        raise UserError(f"{named}: it returns {len(made)} values: return the policy, or (policy, observations)")
    if policy is None:
        raise UserError(f"{named}: it returns None: return the policy")
    if observations is None and isinstance(policy, PreTrainedPolicy):
        made_up = inputs.synthetic(policy.config, seed=seed)
        return PolicySubject(lerobot_policies.adopt(policy, None, made_up), made_up, seed)
    try:
        target = make_target(name, policy)
        target = replace(target, name=target.label)
    except UserError as error:
        raise UserError(f"{named}: {error_line(error)}") from None
    if observations is None:
        raise UserError(f"{named}: it returns no observations to call {target.label} with: {OBSERVATIONS}")
    given = list(observations) if isinstance(observations, list) else [observations]
    if not given:
        raise UserError(f"{named}: its list of observations is empty: {OBSERVATIONS}")
    subject = CallableSubject([target], given, seed, device, source=f"made by {factory}")
    if why := one_part(target):
        subject.notes.append(f"{subject.info.name} is one part: {why}")
    return subject


@contextlib.contextmanager
def _neighbours_importable(where: str) -> Iterator[None]:
    """Inside, modules next to the file are found first, as Python finds those of a script.

    Of a module's name it is those of the current folder. Later they are found last, where they hide nothing that Strobe
    itself imports.
    """
    folder = str(Path(where).resolve().parent) if where.endswith(".py") else str(Path.cwd())
    known = folder in sys.path
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
        if not known:
            sys.path.append(folder)


def _module(where: str, named: str) -> ModuleType:
    """Import the file or the module. Raises UserError for whatever fails."""
    try:
        with _forbid_exit():
            return _import_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name is not None and (where == error.name or where.startswith(f"{error.name}.")):
            raise UserError(
                f"{named}: module '{error.name}' is not installed: install it, or run strobe in its folder"
            ) from None
        raise UserError(f"{named}: it cannot be imported: {_words(error)}") from error
    except Exception as error:
        raise UserError(f"{named}: it cannot be imported: {_words(error)}") from error


def _import_file(path: Path) -> ModuleType:
    name = path.stem if path.stem.isidentifier() and path.stem not in sys.modules else f"strobe_factory_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None  # its name ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _function(module: ModuleType, name: str, named: str) -> Callable[[], object]:
    """Return the function ``name``. Raises UserError if there is none that can be called without arguments."""
    found: Any = module
    for step in name.split("."):
        if not hasattr(found, step):
            known = [each for each, value in vars(found).items() if callable(value) and not each.startswith("_")]
            raise UserError(f"{named}: there is no '{name}' in it: {nearest(step, known) if known else 'no function'}")
        found = getattr(found, step)
    if not callable(found):
        raise UserError(f"{named}: '{name}' is of type {type(found).__name__}: use a function that returns the policy")
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):  # of C
        return found
    wanted = [each.name for each in parameters if each.default is each.empty and each.kind not in _OPTIONAL]
    if wanted:
        raise UserError(
            f"{named}: {name}() takes arguments ({', '.join(wanted)}): use a function without arguments that calls it"
        )
    return found


_OPTIONAL = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _call_factory(make: Callable[[], object], name: str, named: str) -> object:
    try:
        with _forbid_exit():
            return make()
    except Exception as error:
        raise UserError(f"{named}: {name}() failed: {_words(error)}") from error


@contextlib.contextmanager
def _forbid_exit() -> Iterator[None]:
    """Raises RuntimeError where a program's own argument parser, or what else it does at import, would end Strobe."""
    try:
        yield
    except SystemExit as error:
        raise RuntimeError(f"it ended the process with {error.code!r}") from error


def _words(error: Exception) -> str:
    words = f"{type(error).__name__}: {error_line(error, _MOST)}"
    if isinstance(error, SyntaxError):  # its words have the place
        return words
    passed = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    theirs = [frame for frame in passed if Path(frame.filename) != Path(__file__)]
    return f"{words} ({Path(theirs[-1].filename).name}, line {theirs[-1].lineno})" if theirs else words
