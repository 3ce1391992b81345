"""A rollout or a rehearsal of the policy: a preflight reads it once, for its lags, its calls and its first action."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from strobe.core.errors import UserError
from strobe.core.runs import store
from strobe.loops.results.rollout import Rollout, RolloutResult


@dataclass(frozen=True)
class PolicyRun:
    """A run of `strobe rollout` or `strobe rehearse`.

    Args:
        folder: the run's, which may hold its events.
        rollout: the figures of its answer.
    """

    folder: Path
    rollout: Rollout


def read_run(folder: Path) -> PolicyRun:
    """Return the run in ``folder``.

    Raises:
        UserError: ``folder`` cannot be read, or is no run of `strobe rollout` or `strobe rehearse`.
    """
    answer = store.load_answer(folder)
    if not isinstance(answer, RolloutResult):
        raise UserError(f"--rollout={folder}: not a run of `strobe rollout` or `strobe rehearse`")
    return PolicyRun(folder, answer.rollout)
