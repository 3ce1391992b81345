"""Videos in a report: rows of them for the document, and their content for the page."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MOST_BYTES = 8_000_000  # of all videos together: above, the page would be too large to send
KINDS = {".mp4": "video/mp4", ".webp": "image/webp"}


@dataclass(frozen=True)
class Clip:
    """One video: whose, how it ended in words, and its files within the run's folder."""

    title: str
    ending: str
    good: bool
    file: str
    poster: str | None = None

    @property
    def moves(self) -> bool:
        """Whether it is a video for the browser's player, rather than an animated image."""
        return self.file.endswith(".mp4")


@dataclass(frozen=True)
class ClipRow:
    """Videos that stand side by side."""

    title: str
    clips: Sequence[Clip]


def contents(rows: Sequence[ClipRow], folder: Path | None) -> dict[str, str]:
    """Return file → data URL for the files of ``rows`` in ``folder``.

    Files that are gone are left out; and the videos all are where they are more than `MOST_BYTES` together, or where
    there is no folder to read from. Then the page links to them.
    """
    if folder is None:
        return {}
    clips = [clip for row in rows for clip in row.clips]
    videos = _read(folder, [clip.file for clip in clips])
    if sum(map(len, videos.values())) > MOST_BYTES:
        videos = {}
    read = _read(folder, [clip.poster for clip in clips if clip.poster is not None]) | videos
    return {file: _url(file, content) for file, content in read.items()}


def _url(file: str, content: bytes) -> str:
    return f"data:{KINDS[Path(file).suffix]};base64,{base64.b64encode(content).decode()}"


def _read(folder: Path, files: Sequence[str]) -> dict[str, bytes]:
    found = {}
    for file in files:
        path = Path(file)
        if path.is_absolute() or ".." in path.parts or path.suffix not in KINDS:  # a result.json from elsewhere
            continue
        try:
            found[file] = (folder / path).read_bytes()
        except OSError:
            continue
    return found
