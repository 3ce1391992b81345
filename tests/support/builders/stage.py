"""A policy, a data set and a robot that fit together, to plant faults in."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from safetensors.numpy import load_file, save_file

from strobe.core.results.finding import Finding
from strobe.lerobot.datasets import recording
from strobe.preflight.results.wiring import Feature, PreflightResult, Wiring
from strobe.preflight.wiring.reach import JointLimits
from strobe.preflight.wiring.robot import Connected

SIZE = 64
EPISODES, TICKS, LATE = 8, 120, 2
JOINTS = [
    f"{name}.pos" for name in ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
]
CAMERAS = ("observation.images.front", "observation.images.wrist")
DATA = "data/chunk-000/file-000.parquet"
_INDICES = ("episode_index", "frame_index", "index", "task_index")
Tensors = dict[str, np.ndarray]


@dataclass
class Wired:
    """A checkpoint's folder, a data set's folder and a robot. What is changed here is changed in the files."""

    policy: Path
    dataset: Path
    robot: Connected
    rename: dict[str, str] = field(default_factory=dict)

    def read(self) -> Wiring:
        from strobe.preflight.wiring.read import read_wiring

        return read_wiring(self.policy, self.dataset, self.robot, rename=self.rename)

    def findings(self) -> list[Finding]:
        from strobe.preflight.findings.wiring import wiring_findings

        return wiring_findings(self.read())

    def configure(self, **fields: Any) -> None:
        """Set fields of the policy's config."""
        change_json(self.policy / "config.json", lambda config: config | fields)

    def change_weights(self, change: Callable[[Tensors], Tensors]) -> None:
        file = self.policy / "model.safetensors"
        save_file(change(load_file(file)), file, metadata={"format": "pt"})

    def change_statistics(self, processor: str, change: Callable[[Tensors], Tensors]) -> None:
        """Change the statistics of the ``pre`` or ``post`` processor: ``feature.statistic`` → numbers."""
        (file,) = self.policy.glob(f"policy_{processor}processor*.safetensors")
        save_file(change(load_file(file)), file)

    def change_modes(self, processor: str, mode: str) -> None:
        """Let the pre- or the postprocessor normalise state and actions by ``mode``."""

        def change(read: dict[str, Any]) -> dict[str, Any]:
            for step in read["steps"]:
                if "norm_map" in step["config"]:
                    step["config"]["norm_map"] |= {"STATE": mode, "ACTION": mode}
            return read

        change_json(self.policy / f"policy_{processor}processor.json", change)
        modes = {"normalization_mapping": {"VISUAL": "MEAN_STD", "STATE": mode, "ACTION": mode}}
        change_json(self.policy / "config.json", lambda read: read | modes)

    def describe(self, **fields: Any) -> None:
        """Set fields of the data set's description."""
        change_json(self.dataset / recording.INFO, lambda info: info | fields)

    def describe_feature(self, name: str, **fields: Any) -> None:
        def change_info(info: dict[str, Any]) -> dict[str, Any]:
            info["features"][name] |= fields
            return info

        change_json(self.dataset / recording.INFO, change_info)

    def change_frames(self, change: Callable[[pd.DataFrame], Any]) -> None:
        """Change the table of frames: vectors are arrays in their cells. Statistics stay as they are."""
        file = self.dataset / DATA
        frames = pd.read_parquet(file)
        changed = change(frames)
        (frames if changed is None else changed).to_parquet(file)

    def change_vector(self, name: str, change: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> None:
        """Change a vector of all frames: of its (frames, 6) numbers and each frame's episode."""

        def change_column(frames: pd.DataFrame) -> None:
            numbers = change(np.stack(frames[name].to_list()), frames["episode_index"].to_numpy())
            frames[name] = list(numbers.astype(np.float32))

        self.change_frames(change_column)

    def take_statistics(self) -> None:
        """Write the statistics of the frames into the data set and into the policy's processors."""
        frames = pd.read_parquet(self.dataset / DATA)
        made = {name: compute_statistics(np.stack(frames[name].to_list())) for name in ("action", "observation.state")}
        change_json(self.dataset / recording.STATS, lambda read: read | made)
        for kind in ("pre", "post"):
            numbers = {
                f"{name}.{key}": np.array(values, np.float32) for name in made for key, values in made[name].items()
            }
            self.change_statistics(kind, lambda tensors, numbers=numbers: tensors | numbers)

    def preflight(self) -> PreflightResult:
        """The answer of `strobe preflight --read_only`, with its findings."""
        from strobe.core.kinds import advise
        from strobe.preflight.run import Preflight, preflight

        result = preflight(Preflight(self.policy, self.dataset, self.robot, self.rename))
        result.findings = advise(result)
        return result

    def set_tasks(self, tasks: list[str]) -> None:
        """Set the data set's tasks, in words."""
        table = pd.DataFrame({"task_index": range(len(tasks))}, index=pd.Index(tasks))
        table.to_parquet(self.dataset / recording.TASKS)

    def limit(self, joint: str, low: float, high: float, *, capped: bool = False) -> None:
        """Set the limits of a joint, and whether ``max_relative_target`` is set."""
        limits = self.robot.limits
        limits = replace(limits, joints=limits.joints | {joint: (low, high)}, capped=capped)
        self.robot = replace(self.robot, limits=limits)

    def set_robot(self, **fields: Any) -> None:
        """Set facts of the robot and its loop."""
        self.robot = replace(self.robot, **fields)

    def connect(self, name: str, **fields: Any) -> None:
        """Change a feature of the robot."""
        features = self.robot.features
        self.robot = replace(self.robot, features=features | {name: features[name].model_copy(update=fields)})


Plant = Callable[[Wired], Any]


def statistics(processor: str, name: str, values: Any) -> Plant:
    """Other numbers in the statistics of the ``pre`` or ``post`` processor; one number stands for all six."""
    numbers = np.broadcast_to(np.array(values, np.float32), 6).copy()
    return lambda stage: stage.change_statistics(processor, lambda tensors: tensors | {name: numbers})


def statistics_called(processor: str, old: str, new: str | None) -> Plant:
    """Statistics under another name, or without those that begin with ``old``."""

    def change(tensors: Tensors) -> Tensors:
        return {
            name.replace(old, new or ""): values for name, values in tensors.items() if new or not name.startswith(old)
        }

    return lambda stage: stage.change_statistics(processor, change)


def weights_called(start: str) -> Plant:
    return lambda stage: stage.change_weights(lambda tensors: {start + name: each for name, each in tensors.items()})


# Faults that tests plant in more than one place.
INERT = statistics_called("pre", "observation.state", "observation.joints")
MISSING = statistics_called("post", "action", None)
NOT_NUMBERS = statistics("pre", "observation.state.std", np.nan)
OF_OTHER_DATA = statistics("pre", "observation.state.mean", 90)


def another_version(stage: Wired) -> None:
    stage.configure(use_magic=True)


def change_json(file: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    file.write_text(json.dumps(change(json.loads(file.read_text()))))


def make_wired(policy: Path, folder: Path) -> Wired:
    """Return a copy of ``policy`` (of `support.builders.arm_policy`) in ``folder``, with its data set and its robot."""
    shutil.copytree(policy, folder / "policy")
    write_dataset(folder / "data")
    stage = Wired(folder / "policy", folder / "data", robot())
    stage.configure(n_action_steps=10)
    return stage


def robot() -> Connected:
    """An SO-101 with two cameras."""
    features = {
        "action": Feature(name="action", kind="action", shape=[6], dimensions=JOINTS, unit="degrees"),
        "observation.state": Feature(
            name="observation.state", kind="state", shape=[6], dimensions=JOINTS, unit="degrees"
        ),
    } | {name: Feature(name=name, kind="image", shape=[3, SIZE, SIZE]) for name in CAMERAS}
    rates = {name.rpartition(".")[2]: 30.0 for name in CAMERAS}
    limits = {joint.removesuffix(".pos"): (-60.0, 60.0) for joint in JOINTS}
    return Connected(
        "so101_follower", features, 30.0, "push the cube", "sync", camera_fps=rates,
        limits=JointLimits(limits, "my_arm.json"),
    )  # fmt: skip


def compute_statistics(values: np.ndarray) -> dict[str, list[float]]:
    """Return LeRobot's statistics of (frames, dimensions)."""
    made = {"mean": values.mean(0), "std": values.std(0), "min": values.min(0), "max": values.max(0)}
    made |= {f"q{q:02d}": np.quantile(values, q / 100, axis=0) for q in (1, 10, 50, 90, 99)}
    return {name: [float(each) for each in row] for name, row in made.items()} | {"count": [float(len(values))]}


def write_dataset(root: Path) -> None:
    """Write a data set of grey images, as the policy of `support.builders.arm_policy` would be trained on."""
    episodes = range(EPISODES)
    vector = {"dtype": "float32", "shape": [6], "names": JOINTS}
    image = {"dtype": "image", "shape": [SIZE, SIZE, 3], "names": ["height", "width", "channels"]}
    numbers = {name: {"dtype": "int64", "shape": [1], "names": None} for name in _INDICES}
    numbers["timestamp"] = {"dtype": "float32", "shape": [1], "names": None}
    features = {"action": vector, "observation.state": vector, **dict.fromkeys(CAMERAS, image), **numbers}
    info = {
        "codebase_version": "v3.0", "robot_type": "so101_follower", "fps": 30, "total_episodes": EPISODES,
        "total_frames": EPISODES * TICKS, "total_tasks": 1, "features": features,
    }  # fmt: skip
    total = [EPISODES * TICKS]
    statistics = {"mean": [0.0] * 6, "std": [5.0] * 6, "min": [-40.0] * 6, "max": [40.0] * 6, "count": total}
    grey = {name: [[[0.5]]] * 3 for name in ("mean", "min", "max")} | {"std": [[[0.0]]] * 3, "count": total}
    read = {"action": statistics, "observation.state": statistics, **dict.fromkeys(CAMERAS, grey)}
    (root / recording.EPISODES).mkdir(parents=True)
    (root / recording.INFO).write_text(json.dumps(info))
    (root / recording.STATS).write_text(json.dumps(read))
    pd.DataFrame({"task_index": [0]}, index=pd.Index(["push the cube"])).to_parquet(root / recording.TASKS)
    count, files = len(episodes), [0] * len(episodes)
    row = {
        "episode_index": range(count), "length": [TICKS] * count, "data/chunk_index": files, "data/file_index": files,
        "dataset_from_index": [TICKS * number for number in episodes],
        "dataset_to_index": [TICKS * (number + 1) for number in episodes],
    }  # fmt: skip
    pd.DataFrame(row).to_parquet(root / recording.EPISODES / "file-000.parquet")
    (root / DATA).parent.mkdir(parents=True)
    _frames().to_parquet(root / DATA)


def _frames() -> pd.DataFrame:
    """Joints that follow their actions ``LATE`` ticks late: ± 5 over all frames, and −40 and 40 at two of them."""
    paths = []
    for number in range(EPISODES):
        rng = np.random.default_rng(number)
        times = np.arange(TICKS + LATE)[:, None]
        paths.append(np.sin(times * rng.uniform(0.1, 0.4, 6) + rng.uniform(0, 6, 6)))
    whole = np.stack(paths)  # (episodes, ticks, joints)
    peak = 40 * np.array([0.25, 0.5, 0.75, 1.0, 0.75, 0.5, 0.25])[:, None]  # a motion of some ticks, and no spike
    peaks = np.zeros(whole.shape, bool)
    peaks[0, 57:64], peaks[1, 57:64] = True, True
    least = whole[~peaks].reshape(-1, 6)
    rows = EPISODES * TICKS
    spread = np.sqrt((25 * rows - 2 * float((peak**2).sum())) / (rows - 2 * len(peak)))
    whole = (whole - least.mean(0)) / least.std(0) * spread
    whole[0, 57:64], whole[1, 57:64] = -peak, peak
    image = {"bytes": _grey(), "path": None}
    count = EPISODES * TICKS
    frame = np.tile(np.arange(TICKS), EPISODES)
    return pd.DataFrame(
        {
            "episode_index": np.repeat(np.arange(EPISODES), TICKS),
            "frame_index": frame,
            "index": np.arange(count),
            "task_index": np.zeros(count, int),
            "timestamp": (frame / 30).astype(np.float32),
            "action": list(whole[:, LATE:].reshape(count, 6).astype(np.float32)),
            "observation.state": list(whole[:, :-LATE].reshape(count, 6).astype(np.float32)),
            **{name: [image] * count for name in CAMERAS},
        }
    )


def _grey() -> bytes:
    import cv2

    return cv2.imencode(".png", np.full((SIZE, SIZE, 3), 128, np.uint8))[1].tobytes()


def remove_normaliser(stage: Wired) -> None:
    def change(read: dict[str, Any]) -> dict[str, Any]:
        return read | {"steps": [step for step in read["steps"] if "norm_map" not in step["config"]]}

    change_json(stage.policy / "policy_preprocessor.json", change)
