"""Made-up recordings with a motion, sound ones of many kinds, and faults that are planted into them, for `motion.py`.

An arm moves between poses by minimum jerk and rests at some of them. Its state follows the action by a delay and a
first-order lag, hangs a little below it by gravity, and is read by an encoder with noise and a grain.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from strobe.lerobot.datasets.numbers import ACTION, STATE, compute_statistics
from strobe.lerobot.datasets.recording import find_servos
from strobe.motion.series import Series

Vectors = list[np.ndarray]  # of each episode, (ticks, joints)


@dataclass(frozen=True)
class Robot:
    """A robot's shape.

    Args:
        turn: of its joints' unit: 360 or 2π.
        grip: the gripper's open position; it closes to 0.
        delay: ticks from an action to its state.
        follow: share of the way that a joint goes in a tick.
        noise: of its encoders, in degrees.
        sag: by gravity, in degrees, of the second and the third joint.
        rest: share of the poses at which it rests.
        squeezes: share of the ticks of a closed gripper in which an object holds it open.
        speed: times the usual one.
        kind: its type, as LeRobot names it.
    """

    names: tuple[str, ...]
    turn: float
    grip: float
    fps: float = 30.0
    delay: int = 1
    follow: float = 0.5
    noise: float = 0.05
    sag: float = 1.0
    rest: float = 0.5
    squeezes: float = 0.0
    speed: float = 1.0
    seconds: float = 8.0
    kind: str | None = None


DEGREES = Robot(("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper"), 360.0, 100.0,
                kind="so101_follower")  # fmt: skip
RADIANS = Robot((*(f"joint_{at}" for at in range(1, 8)), "gripper"), 2 * np.pi, 1.0, delay=2, follow=0.4)


@dataclass
class Made:
    """A recording: actions and states by episode, and the means that ``meta/episodes`` would say."""

    robot: Robot
    action: Vectors
    state: Vectors
    task: list[np.ndarray]
    tasks: int = 1
    means: dict[str, np.ndarray] = field(default_factory=dict)

    def note_means(self) -> Made:
        """Take each episode's own means, as LeRobot does when it saves one."""
        pairs = ((ACTION, self.action), (STATE, self.state))
        self.means = {name: np.stack([one.mean(axis=0) for one in each]) for name, each in pairs}
        return self

    def make_another(self, seed: int) -> Made:
        """Return a sound recording of the same robot, with other motions."""
        return make_recording(self.robot, seed, len(self.action))

    def series(self) -> Series:
        """Return what the checks read of it."""
        ends = np.cumsum([0, *map(len, self.action)]).tolist()
        joined = {ACTION: np.concatenate(self.action), STATE: np.concatenate(self.state)}
        vectors = {name: values.astype(np.float32) for name, values in joined.items()}
        names = [f"{name}.pos" for name in self.robot.names[: vectors[ACTION].shape[1]]]
        names += [f"more_{at}" for at in range(vectors[ACTION].shape[1] - len(names))]
        return Series(
            self.robot.fps, vectors, {ACTION: names, STATE: names}, np.arange(len(self.action)),
            list(pairwise(ends)), np.concatenate(self.task), self.tasks, self.means, find_servos(self.robot.kind),
        )  # fmt: skip


def make_recording(robot: Robot, seed: int, episodes: int = 12) -> Made:
    """Return a sound recording of a task that begins and ends near the same poses."""
    random = np.random.default_rng(seed)
    home = np.append(random.uniform(-0.1, 0.1, len(robot.names) - 1) * robot.turn, 0.8 * robot.grip)
    pairs = [_make_episode(robot, home, random) for _ in range(episodes)]
    action, state = ([pair[at].astype(np.float32) for pair in pairs] for at in (0, 1))
    return Made(robot, action, state, [np.zeros(len(one), np.int64) for one in action]).note_means()


