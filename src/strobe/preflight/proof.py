"""Check that a fixed checkpoint is better: by the same rules, and on recorded frames."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from strobe.core.errors import UserError
from strobe.core.results.finding import Finding
from strobe.preflight.findings.wiring import wiring_findings
from strobe.preflight.results.preflight import PreflightResult
from strobe.preflight.results.wiring import Wiring

if TYPE_CHECKING:
    from strobe.core.measure.sampling import Progress
    from strobe.preflight.open_loop import Frames

NO_WORSE = 0.02  # R²: two predictions that differ by no more are equally good


def compare_findings(result: PreflightResult, fixed: Wiring, target: Path) -> None:
    """Delete the copy in ``target`` if it has a serious fault that the checkpoint does not have."""
    before = {(each.rule, each.evidence.get("feature")) for each in _serious(result.wiring)}
    new = [each for each in _serious(fixed) if (each.rule, each.evidence.get("feature")) not in before]
    if new:
        _delete_copy(result, target, f"it would have another fault: {new[0].title}")


def compare_on_frames(
    result: PreflightResult, target: Path, frames: Frames, progress: Callable[[Progress], None]
) -> None:
    """Delete the copy in ``target`` if it predicts the recorded actions worse than the checkpoint does.

    A checkpoint that cannot run, often the reason for the fix, gives nothing to compare with: the copy must run.
    Ctrl-C deletes the copy too, because an unproven copy must not stay.
    """
    from strobe.preflight.open_loop import explained_share

    loop = result.open_loop
    if not target.is_dir() or not result.fixed or loop is None:
        return
    try:
        if loop.stopped:
            raise KeyboardInterrupt
        after = explained_share(target, frames, progress)
    except KeyboardInterrupt:
        result.status = "interrupted"
        _delete_copy(result, target, "Ctrl-C came before it was compared with the recorded frames")
        return
    except UserError as error:
        if loop.whole is not None:
            _delete_copy(result, target, f"it cannot be run on the recorded frames: {error}")
        return
    if loop.whole is None:
        result.fixed.append(f"It predicts the recorded actions with R² = {_share(after)}.")
        return
    before = loop.whole.explained
    if max(after, 0.0) < max(before, 0.0) - NO_WORSE:
        words = f"it predicts the recorded actions with R² = {_share(after)}, the checkpoint with R² = {_share(before)}"
        _delete_copy(result, target, words)
    else:
        result.fixed.append(
            f"It predicts the recorded actions with R² = {_share(after)}; the checkpoint with R² = {_share(before)}."
        )


def _serious(wiring: Wiring) -> list[Finding]:
    return [each for each in wiring_findings(wiring) if each.level == "warning"]


def _delete_copy(result: PreflightResult, target: Path, why: str) -> None:
    shutil.rmtree(target, ignore_errors=True)
    result.fixed, result.unfixed = [], why


def _share(share: float) -> str:
    return f"{max(share, 0.0):.2f}"
