"""Two worlds with two cameras each for `preflight.py`, recorded once: PushT, and MetaWorld's pick-and-place.

`write` writes their episodes as they are, or as a miswired robot would have recorded them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

STATE, ACTION = "observation.state", "action"
SIZE = 48  # pixels of all cameras
TABLE = 512.0  # of PushT, in its own units
STEPS = 4  # of MetaWorld, at 80 Hz, for which an action holds
Ticks = dict[str, np.ndarray]  # of one episode: vectors (ticks, dimensions), images uint8 (ticks, SIZE, SIZE, 3)


@dataclass(frozen=True)
class World:
    """A simulator and its script.

    Args:
        cameras: names of its features.
        dimensions: of the state and of the action.
        fps: control ticks a second.
        play: (episodes, ticks, seed) → the episodes.
    """

    name: str
    cameras: tuple[str, str]
    dimensions: tuple[str, ...]
    fps: int
    task: str
    play: Callable[[int, int, int], Iterator[Ticks]]

    @property
    def features(self) -> dict[str, dict[str, Any]]:
        """The features of its data sets, as LeRobot describes them."""
        vector = {"dtype": "float32", "shape": (len(self.dimensions),), "names": list(self.dimensions)}
        image = {"dtype": "image", "shape": (SIZE, SIZE, 3), "names": ["height", "width", "channels"]}
        return {STATE: vector, ACTION: vector} | dict.fromkeys(self.cameras, image)


def _pusht(episodes: int, ticks: int, seed: int) -> Iterator[Ticks]:

    from strobe.simulators.scripted import _start_pusht

    top, hand = PUSHT.cameras
    scripted = _start_pusht(SIZE, ticks, seed)
    for episode in range(episodes):
        played = scripted.play(seed * 1000 + episode)
        made = [next(played) for _ in range(ticks)]
        images = np.stack([tick["observation.image"] for tick in made])
        states = np.stack([tick[STATE] for tick in made])
        yield {
            top: images,
            hand: np.stack([_pusher_view(*each) for each in zip(images, states, strict=True)]),
            STATE: states,
            ACTION: np.stack([tick[ACTION] for tick in made]),
        }
    scripted.close()


def _pusher_view(image: np.ndarray, position: np.ndarray) -> np.ndarray:
    """Return the view of a camera at the pusher: a quarter of the table around it, twice as large."""
    half = SIZE // 4
    padded = np.pad(image, ((half, half), (half, half), (0, 0)))
    x, y = (int(np.clip(place / TABLE * SIZE, 0, SIZE - 1)) for place in position)
    return padded[y : y + 2 * half, x : x + 2 * half].repeat(2, axis=0).repeat(2, axis=1)


def _metaworld(episodes: int, ticks: int, seed: int) -> Iterator[Ticks]:
    import mujoco

    from strobe.simulators.scripted import _act, open_metaworld

    cameras = [name.rpartition(".")[2] for name in METAWORLD.cameras]
    world = open_metaworld("pick-place-v3", cameras, SIZE)
    switches: Any = mujoco
    for flag in (switches.mjtRndFlag.mjRND_SHADOW, switches.mjtRndFlag.mjRND_REFLECTION):
        world.renderer.scene.flags[flag] = 0  # without OpenGL's hardware they are most of the time
    random = np.random.default_rng(seed)
    for episode in range(episodes):
        observation = world.reset(seed * 1000 + episode)
        made: list[dict[str, np.ndarray]] = []
        for _ in range(ticks):
            action = _act(world.expert, observation, random)
            made.append({**world.images(), STATE: observation[:4].astype(np.float32), ACTION: action})
            for _ in range(STEPS):
                observation, *_ = world.env.step(action)
        yield {key: np.stack([tick[key] for tick in made]) for key in made[0]}
    world.close()


PUSHT = World(
    "pusht", ("observation.images.top", "observation.images.hand"), ("x", "y"), 10, "push the block onto the target",
    _pusht,
)  # fmt: skip
METAWORLD = World(
    "metaworld", ("observation.images.corner2", "observation.images.gripperPOV"), ("x", "y", "z", "gripper"),
    80 // STEPS, "pick up the puck and bring it to the goal", _metaworld,
)  # fmt: skip


def record(world: World, folder: Path, episodes: int, ticks: int, seed: int = 0) -> list[Ticks]:
    """Record a world, and return its episodes; from ``folder`` where they are there."""
    file = folder / f"{world.name}-{episodes}-{ticks}-{seed}.npz"
    keys = (*world.cameras, STATE, ACTION)
    if not file.exists():
        made: Ticks = {}
        for number, episode in enumerate(world.play(episodes, ticks, seed)):
            made |= {f"{number} {key}": episode[key] for key in keys}
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(file, **made)  # type: ignore[arg-type]
    with np.load(file) as saved:
        return [{key: saved[f"{episode} {key}"] for key in keys} for episode in range(episodes)]


def write(
    world: World, root: Path, episodes: Sequence[Ticks], change: Callable[[Ticks], Ticks] | None = None, *,
    fps: int | None = None, again: bool = False,
) -> Path:  # fmt: skip
    """Write ``episodes`` as a LeRobotDataset of images, each as ``change`` makes it.

    Args:
        fps: the world's by default.
        again: whether a data set that is there is written again.
    """
    if again:
        shutil.rmtree(root, ignore_errors=True)
    if (root / "meta" / "stats.json").exists():
        return root
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    from strobe.lerobot.quiet import quiet

    changed = [change(dict(ticks)) if change is not None else ticks for ticks in episodes]
    features = {key: feature for key, feature in world.features.items() if key in changed[0]}
    features |= {key: world.features[world.cameras[0]] for key in changed[0] if key not in features}
    with quiet():
        made = LeRobotDataset.create(f"local/{root.name}", fps or world.fps, features, root=root, use_videos=False)
        for ticks in changed:
            for tick in range(len(ticks[ACTION])):
                frame = {key: np.ascontiguousarray(ticks[key][tick]) for key in features}
                frame |= {key: frame[key].astype(np.float32) for key in (STATE, ACTION)}
                made.add_frame({**frame, "task": world.task})
            made.save_episode(parallel_encoding=False)
        made.finalize()
    return root


def rewrite_vectors(root: Path, source: Path, episodes: Sequence[Ticks]) -> Path:
    """Write the data set ``source`` again with the states and the actions of ``episodes``, as many ticks as it has.

    Its images are copied as they are, which takes a hundredth of the time.
    """
    import pyarrow as pa
    import pyarrow.parquet as parquet

    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(source, root)
    vectors = {key: np.concatenate([ticks[key] for ticks in episodes]).astype(np.float32) for key in (STATE, ACTION)}
    first = 0
    for file in sorted((root / "data").rglob("*.parquet")):
        table = parquet.read_table(file)
        for key, values in vectors.items():
            column = table.schema.get_field_index(key)
            rows = values[first : first + len(table)].tolist()
            table = table.set_column(
                column, table.schema.field(column), pa.array(rows, table.schema.field(column).type)
            )
        parquet.write_table(table, file)
        first += len(table)
    statistics = root / "meta" / "stats.json"
    content = json.loads(statistics.read_text())
    for key, values in vectors.items():
        content[key] = _describe(values)
    statistics.write_text(json.dumps(content))
    for file in sorted((root / "meta" / "episodes").rglob("*.parquet")):
        table = parquet.read_table(file)
        numbers = table.column("episode_index").to_pylist()
        for key in vectors:
            own = [_describe(np.asarray(episodes[number][key], np.float32)) for number in numbers]
            for name in own[0]:
                column = table.schema.get_field_index(f"stats/{key}/{name}")
                kind = table.schema.field(column)
                table = table.set_column(column, kind, pa.array([each[name] for each in own], kind.type))
        parquet.write_table(table, file)
    return root


def _describe(values: np.ndarray) -> dict[str, list[float]]:
    from lerobot.datasets.compute_stats import get_feature_stats

    return {name: value.tolist() for name, value in get_feature_stats(values, axis=0, keepdims=False).items()}
