"""PushT with two cameras for `preflight.py`: recorded once, written as it is or as a miswired robot would have it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

STATE, ACTION = "observation.state", "action"
TOP, HAND = "observation.images.top", "observation.images.hand"
SIZE = 48  # pixels of both cameras
FPS = 10
TABLE = 512.0
Ticks = dict[str, np.ndarray]  # of one episode: vectors (ticks, 2), images uint8 (ticks, SIZE, SIZE, 3)


def record(folder: Path, episodes: int, frames: int, seed: int = 0) -> list[Ticks]:
    """Record scripted PushT, and return its episodes; from ``folder`` where they are there."""
    file = folder / f"pusht-{episodes}-{frames}-{seed}.npz"
    if not file.exists():
        from strobe.simulators.scripted_pusht import _start

        scripted = _start(SIZE, frames, seed)
        made: Ticks = {}
        for episode in range(episodes):
            played = scripted.play(seed * 1000 + episode)
            ticks = [next(played) for _ in range(frames)]
            images = np.stack([tick["observation.image"] for tick in ticks])
            states = np.stack([tick[STATE] for tick in ticks])
            made |= {
                f"{episode} {TOP}": images,
                f"{episode} {HAND}": np.stack([_hand(*each) for each in zip(images, states, strict=True)]),
                f"{episode} {STATE}": states,
                f"{episode} {ACTION}": np.stack([tick[ACTION] for tick in ticks]),
            }
        scripted.close()
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(file, **made)  # type: ignore[arg-type]
    with np.load(file) as saved:
        return [{key: saved[f"{episode} {key}"] for key in (TOP, HAND, STATE, ACTION)} for episode in range(episodes)]


def _hand(image: np.ndarray, position: np.ndarray) -> np.ndarray:
    """Return what a camera at the pusher sees: a quarter of the table around it, twice as large."""
    half = SIZE // 4
    padded = np.pad(image, ((half, half), (half, half), (0, 0)))
    x, y = (int(np.clip(place / TABLE * SIZE, 0, SIZE - 1)) for place in position)
    return padded[y : y + 2 * half, x : x + 2 * half].repeat(2, axis=0).repeat(2, axis=1)


def write(root: Path, episodes: Sequence[Ticks], change: Callable[[Ticks], Ticks] | None = None) -> Path:
    """Write ``episodes`` as a LeRobotDataset of images, each as ``change`` makes it; nothing where it is there."""
    if (root / "meta" / "info.json").exists():
        return root
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    from strobe.lerobot.quiet import quiet

    vector = {"dtype": "float32", "shape": (2,), "names": ["x", "y"]}
    image = {"dtype": "image", "shape": (SIZE, SIZE, 3), "names": ["height", "width", "channels"]}
    features = {STATE: vector, ACTION: vector, TOP: image, HAND: image}
    with quiet():
        made = LeRobotDataset.create(f"local/{root.name}", FPS, features, root=root, use_videos=False)
        for ticks in episodes:
            changed = change(dict(ticks)) if change is not None else ticks
            for tick in range(len(changed[ACTION])):
                frame = {key: np.ascontiguousarray(changed[key][tick]) for key in features}
                frame |= {key: frame[key].astype(np.float32) for key in (STATE, ACTION)}
                made.add_frame({**frame, "task": "push the block onto the target"})
            made.save_episode(parallel_encoding=False)
        made.finalize()
    return root
