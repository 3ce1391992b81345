"""An exported policy in the place of the policy itself, so that Strobe's checks judge it like any treatment."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from strobe.errors import UserError
from strobe.exports.package import InPlaceOfPolicy, PolicyPackage, is_package
from strobe.exports.prompt import is_form
from strobe.exports.whole import numbers_of, split
from strobe.policies.subject import Subject
from strobe.runs.contents import contents
from strobe.treatments.engines.backends import without_telemetry
from strobe.treatments.patch import replaced_method
from strobe.treatments.recipe import RecipeTreatment
from strobe.treatments.treatment import PROCESS, Undo, policy_of

MANIFEST, PROGRAM = "export.json", "policy.py"  # files of an export's folder
KEYS = ("format", "model", "policy", "precision", "effect", "inputs", "noise", "prompt", "chunk")


def manifest(folder: Path) -> dict[str, Any]:
    """Return what the folder's manifest says. Raises UserError where it is no export, or an older one."""
    try:
        about: dict[str, Any] = json.loads(contents(folder / MANIFEST))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{folder} is no exported policy: {MANIFEST} cannot be read ({error})") from None
    if not isinstance(about, dict):
        raise UserError(f"{folder} is no exported policy: {MANIFEST} is no map")
    if missing := [name for name in KEYS if name not in about]:
        raise UserError(f"{folder}: {MANIFEST} lacks {', '.join(missing)}: export the policy again")
    if not is_form(about["prompt"]):
        raise UserError(f"{folder}: {MANIFEST} has no sound prompt: export the policy again")
    return about


@dataclass
class ExportedPolicy(InPlaceOfPolicy):
    """The program of an export's folder, which runs as a user runs it, with the noise that torch would draw.

    Where the folder holds the tokenizer, the program makes the tokens as well.

    Raises:
        UserError: the folder is no export, or its program cannot be loaded.
    """

    folder: Path
    _program: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.about = manifest(self.folder)
        self.effect = self.about["effect"]

    def apply(self, subject: Subject) -> Undo:  # noqa: D102  # as a treatment's
        policy = policy_of(subject)
        program = self._loaded()
        processors = split(policy)
        prompt = self.about["prompt"]
        # Without the tokenizer's file, the policy's own processors make the tokens.
        before = processors.prepare if prompt and prompt["tokenizer"] else processors.words

        def answer(observation: dict[str, Any], seed: int) -> Tensor:
            numbers = numbers_of(before, observation)
            task = observation.get("task") or ""
            torch.manual_seed(seed)
            noise = [_drawn(wanted).numpy() for wanted in self.about["noise"]]
            arrays = {name: value.numpy() for name, value in numbers.items()}
            chunk = program.act(arrays, task if isinstance(task, str) else task[0], noise)
            return torch.from_numpy(chunk)

        return replaced_method(policy, "answer", answer)

    def _loaded(self) -> Any:
        if self._program is None:
            file = self.folder / PROGRAM
            spec = importlib.util.spec_from_file_location("strobe_exported_policy", file)
            if spec is None or spec.loader is None or not file.exists():
                raise UserError(f"{file} is missing: export the policy again")
            module = importlib.util.module_from_spec(spec)
            without_telemetry()
            try:
                spec.loader.exec_module(module)
                self._program = module.Policy(torch.get_num_threads())
            except Exception as error:
                raise UserError(f"{file} cannot be run: {type(error).__name__}: {error}") from error
        return self._program


def _drawn(wanted: dict[str, Any]) -> Tensor:
    """Return what torch draws at this place."""
    return torch.randn(wanted["shape"]) if wanted["kind"] == "normal" else torch.rand(wanted["shape"])


def group_of(folder: Path, python: str = "") -> tuple[str, tuple[RecipeTreatment, ...]]:
    """Return the export in ``folder``, Strobe's or another's, as what `verify_groups` checks. Raises UserError.

    Args:
        python: of an environment with physicalai, which runs another's; '' for this environment's.
    """
    theirs = not (folder / MANIFEST).exists() and is_package(folder)
    made = PolicyPackage(folder, python) if theirs else ExportedPolicy(folder)
    return "the exported policy", (RecipeTreatment(made, PROCESS, folder.name, f"exported={folder.name}"),)
