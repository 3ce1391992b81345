"""``torch.compile`` on what LeRobot's own ``compile_model`` compiles, switched on and off without building twice."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import torch

from strobe.errors import UserError, nearest
from strobe.subjects.subject import Subject
from strobe.treatments.patch import Patches
from strobe.treatments.treatment import COMPILED, Effect, Entry, Spec, Undo

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


@dataclass
class Compile:
    """Compile the methods that the anatomy names, else the whole forward pass; compiled once, at the first call."""

    mode: str = "default"
    effect: Effect = "rounding"
    _compiled: list[tuple[Any, str, Any]] | None = field(default=None, init=False, repr=False)
    _flag: str = field(default="", init=False, repr=False)

    def facts(self) -> dict[str, str | int | float | bool | None]:
        facts: dict[str, str | int | float | bool | None] = {"compiled": True, "compile mode": self.mode}
        return facts | {"compile in lerobot-train": self._flag} if self._flag else facts

    def apply(self, subject: Subject) -> Undo:
        if self._compiled is None:
            self._compiled = []
            if hasattr(getattr(subject.module, "config", None), "compile_model"):  # not every policy's config has it
                self._flag = f"--policy.compile_model=true --policy.compile_mode={self.mode}"
            for path, method in subject.compiled:
                owner = attrgetter(path)(subject.module) if path else subject.module
                self._compiled.append((owner, method, torch.compile(getattr(owner, method), mode=self.mode)))
        patches = Patches()
        for owner, method, compiled in self._compiled:
            patches.put(owner, method, compiled)
        return patches.undo


def _make(spec: Spec) -> Compile:
    mode = "default" if spec["compile"] is True else str(spec["compile"])
    if mode not in MODES:
        raise UserError(f"compile={mode}: {nearest(mode, MODES)}")
    return Compile(mode)


ENTRY = Entry("compile", f"torch.compile, with a mode: {', '.join(MODES)}", "rounding", COMPILED, _make)
