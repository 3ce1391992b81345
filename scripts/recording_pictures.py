"""The small pictures of docs/guides/recording.md: each fault as it is planted into a made-up recording.

    python scripts/recording_pictures.py     writes docs/images/recording/*.svg

Grey is what the line in red is compared with: the action, the sound twin, or the other camera.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
rows, images = (import_module(f"planted.{name}") for name in ("motion", "pictures"))
DEGREES, PLANTS, make_recording = rows.DEGREES, rows.PLANTS, rows.make_recording
PICTURE_PLANTS, View, make_pictures = images.PICTURE_PLANTS, images.View, images.make_pictures

IMAGES = ROOT / "docs" / "images" / "recording"
WIDTH, HEIGHT, EDGE = 200, 56, 3  # pixels
MOST = 110  # points of a line
STRONG, SEED, SECOND = 2, 3, 30
GREY, RED = "#9aa0a6", "#d1495b"
# Fault → the joint that is shown, the episode, and whether its action is shown beside its state.
JOINTS = {
    "level": (1, 0, True), "complement": (-1, 6, True), "sign": (3, 6, True), "factor": (2, 0, True),
    "joints exchanged": (2, 6, True), "stuck encoder": (2, 6, True), "late actions": (1, 0, True),
    "copied state": (1, 0, True), "vectors exchanged": (1, 0, True), "spikes": (3, 3, False), "wraps": (4, 0, False),
    "held values": (1, 6, False), "repeated part": (1, 5, False), "encoder slips": (1, 6, False),
}  # fmt: skip
CLOSE = {"late actions", "copied state", "held values", "vectors exchanged"}  # of which two seconds are shown

Lines = tuple[np.ndarray, np.ndarray]  # grey and red


def main() -> None:
    """Write every picture."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, lines in list_pictures():
        file = IMAGES / f"{name.replace(' ', '-')}.svg"
        file.write_text(draw(name, lines))
        print(f"{file.relative_to(ROOT)}: {file.stat().st_size:,} bytes")


def list_pictures() -> Iterator[tuple[str, Lines]]:
    """Yield the name and the two lines of each fault."""
    for name, (joint, episode, paired) in JOINTS.items():
        planted = PLANTS[name][1](make_recording(DEGREES, SEED), STRONG)
        other = planted.action if paired else make_recording(DEGREES, SEED).state
        part = slice(SECOND, 3 * SECOND) if name in CLOSE else slice(None)
        yield name, (other[episode][part, joint], planted.state[episode][part, joint])
    mixed = PLANTS["units"][1](make_recording(DEGREES, SEED), STRONG)
    yield "units", pair(np.concatenate([one[:, 1] for one in each.action[4:8]]) for each in (sound(), mixed))
    speed = np.abs(np.diff(sound().state[0], axis=0)).sum(axis=1)
    late = make_pictures(sound(), SEED, View("front", late=20))
    yield "image lag", (speed, late.changes["front"][0])
    apart = make_pictures(sound(), SEED, *PICTURE_PLANTS["late camera, other motion"][1](sound(), 1))
    yield "cameras in time", (apart.changes["front"][0], apart.changes["side"][0])
    dark = make_pictures(sound(), SEED, *PICTURE_PLANTS["light of one camera"][1](sound(), 1))
    yield "light", pair(dark.light[name][1].mean(axis=(1, 2)) for name in ("side", "front"))


def pair(lines: Iterable[np.ndarray]) -> Lines:
    """Return the first two lines."""
    one, two, *_ = lines
    return one, two


def sound() -> Any:
    """Return the sound recording."""
    return make_recording(DEGREES, SEED)


def draw(name: str, lines: Lines) -> str:
    """Return an SVG of the grey line and the red one, in one scale if they have one unit."""
    one_scale = name not in ("image lag", "cameras in time")
    low, high = min(each.min() for each in lines), max(each.max() for each in lines)
    parts = [
        f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="'
        f'{place(line, *((low, high) if one_scale else (line.min(), line.max())))}"/>'
        for line, colour in zip(lines, (GREY, RED), strict=True)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f"<title>{name}</title>{''.join(parts)}</svg>\n"
    )


def place(line: np.ndarray, low: float, high: float) -> str:
    """Return the points of a line; those of a long one are thinned, and its peaks stay."""
    every = max(1, -(-len(line) // MOST))
    middle = np.median(line)
    starts = range(0, len(line), every)
    shown = [start + int(np.argmax(np.abs(line[start : start + every] - middle))) for start in starts]
    x = EDGE + np.array(shown) / max(1, len(line) - 1) * (WIDTH - 2 * EDGE)
    y = HEIGHT - EDGE - (line[shown] - low) / max(high - low, 1e-9) * (HEIGHT - 2 * EDGE)
    return " ".join(f"{a:.0f},{b:.0f}" for a, b in zip(x, y, strict=True))


if __name__ == "__main__":
    main()
