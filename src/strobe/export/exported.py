"""An exported policy in the place of the policy itself, so that Strobe's checks judge it like any treatment."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any

import torch
from torch import Tensor

from strobe.core.errors import UserError, error_line
from strobe.core.measure.guard import strongest
from strobe.core.results.agreement import Effect
from strobe.core.subjects.subject import Observation, Subject
from strobe.core.treatments.patch import replaced_method
from strobe.core.treatments.recipe import RecipeTreatment
from strobe.core.treatments.treatment import FOR_INFERENCE, PROCESS, Treatment, Undo
from strobe.core.untrusted import contents, parse_json
from strobe.export.carried.policy import MANIFEST, describe_damage, describe_hiding
from strobe.export.formats import FORMATS
from strobe.export.prompt import is_form
from strobe.export.whole import preprocessed_tensors, split
from strobe.lerobot.config_fields import require_policy
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.treatments.engines.backends import disable_telemetry

PROGRAM = "policy.py"  # name in an export's folder, next to its manifest
# Of the manifest: what it must say, and as what.
KEYS: dict[str, type | tuple[type, ...]] = {
    "format": str, "model": str, "policy": str, "precision": str, "inputs": list, "noise": list,
    "prompt": (dict, NoneType), "chunk": list, "files": dict,
}  # fmt: skip
DRAWS = {"normal": torch.randn, "uniform": torch.rand}
MOST_DRAWN = 2**24  # numbers of noise
# What computing in a precision does to the actions at most. An export in float32 only sums in another order.
EFFECTS: dict[str, Effect] = {"fp32": "exact", "bf16": "rounding", "int8": "lossy"}


def manifest(folder: Path) -> dict[str, Any]:
    """Return what the manifest of ``folder`` says, after a look at the digests of all files.

    Raises UserError if it is no export, or an older one, and where a file is missing or damaged.
    """
    try:
        about: Any = parse_json(contents(folder / MANIFEST))
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} is not an exported policy: {MANIFEST} cannot be read ({error})") from None
    said = about if isinstance(about, dict) else {}
    if missing := [name for name in KEYS if name not in said]:
        raise UserError(f"{folder}: {MANIFEST} lacks {', '.join(missing)}: export the policy again")
    odd = [name for name, kind in KEYS.items() if not isinstance(said[name], kind)]
    odd += [name for name in said["files"] if Path(name).name != name] if not odd else []
    if not odd:
        sound = {
            "files": {MANIFEST, PROGRAM, said["model"]} <= said["files"].keys(),
            "precision": said["precision"] in getattr(FORMATS.get(said["format"]), "precisions", ()),
            "prompt": is_form(said["prompt"]),
            "noise": all(map(_is_draw, said["noise"])),
        }
        odd = [name for name, right in sound.items() if not right]
    if odd:
        raise UserError(f"{folder}: {MANIFEST} has an invalid value for {odd[0]}: export the policy again")
    if damage := describe_hiding(folder) or describe_damage(folder, said):
        raise UserError(damage)
    return said


@dataclass
class ExportedPolicy(Treatment):
    """The program of an export's folder, which runs as a user runs it, with the noise that torch would draw.

    Where the folder holds the tokenizer, the program makes the tokens as well.

    Raises:
        UserError: the folder is no export or is damaged, or its program cannot be loaded.
    """

    key = "exported"
    effect = "rounding"
    phases = FOR_INFERENCE
    builds = "built"
    fixed_inputs = True

    folder: Path
    inside: Effect = "exact"  # what the settings of a recipe that are in the export do to the actions
    _program: object = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.about = manifest(self.folder)
        self.effect = strongest([EFFECTS[self.about["precision"]], self.inside])

    def apply(self, subject: Subject) -> Undo:  # noqa: D102  # as a treatment's
        policy = require_policy(subject)
        if not is_float32(policy):  # LeRobot computes parts of some policies in bfloat16, and the export does not
            self.effect = strongest([self.effect, "rounding"])
        program, feed = self._load_program(), self._feed(policy)

        def answer(observation: Observation, seed: int) -> Tensor:
            return torch.from_numpy(program.act(*feed(observation, seed)))

        return replaced_method(policy, "answer", answer)

    def prepare_inputs(
        self, policy: PolicySubject, observation: Observation, seed: int
    ) -> tuple[dict[str, Any], list[Any]]:
        """Return what the program gives its model for ``observation``: its arrays by name, and the noise of ``seed``.

        Raises ValueError for an observation that does not fit.
        """
        arrays, task, noise = self._feed(policy)(observation, seed)
        return self._load_program().prepare_inputs(arrays, task), noise

    def _feed(self, policy: PolicySubject) -> Callable[[Observation, int], tuple[Observation, str, list[Any]]]:
        processors, prompt = split(policy), self.about["prompt"]
        # Without the tokenizer's file, the policy's own processors make the tokens.
        before = processors.prepare if prompt and prompt["tokenizer"] else processors.words

        def feed(observation: Observation, seed: int) -> tuple[Observation, str, list[Any]]:
            arrays = {name: value.numpy() for name, value in preprocessed_tensors(before, observation).items()}
            task = observation.get("task") or ""
            torch.manual_seed(seed)
            noise = [DRAWS[wanted["kind"]](wanted["shape"]).numpy() for wanted in self.about["noise"]]
            return arrays, task if isinstance(task, str) else task[0], noise

        return feed

    def _load_program(self) -> Any:
        if self._program is None:
            file = self.folder / PROGRAM
            spec = importlib.util.spec_from_file_location("strobe_exported_policy", file)
            if spec is None or spec.loader is None or not file.exists():
                raise UserError(f"{file} is missing: export the policy again")
            module = importlib.util.module_from_spec(spec)
            disable_telemetry()
            try:
                spec.loader.exec_module(module)
                self._program = module.Policy(torch.get_num_threads())
            except Exception as error:
                raise UserError(f"{file} cannot be run: {error_line(error, 200)}") from error
        return self._program


def is_float32(policy: PolicySubject) -> bool:
    """Return whether all weights of ``policy`` are in float32."""
    return all(weight.dtype == torch.float32 for weight in policy.policy.parameters() if weight.is_floating_point())


def _is_draw(wanted: Any) -> bool:
    shape = wanted.get("shape") if isinstance(wanted, dict) and str(wanted.get("kind")) in DRAWS else None
    return isinstance(shape, list) and all(type(n) is int and n > 0 for n in shape) and math.prod(shape) <= MOST_DRAWN


def read_export_group(folder: Path, inside: Effect = "exact") -> tuple[str, tuple[RecipeTreatment, ...]]:
    """Return the export in ``folder`` as what `strobe.lerobot.verify.verify` checks. Raises UserError.

    ``inside`` is what the settings of a recipe that are in the export do to the actions, as the user names the recipe.
    """
    made = ExportedPolicy(folder, inside)
    return "the exported policy", (RecipeTreatment(made, PROCESS, folder.name, f"exported={folder.name}"),)
