"""A policy package of others (physicalai's, and LeRobot's of the same format) in the place of the policy itself.

It runs in physicalai's own runtime (https://pypi.org/project/physicalai, Apache-2.0), with its own processors, in a
process of its own: physicalai needs another version of transformers than LeRobot.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from strobe.core.errors import UserError
from strobe.core.json_text import JsonObject, parse_json
from strobe.core.runs.contents import contents
from strobe.core.subjects.subject import Observation, Subject
from strobe.core.treatments.patch import replaced_method
from strobe.core.treatments.treatment import FOR_INFERENCE, Effect, Treatment, Undo
from strobe.environments.side import EnvironmentWorker, SideFailedError, SideOptions
from strobe.export.whole import draws
from strobe.lerobot.policies.policy_of import require_policy

MANIFEST = "manifest.json"
STATE, IMAGES = "observation.state", "observation.images."
LOAD_S, ACT_S = 900.0, 300.0  # the longest that loading and an answer may take


def is_package(folder: Path) -> bool:
    """Return whether ``folder`` holds a policy package."""
    try:
        about = parse_json(contents(folder / MANIFEST))
    except (OSError, ValueError):
        return False
    return isinstance(about, dict) and about.get("format") == "policy_package"


class InPlaceOfPolicy(Treatment):
    """An export, which answers in the place of the policy."""

    key = "exported"
    effect: Effect = "rounding"
    phases = FOR_INFERENCE
    builds = "built"
    fixed_inputs = True


@dataclass
class PolicyPackage(InPlaceOfPolicy):
    """The package in ``folder``, run by the physicalai of ``python``; '' for this environment's.

    Raises:
        UserError: ``python`` has no physicalai, or it cannot load the package; the policy draws noise, which the
            package draws by itself, so that the two cannot be compared; an input is not in the observation.
    """

    folder: Path
    python: str = ""
    _side: EnvironmentWorker | None = field(default=None, init=False, repr=False)
    _inputs: tuple[str, ...] = field(default=(), init=False, repr=False)

    def __post_init__(self) -> None:
        SideOptions(self.folder.name, self.python).check()
        self._files = tempfile.TemporaryDirectory(prefix="strobe-package-")

    def apply(self, subject: Subject) -> Undo:  # noqa: D102  # as a treatment's
        policy = require_policy(subject)
        if self._side is None:
            if draws(policy):
                raise UserError(
                    f"{self.folder} cannot be judged: {policy.info.name} draws noise, and the package draws its own "
                    "noise, so the actions always differ. Strobe's own exports take the noise as an input"
                )
            self._side = self._load_package()
            for name in self._arrays:
                _package_input(name, policy.observation(0))
        side, given, to = self._side, f"{self._files.name}/given.npz", f"{self._files.name}/chunk.npy"

        def answer(observation: Observation, seed: int) -> Tensor:
            found = {name: _package_input(name, observation) for name in self._arrays}
            task = str(observation.get("task", "")) if "task" in self._inputs else ""
            np.savez(given, **found)
            self._answer(side, "act", ACT_S, given=given, task=task, to=to)
            return torch.from_numpy(np.load(to))

        return replaced_method(policy, "answer", answer)

    @property
    def _arrays(self) -> list[str]:
        return [name for name in self._inputs if name != "task"]

    def _load_package(self) -> EnvironmentWorker:
        side = EnvironmentWorker(SideOptions(self.folder.name, self.python), Path(self._files.name) / "log.txt")
        told = {"folder": str(self.folder.resolve()), "threads": torch.get_num_threads()}
        self._inputs = tuple(self._answer(side, "load", LOAD_S, **told)["inputs"])
        return side

    def _answer(self, side: EnvironmentWorker, do: str, limit_s: float, **order: object) -> JsonObject:
        try:
            return side.ask(do, limit_s, module="carried_package", **order)
        except SideFailedError as error:
            hint = ""
            if "ModuleNotFoundError" in str(error):
                hint = "; --exported_python=PYTHON names an environment with physicalai"
            raise UserError(f"{self.folder} runs in physicalai: {error}{hint}") from None


def _package_input(name: str, observation: Observation) -> Any:
    """Return what the package calls ``name``: LeRobot's own name, or physicalai's (state, images, images.front).

    Of a checkpoint of LeRobot, physicalai 0.3 makes images.observation.images.front.

    Raises UserError if the observation has nothing of that name.
    """
    images = [key for key in observation if key.startswith(IMAGES)]
    short = {"state": STATE}
    for key in images:
        short |= {f"images.{key}": key, f"images.{key.removeprefix(IMAGES)}": key}
    if len(images) == 1:
        short["images"] = images[0]
    value = observation.get(short.get(name, name))
    if not isinstance(value, Tensor):
        raise UserError(f"the package needs {name!r}, but the observation has {', '.join(sorted(observation))}")
    return value.numpy()
