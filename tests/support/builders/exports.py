"""Exports of tiny policies by the command, and the answer of their check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from strobe.core.results.answer import VerifyResult
from strobe.core.runs import store

TINY = ("--policy.size=tiny", "--device=cpu", "--observations=4", "--passes=1")


@dataclass(frozen=True)
class Export:
    """The folder of an export, the answer of its check, and the exit code.

    ``errors``: what the command printed on stderr, where it had a process of its own.
    """

    folder: Path
    answer: VerifyResult
    code: int
    errors: str = ""


Exports = Callable[..., Export]


def load_only_answer(runs: Path) -> VerifyResult:
    """Return the answer of the one run in ``runs``."""
    (written,) = runs.glob("*/result.json")
    answer = store.load(written.parent)
    assert isinstance(answer, VerifyResult)
    return answer
