"""A simulator compared with a training set: what was looked at, and what it shows. Plain data."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.core.results.data import Data

CheckKind = Literal[
    "image size", "image orientation", "image colours", "camera order", "state dimensions", "state order",
    "state unit", "rotation form", "starts", "action dimensions", "action range", "action order", "action sign",
    "action scale", "action mode", "gripper direction", "gripper range", "control rate", "task in words",
]  # fmt: skip
Verdict = Literal["differs", "agrees", "not judged"]


class Check(Data):
    """One thing of the simulator, compared with the training set's."""

    kind: CheckKind
    of: str = Field(description="camera, vector, dimension or task")
    verdict: Verdict
    seen: str = Field(description="the figures in words, or why it was not judged")


class Contract(Data):
    """A simulator compared with a training set."""

    environment: str = Field(description="type and task of the environment")
    starts: int = Field(description="number of resets whose first observation was compared")
    ticks: int = Field(description="number of recorded actions that the simulator executed")
    checks: list[Check]

    def select(self, *verdicts: Verdict) -> list[Check]:
        """Return the checks that ended so."""
        return [check for check in self.checks if check.verdict in verdicts]
