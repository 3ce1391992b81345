"""Is a fixed checkpoint better? Its copy is compared with the same table, and against recorded frames."""

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

NO_WORSE = 0.02  # share of the recorded actions: two predictions that differ by no more explain them alike


def hold_to_table(result: PreflightResult, fixed: Wiring, target: Path) -> None:
    """Take the copy in ``target`` away if it has a serious fault that the checkpoint has not, and say so."""
    before = {(each.rule, each.evidence.get("feature")) for each in _serious(result.wiring)}
    new = [each for each in _serious(fixed) if (each.rule, each.evidence.get("feature")) not in before]
    if new:
        _take_away(result, target, f"it would have another fault: {new[0].title}")


def hold_to_frames(result: PreflightResult, target: Path, frames: Frames, progress: Callable[[Progress], None]) -> None:
    """Take the copy in ``target`` away if it explains less of the recorded actions than the checkpoint does.

    A checkpoint that cannot be run, as it is often fixed for that, has nothing to be compared with: the copy must run.
    Ctrl-C takes the copy away too: none stays that is not proven.
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
        _take_away(result, target, "Ctrl-C came before it was compared with the recorded frames")
        return
    except UserError as error:
        if loop.whole is not None:
            _take_away(result, target, f"it cannot be run on the recorded frames: {error}")
        return
    if loop.whole is None:
        result.fixed.append(f"It explains {_share(after)} of the recorded actions.")
        return
    before = loop.whole.explained
    if max(after, 0.0) < max(before, 0.0) - NO_WORSE:
        words = (
            f"it would explain {_share(after)} of the recorded actions, and the checkpoint explains {_share(before)}"
        )
        _take_away(result, target, words)
    else:
        result.fixed.append(f"It explains {_share(after)} of the recorded actions; before it was {_share(before)}.")


def _serious(wiring: Wiring) -> list[Finding]:
    return [each for each in wiring_findings(wiring) if each.level == "warning"]


def _take_away(result: PreflightResult, target: Path, why: str) -> None:
    shutil.rmtree(target, ignore_errors=True)
    result.fixed, result.unfixed = [], why


def _share(share: float) -> str:
    return f"{max(share, 0.0) * 100:.0f} %"
