"""The videos of an evaluation's episodes, the variants of one start side by side."""

from __future__ import annotations

from strobe.report import units
from strobe.report.clips import Clip, ClipRow
from strobe.report.document import Section
from strobe.results.evaluate import EvaluateResult


def section(result: EvaluateResult) -> Section:
    """All videos, a row for each start."""
    rows = []
    for task, seed in dict.fromkeys((one.task, one.seed) for one in result.videos):
        clips = [
            Clip(
                units.plain(one.variant),
                f"{'success' if one.success else 'failure'}, {one.seconds:.1f} s",
                one.success,
                one.file,
                one.poster,
            )
            for one in result.videos
            if (one.task, one.seed) == (task, seed)
        ]
        rows.append(ClipRow(f"{units.plain(task)}, seed {seed}", clips))
    said = (
        f"{units.count(len(result.videos), 'video')} in the run's folder, of the first "
        f"{units.count(len(rows), 'start')}; the variants of one start stand side by side, in simulated time."
    )
    return Section("videos", "Videos of episodes", text=[said], clips=rows)