def _make_episode(robot: Robot, home: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    arm, parts, pose = len(robot.names) - 1, [], home.copy()
    needed = int(robot.seconds * robot.fps * random.uniform(0.8, 1.2))
    while sum(map(len, parts)) < needed:
        goal = home + np.append(random.normal(0, 0.06, arm) * robot.turn, 0)
        goal[-1] = robot.grip * random.choice([0.0, 0.85]) + robot.grip * random.uniform(0, 0.1)
        ticks = max(4, int(robot.fps * random.uniform(0.6, 1.4) / robot.speed))
        way = np.linspace(0, 1, ticks)[:, None]
        parts.append(pose + (10 * way**3 - 15 * way**4 + 6 * way**5) * (goal - pose))
        if random.random() < robot.rest:
            parts.append(np.repeat(goal[None], int(robot.fps * random.uniform(0.4, 1.0)), axis=0))
        pose = goal
    action = np.concatenate(parts)[:needed]
    action[:, :arm] += np.cumsum(random.normal(0, 2e-5, (needed, arm)), axis=0) * robot.turn  # a hand's tremor
    return action, follow(robot, action, random)


def follow(robot: Robot, action: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return the state that follows an action."""
    state, degree = np.empty_like(action), robot.turn / 360
    at = action[0].copy()
    for tick in range(len(action)):
        at = at + robot.follow * (action[max(0, tick - robot.delay)] - at)
        state[tick] = at
    state[:, 1:3] -= robot.sag * degree * (1 + 0.2 * np.tanh(state[:, 1:3] / (30 * degree)))
    if robot.squeezes:
        state[:, -1] = np.maximum(state[:, -1], robot.squeezes * robot.grip)
    noise = random.normal(0, robot.noise * degree, state.shape)
    noise[:, -1] *= robot.grip / robot.turn
    grain = np.append(np.full(state.shape[1] - 1, robot.turn / 4096), robot.grip / 1000)
    return np.round((state + noise) / grain) * grain


# Sound recordings of other kinds.


def _speeds_to_a_goal(made: Made) -> Made:
    """Return a recording whose actions are speeds by the way that is left, as a scripted expert's are."""
    random, pairs = np.random.default_rng(0), []
    for state in made.state:
        goal, left = state[0] + np.ptp(state, axis=0) * random.uniform(-1, 1, state.shape[1]), []
        for tick in range(len(state)):
            left.append((goal - state[0]) * 0.95**tick)
        pairs.append((np.clip(np.stack(left) / np.ptp(state, axis=0) * 4, -1, 1), goal - np.stack(left)))
    action, moved = ([pair[at].astype(np.float32) for pair in pairs] for at in (0, 1))
    return replace(made, action=action, state=moved).note_means()


def _deltas(made: Made) -> Made:
    action = [np.diff(one, axis=0, append=one[-1:]) for one in made.action]
    return replace(made, action=action).note_means()


def _bimanual(made: Made) -> Made:
    other = make_recording(made.robot, 9_000 + len(made.action[0]), len(made.action))
    length = [min(len(one), len(two)) for one, two in zip(made.action, other.action, strict=True)]
    join = [
        [np.hstack([one[:n], two[:n]]) for one, two, n in zip(mine, theirs, length, strict=True)]
        for mine, theirs in ((made.action, other.action), (made.state, other.state))
    ]
    return replace(made, action=join[0], state=join[1], task=[np.zeros(n, np.int64) for n in length]).note_means()


def _mobile(made: Made) -> Made:
    random = np.random.default_rng(len(made.action[0]))
    action, state = [], []
    for one, two in zip(made.action, made.state, strict=True):
        speed = np.repeat(random.choice([-0.2, 0.0, 0.2], (len(one) // 20 + 1, 2)), 20, axis=0)[: len(one)]
        action.append(np.hstack([one, speed]))
        state.append(np.hstack([two, _smooth(speed) + random.normal(0, 0.005, speed.shape)]))
    return replace(made, action=action, state=state).note_means()


def _smooth(values: np.ndarray) -> np.ndarray:
    return np.stack([np.convolve(column, np.ones(4) / 4)[: len(column)] for column in values.T], axis=1)


def _next_state(made: Made) -> Made:
    return replace(made, action=[np.concatenate([one[1:], one[-1:]]) for one in made.state]).note_means()


def _fast_wrist(made: Made) -> Made:
    turn, wrist = made.robot.turn, len(made.robot.names) - 2
    random = np.random.default_rng(len(made.action[0]))
    for one, two in zip(made.action, made.state, strict=True):
        swing = 0.45 * turn * np.sin(np.arange(len(one)) * random.uniform(0.25, 0.35))
        one[:, wrist], two[1:, wrist], two[0, wrist] = swing, swing[:-1], swing[0]
    return made.note_means()


def _swing(made: Made) -> Made:
    """In a third of the episodes the lift swings faster than its servo follows, as a hand does that wipes."""
    random = np.random.default_rng(len(made.action[0]))
    for at in range(0, len(made.action), 3):
        swing = np.sin(np.arange(len(made.action[at])) * random.uniform(0.24, 0.3))
        made.action[at][:, 1] = made.action[at][0, 1] + 0.04 * made.robot.turn * swing
        made.state[at] = follow(made.robot, made.action[at].astype(float), random)
    return made.note_means()


def _limit_lift(made: Made) -> Made:
    stop = float(np.quantile(np.concatenate(made.state)[:, 1], 0.8))
    return replace(made, state=[_limit(one, stop) for one in made.state]).note_means()


def _limit(state: np.ndarray, stop: float) -> np.ndarray:
    limited = state.copy()
    limited[:, 1] = np.minimum(limited[:, 1], stop)
    return limited


def _tasks(made: Made) -> Made:
    task = [np.full(len(one), at % 3) for at, one in enumerate(made.task)]
    return replace(made, task=task, tasks=3)


def _slow_arm(made: Made) -> Made:
    return made


SOUND: dict[str, tuple[Callable[[Robot], Robot], Callable[[Made], Made]]] = {
    "plain": (lambda robot: robot, _slow_arm),
    "10 Hz": (lambda robot: replace(robot, fps=10.0, follow=0.9), _slow_arm),
    "100 Hz": (lambda robot: replace(robot, fps=100.0, follow=0.2, delay=5, seconds=4.0), _slow_arm),
    "noisy encoders": (lambda robot: replace(robot, noise=0.5), _slow_arm),
    "long rests": (lambda robot: replace(robot, rest=1.0, speed=2.0), _slow_arm),
    "no rests": (lambda robot: replace(robot, rest=0.0), _slow_arm),
    "gripper squeezes": (lambda robot: replace(robot, squeezes=0.3), _slow_arm),
    "gravity": (lambda robot: replace(robot, sag=2.0), _slow_arm),
    "slow to follow": (lambda robot: replace(robot, follow=0.15, delay=3), _slow_arm),
    "fast motions": (lambda robot: replace(robot, speed=2.0), _slow_arm),
    "swings": (lambda robot: replace(robot, follow=0.25, delay=0), _swing),
    "deltas": (lambda robot: robot, _deltas),
    "speeds to a goal": (lambda robot: robot, _speeds_to_a_goal),
    "bimanual": (lambda robot: robot, _bimanual),
    "mobile base": (lambda robot: robot, _mobile),
    "next state": (lambda robot: robot, _next_state),
    "fast wrist": (lambda robot: replace(robot, kind=None), _fast_wrist),  # no hobby servo is so fast
    "at its stop": (lambda robot: robot, _limit_lift),
    "several tasks": (lambda robot: robot, _tasks),
    "short episodes": (lambda robot: replace(robot, seconds=2.5), _slow_arm),
}


# Faults. Each plant has three strengths, 0 to 2: a size, or how many of the episodes have it.


def _some(made: Made, strength: int) -> list[int]:
    count = len(made.action)
    return [[1, 4], list(range(0, count, 3)), list(range(count // 2, count))][strength]


def _change(vectors: Vectors, episodes: list[int], change: Callable[[np.ndarray], np.ndarray]) -> Vectors:
    return [change(one.copy()) if at in episodes else one for at, one in enumerate(vectors)]


def _column(joint: int, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    def apply(values: np.ndarray) -> np.ndarray:
        values[:, joint] = change(values[:, joint])
        return values

    return apply


def _level(made: Made, strength: int) -> Made:
    degrees = (5.0, 8.0, 17.0)[strength] * made.robot.turn / 360
    every = list(range(len(made.state)))
    return replace(made, state=_change(made.state, every, _column(1, lambda one: one + degrees))).note_means()


def _complement(made: Made, strength: int) -> Made:
    flip = _column(-1, lambda one: made.robot.grip - one)
    return replace(made, state=_change(made.state, _some(made, strength), flip)).note_means()


def _sign(made: Made, strength: int) -> Made:
    return replace(made, state=_change(made.state, _some(made, strength), _column(3, np.negative))).note_means()


def _factor(made: Made, strength: int) -> Made:
    factor, every = (1.5, 2.0, 4.0)[strength], list(range(len(made.state)))
    return replace(made, state=_change(made.state, every, _column(2, lambda one: factor * one))).note_means()


def _units(made: Made, strength: int) -> Made:
    factor = np.full(len(made.robot.names), np.pi / 180 if made.robot.turn == 360 else 180 / np.pi)
    factor[-1] = 1.0
    some = _some(made, strength)
    action, state = (_change(each, some, lambda one: one * factor) for each in (made.action, made.state))
    return replace(made, action=action, state=state).note_means()


def _exchange_joints(made: Made, strength: int) -> Made:
    order = np.arange(len(made.robot.names))
    order[[2, 3]] = 3, 2
    return replace(made, state=_change(made.state, _some(made, strength), lambda one: one[:, order])).note_means()


def _hold_encoder(made: Made, strength: int) -> Made:
    hold = _column(2, lambda one: np.full_like(one, one[0]))
    return replace(made, state=_change(made.state, _some(made, strength), hold)).note_means()


def _late(made: Made, strength: int) -> Made:
    ticks = (3, 5, 10)[strength]
    half = list(range(len(made.action) // 2))
    late = _change(made.action, half, lambda one: np.concatenate([np.repeat(one[:1], ticks, axis=0), one[:-ticks]]))
    return replace(made, action=late).note_means()


def _copy_state(made: Made, strength: int) -> Made:
    """The actions are the states of their own rows, nearly at the weakest strength, or of two rows before."""
    random, ticks = np.random.default_rng(0), (0, 0, 2)[strength]
    noise = (0.2 * made.robot.turn / 360, 0.0, 0.0)[strength]
    copied = [np.concatenate([np.repeat(one[:1], ticks, axis=0), one[: len(one) - ticks]]) for one in made.state]
    return replace(made, action=[one + noise * random.normal(size=one.shape) for one in copied]).note_means()


def _spikes(made: Made, strength: int) -> Made:
    size = (0.25, 0.6, 11.0)[strength] * made.robot.turn

    def spike(values: np.ndarray) -> np.ndarray:
        at = len(values) // 3
        values[at, 3] += size
        values[at + 40 : at + 42, 3] -= size
        return values

    return replace(made, state=_change(made.state, [3, 7], spike)).note_means()


def _wrap(made: Made, strength: int) -> Made:
    """The wrist's zero lies where it turns, so that it jumps in a part of the episodes."""
    turn, wrist = made.robot.turn, len(made.robot.names) - 2
    every = np.concatenate(made.state)[:, wrist]
    moved = turn / 2 - np.quantile(every, (0.98, 0.9, 0.5)[strength])

    def wrap(one: np.ndarray) -> np.ndarray:
        return (one + moved + turn / 2) % turn - turn / 2

    all_of_them = list(range(len(made.state)))
    action, state = (_change(each, all_of_them, _column(wrist, wrap)) for each in (made.action, made.state))
    return replace(made, action=action, state=state).note_means()


def _repeat_part(made: Made, strength: int) -> Made:
    ticks = int((1.5, 2.5, 4.0)[strength] * made.robot.fps)
    ticks = min(ticks, min(map(len, made.action)) - 10)
    for each in (made.action, made.state):
        each[5] = np.concatenate([each[5][:5], each[2][8 : 8 + ticks], each[5][5 + ticks :]])
    return made.note_means()


def _exchange_vectors(made: Made, strength: int) -> Made:
    for at in ([4], [1, 4], [0, 3, 6, 9])[strength]:
        made.action[at], made.state[at] = made.state[at], made.action[at]
    return made  # meta/episodes has the means of before


def _hold_values(made: Made, strength: int) -> Made:
    def hold(values: np.ndarray) -> np.ndarray:
        return values[np.arange(len(values)) // 3 * 3]

    some = _some(made, strength)
    return replace(made, state=_change(made.state, some, hold)).note_means()


def _slip(made: Made, strength: int) -> Made:
    """The encoder of a joint slips: from then on its state is elsewhere."""
    degrees = (40.0, 90.0, 160.0)[strength]

    def slip(one: np.ndarray) -> np.ndarray:
        return one + degrees * (np.arange(len(one)) > len(one) // 3)

    return replace(made, state=_change(made.state, _some(made, strength), _column(1, slip))).note_means()


# Name of the fault → the check that names it, and the plant.
PLANTS: dict[str, tuple[str, Callable[[Made, int], Made]]] = {
    "level": ("levels", _level),
    "complement": ("polarity", _complement),
    "sign": ("polarity", _sign),
    "factor": ("scale", _factor),
    "units": ("units", _units),
    "joints exchanged": ("exchanged joints", _exchange_joints),
    "stuck encoder": ("stuck", _hold_encoder),
    "late actions": ("delays", _late),
    "copied state": ("copied state", _copy_state),
    "spikes": ("spikes", _spikes),
    "wraps": ("wraps", _wrap),
    "repeated part": ("repeats", _repeat_part),
    "vectors exchanged": ("own means", _exchange_vectors),
    "held values": ("held", _hold_values),
    "encoder slips": ("speeds", _slip),
}


@dataclass(frozen=True)
class Camera:
    """A camera that sees the arm.

    Args:
        late: frames by which its images are behind their rows.
        more: images behind each episode's rows, of another motion.
        blind: it sees something else move.
        bright: what is behind the arm, of 255.
    """

    name: str
    late: int = 0
    more: int = 0
    blind: bool = False
    bright: int = 40


SIDE = 64


def film(made: Made, root: Path, *cameras: Camera) -> None:
    """Add the videos of cameras to a recording that `write_recording` wrote, a file each."""
    import av

    file = next((root / "meta/episodes").rglob("*.parquet"))
    episodes, info = pd.read_parquet(file), json.loads((root / "meta/info.json").read_text())
    for camera in cameras:
        key, frames, times = f"observation.images.{camera.name}", 0, []
        path = root / f"videos/{key}/chunk-000/file-000.mp4"
        path.parent.mkdir(parents=True)
        with av.open(str(path), "w") as out:
            stream: Any = out.add_stream("mpeg4", rate=round(made.robot.fps))
            stream.width = stream.height = SIDE
            stream.pix_fmt, stream.bit_rate, stream.gop_size = "yuv420p", 2_000_000, 10
            for number, state in enumerate(made.state):
                images = list(_draw(made, camera, number, state))
                times.append((frames / made.robot.fps, (frames + len(images)) / made.robot.fps))
                frames += len(images)
                for image in images:
                    out.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
            out.mux(stream.encode())
        info["features"][key] = {"dtype": "video", "shape": [SIDE, SIDE, 3], "names": ["height", "width", "channels"]}
        places = {"chunk_index": 0, "file_index": 0, "from_timestamp": [a for a, _ in times],
                  "to_timestamp": [b for _, b in times]}  # fmt: skip
        episodes = episodes.assign(**{f"videos/{key}/{name}": values for name, values in places.items()})
    episodes.to_parquet(file)
    statistics = json.loads((root / "meta/stats.json").read_text())
    grey = {name: [[[value]]] * 3 for name, value in (("mean", 0.3), ("std", 0.2), ("min", 0.0), ("max", 0.9))}
    statistics |= {f"observation.images.{camera.name}": grey for camera in cameras}
    (root / "meta/stats.json").write_text(json.dumps(statistics))
    (root / "meta/info.json").write_text(json.dumps(info))


def _draw(made: Made, camera: Camera, number: int, state: np.ndarray) -> Iterator[np.ndarray]:
    """Yield images: a block of the arm for each two joints, where they put it."""
    random = np.random.default_rng(number)
    if camera.blind:
        state = made.state[(number + 1) % len(made.state)]
        state = np.resize(state, (len(made.state[number]), state.shape[1]))
    rows = np.clip(np.arange(len(state)) - camera.late, 0, len(state) - 1)
    more = random.choice(len(state), camera.more) if camera.more else np.zeros(0, int)
    turn = made.robot.turn
    for row in [*rows, *more]:
        image = np.full((SIDE, SIDE, 3), camera.bright, np.uint8)
        for joint in (0, 2):
            x, y = (int(SIDE * (0.5 + state[row, at] / turn)) % (SIDE - 12) for at in (joint, joint + 1))
            image[y : y + 12, x : x + 12] = 220
        yield np.clip(image + random.normal(0, 3, image.shape), 0, 255).astype(np.uint8)


def write_recording(made: Made, root: Path) -> Path:
    """Write a recording into the folder ``root`` as LeRobot lays it out, without cameras. Return ``root``."""
    names = [f"{name}.pos" for name in made.robot.names]
    lengths = [len(one) for one in made.action]
    ends = np.cumsum([0, *lengths])
    vectors = {ACTION: made.action, STATE: made.state}
    features: dict[str, Any] = {
        name: {"dtype": "float32", "shape": [each[0].shape[1]], "names": names} for name, each in vectors.items()
    }
    features |= {name: {"dtype": "int64", "shape": [1]} for name in ("episode_index", "index", "task_index")}
    features["timestamp"] = {"dtype": "float32", "shape": [1]}
    frame = np.concatenate([np.arange(length) for length in lengths])
    rows = {
        "episode_index": np.repeat(np.arange(len(lengths)), lengths), "index": np.arange(ends[-1]),
        "task_index": np.concatenate(made.task), "timestamp": (frame / made.robot.fps).astype(np.float32),
        **{name: list(np.concatenate(each).astype(np.float32)) for name, each in vectors.items()},
    }  # fmt: skip
    meta: dict[str, Any] = {
        "episode_index": range(len(lengths)), "length": lengths, "data/chunk_index": 0, "data/file_index": 0,
        "dataset_from_index": ends[:-1], "dataset_to_index": ends[1:],
        **{f"stats/{name}/mean": list(values) for name, values in made.means.items()},
    }  # fmt: skip
    for folder in ("data/chunk-000", "meta/episodes/chunk-000"):
        (root / folder).mkdir(parents=True)
    pd.DataFrame(rows).to_parquet(root / "data/chunk-000/file-000.parquet")
    pd.DataFrame(meta).to_parquet(root / "meta/episodes/chunk-000/file-000.parquet")
    tasks = [f"do the task {number}" for number in range(made.tasks)]
    pd.DataFrame({"task_index": range(made.tasks)}, index=pd.Index(tasks)).to_parquet(root / "meta/tasks.parquet")
    statistics = {name: compute_statistics(np.concatenate(each).astype(np.float32)) for name, each in vectors.items()}
    (root / "meta/stats.json").write_text(json.dumps(statistics))
    info = {
        "codebase_version": "v3.0", "fps": made.robot.fps, "features": features, "total_episodes": len(lengths),
        "total_frames": int(ends[-1]), "total_tasks": made.tasks, "robot_type": made.robot.kind,
    }  # fmt: skip
    (root / "meta/info.json").write_text(json.dumps(info))
    return root
