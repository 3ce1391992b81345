"""Faults of data sets and of statistics, each in two sizes, with sound twins, for `preflight.py`.

The arm is the emulated one of `lags.py`, its policy an ACT of random weights: only files and numbers are read.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from miswired.case import Case, Plant, Stage, look, serious
from miswired.data import ACTION, STATE, Ticks
from miswired.lags import CAMERA, EMULATED, FPS, JOINTS, LAG_S, TICKS, simulate_motion
from miswired.training import ACT

from strobe.core.results.finding import Finding
from strobe.lerobot.datasets.numbers import compute_statistics
from strobe.lerobot.datasets.truth import RelativeActions, relative_to_state
from strobe.preflight.run import preflight

EPISODES, CHUNK, STILL, GRIPPER = 8, 8, 3, 5
BIG_EPISODES, BIG_TICKS = 500, 300
READER = Path(__file__).with_name("reading.py")
MOST_S = {False: 15.0, True: 60.0}  # of BIG_EPISODES, of more
Change = Callable[[list[Ticks]], list[Ticks]]
VECTORS = (ACTION, STATE)


def _each(change: Callable[[np.ndarray, int], np.ndarray], keys: Sequence[str] = VECTORS) -> Change:
    """Return a change of vectors: of an episode's (ticks, joints) and its number."""
    return lambda episodes: [
        ticks | {key: change(ticks[key].copy(), at) for key in keys} for at, ticks in enumerate(episodes)
    ]


def _json(file: Path, change: Callable[[Any], Any]) -> None:
    file.write_text(json.dumps(change(json.loads(file.read_text()))), encoding="utf-8")


def _episodes(change: Change, seed: int = 0) -> list[Ticks]:
    made: list[Ticks] = [
        dict(zip(VECTORS, simulate_motion(FPS, LAG_S, TICKS, 1000 * seed + at), strict=True)) for at in range(EPISODES)
    ]
    return [ticks | {key: ticks[key].astype(np.float32) for key in VECTORS} for ticks in change(made)]


def _write_recording(stage: Stage, name: str, episodes: list[Ticks], *, averaged: bool = False) -> Path:
    """Write the recording with these vectors; ``averaged``: with quantiles as LeRobot 0.6.1 merges episodes' own."""
    own = [stage.episodes[at] | ticks for at, ticks in enumerate(episodes)]
    root = stage.write_dataset(own, name)
    if averaged:
        mean: dict[str, dict[str, list[float]]] = {}
        for key in VECTORS:
            each = [compute_statistics(ticks[key]) for ticks in episodes]
            quantiles = ("q01", "q10", "q50", "q90", "q99")
            mean[key] = {q: np.mean(np.array([one[q] for one in each], float), axis=0).tolist() for q in quantiles}
        _json(root / "meta" / "stats.json", lambda read: read | {key: read[key] | mean[key] for key in VECTORS})
    return root


def _make_trained_policy(
    stage: Stage, data: Path, mode: str = "MEAN_STD", more: Callable[[Path], None] | None = None
) -> Path:
    """Return a copy of the policy that normalises by ``mode``, with the statistics of ``data`` in its processors."""
    from safetensors.numpy import load_file, save_file

    folder, read = stage.copy(), json.loads((data / "meta" / "stats.json").read_text())
    numbers = {
        f"{key}.{name}": np.array(values, np.float32).ravel() for key in VECTORS for name, values in read[key].items()
    }
    for file in folder.glob("policy_*processor_step_*.safetensors"):
        save_file(load_file(file) | numbers, file)
    for file in folder.glob("policy_*processor.json"):

        def set_normalization_mode(document: Any) -> Any:
            for step in document["steps"]:
                if "norm_map" in (step.get("config") or {}):
                    step["config"]["norm_map"] |= {"STATE": mode, "ACTION": mode}
            return document

        _json(file, set_normalization_mode)
    if more is not None:
        more(folder)
    return folder


def _relative(exclude: Sequence[str] = ()) -> Callable[[Path], None]:
    step = {
        "registry_name": "relative_actions_processor",
        "config": {"enabled": True, "exclude_joints": list(exclude), "action_names": list(JOINTS)},
    }

    def change(folder: Path) -> None:
        _json(folder / "config.json", lambda config: config | {"chunk_size": CHUNK, "n_action_steps": CHUNK})
        file = folder / "policy_preprocessor.json"
        _json(file, lambda document: document | {"steps": [step, *document["steps"]]})

    return change


def _case(
    stage: Stage, name: str, change: Change, mode: str = "MEAN_STD", *, averaged: bool = False, robot: bool = False,
    more: Callable[[Path], None] | None = None, seed: int = 0,
) -> Case:  # fmt: skip
    data = _write_recording(stage, name, _episodes(change, seed), averaged=averaged)
    return Case(_make_trained_policy(stage, data, mode, more), data, robot=_robot(stage) if robot else None)


def _robot(stage: Stage, gripper: str = "degrees") -> Any:
    robot = stage.robot()
    units = ["degrees"] * (len(JOINTS) - 1) + [gripper]
    features = {
        name: each.model_copy(update={"unit": "degrees", "units": units} if name in VECTORS else {})
        for name, each in robot.features.items()
    }
    return replace(robot, features=features)


# What a finding says is done.


def _use_fixed_copy(finding: Finding, case: Case, stage: Stage, *, trained: str = "") -> Case:
    assert "--fix_data=FOLDER" in finding.do
    new = stage.work / "fixed-data"
    shutil.rmtree(new, ignore_errors=True)
    preflight(replace(case.reading(), fix_data=new))
    fixed = replace(case, data=new)
    if not trained:
        return fixed
    mode, more = ("MEAN_STD", _relative()) if trained == "relative" else (trained, None)
    return replace(fixed, policy=_make_trained_policy(stage, new, mode, more))


def _tasks_in_words(finding: Finding, case: Case, stage: Stage) -> Case:
    from lerobot.datasets.dataset_tools import modify_tasks
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    new = stage.work / "fixed-data"
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(case.data, new)
    words = json.loads(finding.do.partition("task_replacements='")[2].partition("'")[0])
    modify_tasks(LeRobotDataset("local/fixed-data", root=new), task_replacements=words)
    return replace(case, data=new)


def _rate_corrected(finding: Finding, case: Case, stage: Stage) -> Case:
    assert "correct 'fps'" in finding.do.lower()
    _json(case.data / "meta" / "info.json", lambda read: read | {"fps": FPS})
    return case


def _left_out(finding: Finding, case: Case, stage: Stage) -> Case:
    flag = finding.do.partition("--dataset.episodes=")[2].partition(")")[0]
    return replace(case, episodes=json.loads(flag))


def _recorded_again(finding: Finding, case: Case, stage: Stage) -> Case:
    return _case(stage, "truth-again", lambda episodes: episodes, robot=case.robot is not None)


def _shifted_as_it_says(finding: Finding, case: Case, stage: Stage) -> Case:
    ticks = int(finding.do.partition("Shift the actions by ")[2].split(" ")[0])

    def later(episodes: list[Ticks]) -> list[Ticks]:
        made = _equal(1 - ticks)(episodes)
        return [{ACTION: each[ACTION][ticks:], STATE: each[STATE][:-ticks]} for each in made]

    padded = [
        {key: np.concatenate([values, values[-1:].repeat(TICKS - len(values), axis=0)]) for key, values in each.items()}
        for each in later(_episodes(lambda episodes: episodes))
    ]
    data = _write_recording(stage, "truth-shifted", padded)
    return Case(_make_trained_policy(stage, data), data)


# What is planted.


def _wide(times: float) -> Change:
    return _each(lambda values, at: values * (times if at == 0 else 1.0))


def _equal(ticks: int) -> Change:
    """The state is the action of so many ticks before."""

    def change(episodes: list[Ticks]) -> list[Ticks]:
        index = np.clip(np.arange(TICKS) - ticks, 0, TICKS - 1)
        return [each | {STATE: each[ACTION][index]} for each in episodes]

    return change


def _joint(number: int, value: Callable[[np.ndarray, np.random.Generator], np.ndarray]) -> Change:
    random = np.random.default_rng(0)

    def change(values: np.ndarray, at: int) -> np.ndarray:
        values[:, number] = value(values[:, number], random)
        return values

    return _each(change)


def _standing(ticks: int) -> Change:
    return _each(lambda values, at: np.concatenate([values[ticks : ticks + 1].repeat(ticks, axis=0), values[ticks:]]))


def _plant_nonfinite_states(count: int) -> Callable[[Stage], Case]:
    import pandas as pd

    def make(stage: Stage) -> Case:
        case = _case(stage, "truth-not-numbers", lambda made: made)
        (file,) = (case.data / "data").rglob("*.parquet")
        frames = pd.read_parquet(file)
        states = np.stack(frames[STATE].to_list())
        states[2 * TICKS : 2 * TICKS + count, 1] = np.nan
        frames.assign(**{STATE: list(states)}).to_parquet(file)
        return case

    return make


def _noisy(spread: float) -> Change:
    return _joint(STILL, lambda values, random: 12 + spread * random.uniform(-1, 1, len(values)))


def _plant_scaled_statistics(name: str, times: float) -> Callable[[Stage], Case]:
    def make(stage: Stage) -> Case:
        case = _case(stage, "truth-stated", lambda episodes: episodes)
        scaled = lambda read: read | {STATE: read[STATE] | {name: [times * each for each in read[STATE][name]]}}  # noqa: E731
        _json(case.data / "meta" / "stats.json", scaled)
        return replace(case, policy=_make_trained_policy(stage, case.data))

    return make


def _plant_shifted_index(off: int, episodes: Sequence[int]) -> Callable[[Stage], Case]:
    import pandas as pd

    def make(stage: Stage) -> Case:
        case = _case(stage, "truth-numbered", lambda made: made)
        (file,) = (case.data / "meta" / "episodes").rglob("*.parquet")
        table = pd.read_parquet(file)
        for end in ("dataset_from_index", "dataset_to_index"):
            table[end] = [value + off * (at in episodes) for at, value in enumerate(table[end])]
        table.to_parquet(file)
        return case

    return make


def _absolute(times: float) -> Callable[[Stage], Case]:
    return lambda stage: _case(stage, "truth-absolute", _each(lambda values, at: values + times * at), more=_relative())


def _duplicate_first_episode(episodes: Sequence[int]) -> Change:
    """These episodes are the first one again."""
    return lambda made: [made[0] if at in episodes else ticks for at, ticks in enumerate(made)]


def _repeat_stale_states(rate: float) -> Change:
    """The state is read at a part of the loop's rate, and written again in between."""
    read = np.floor(np.arange(TICKS) * rate + 1e-9)
    index = np.searchsorted(read, read)
    return _each(lambda values, at: values[index], keys=(STATE,))


def _camera(change: Callable[[np.ndarray], np.ndarray], episodes: Sequence[int]) -> Callable[[Stage], Case]:
    """The camera's images of these episodes are changed."""

    def make(stage: Stage) -> Case:
        def change_camera(made: list[Ticks]) -> list[Ticks]:
            return [
                ticks | ({CAMERA: change(stage.episodes[at][CAMERA])} if at in episodes else {})
                for at, ticks in enumerate(made)
            ]

        return replace(_case(stage, "truth-camera", change_camera), decode=True)

    return make


def _black(images: np.ndarray) -> np.ndarray:
    return np.zeros_like(images)


def _freeze_images(images: np.ndarray) -> np.ndarray:
    return images[:1].repeat(len(images), axis=0)


def _drop_camera_statistics(*names: str) -> Callable[[Stage], Case]:
    """The camera has none of these statistics; none at all without names."""

    def make(stage: Stage) -> Case:
        case = _case(stage, "truth-no-statistics", lambda made: made)

        def drop_statistics(read: Any) -> Any:
            own = read.pop(CAMERA)
            return read | ({CAMERA: {key: own[key] for key in own if key not in names}} if names else {})

        _json(case.data / "meta" / "stats.json", drop_statistics)
        return case

    return make


def _task(text: str, episodes: Sequence[int]) -> Callable[[Stage], Case]:
    """The task of these episodes, for a policy that reads words."""
    import pandas as pd

    def reads(folder: Path) -> None:
        step = {"registry_name": "tokenizer_processor", "config": {"max_length": 48}}
        file = folder / "policy_preprocessor.json"
        _json(file, lambda document: document | {"steps": [step, *document["steps"]]})

    def make(stage: Stage) -> Case:
        case = _case(stage, "truth-task", lambda made: made, more=reads)
        (file,) = (case.data / "data").rglob("*.parquet")
        frames = pd.read_parquet(file)
        frames["task_index"] = frames["episode_index"].isin(episodes).astype(int)
        frames.to_parquet(file)
        tasks = pd.DataFrame({"task_index": [0, 1]}, index=pd.Index(["push the cube to the left", text], name="task"))
        tasks.to_parquet(case.data / "meta" / "tasks.parquet")
        (file,) = (case.data / "meta" / "episodes").rglob("*.parquet")
        rows = pd.read_parquet(file)
        rows["tasks"] = [[text if at in episodes else "push the cube to the left"] for at in range(len(rows))]
        rows.to_parquet(file)
        _json(case.data / "meta" / "info.json", lambda read: read | {"total_tasks": 2})
        return case

    return make


def _said_rate(fps: int) -> Callable[[Stage], Case]:
    def make(stage: Stage) -> Case:
        case = _case(stage, "truth-rate", lambda made: made)
        _json(case.data / "meta" / "info.json", lambda read: read | {"fps": fps})
        return case

    return make


def _late(ticks: float, frames: slice) -> Callable[[Stage], Case]:
    """Frames of one episode have times of later ones."""
    import pandas as pd

    def make(stage: Stage) -> Case:
        case = _case(stage, "truth-late", lambda made: made)
        (file,) = (case.data / "data").rglob("*.parquet")
        table = pd.read_parquet(file)
        times = table["timestamp"].to_numpy().copy()
        times[2 * TICKS : 3 * TICKS][frames] += np.float32(ticks / FPS)
        table.assign(timestamp=times).to_parquet(file)
        return case

    return make


def _truth_plant(name: str, rule: str, says: str, make: Callable[[Stage], Case], fix: Any) -> Plant:
    return Plant("truth", name, (ACT, EMULATED.name), (rule,), says, make, fix)


def _plant(change: Change, **more: Any) -> Callable[[Stage], Case]:
    return lambda stage: _case(stage, "truth-planted", change, **more)


def _retrain_fix(mode: str) -> Any:
    return lambda finding, case, stage: _use_fixed_copy(finding, case, stage, trained=mode)


IN_TRUTH: Sequence[Plant] = tuple(
    _truth_plant(*plant)
    for plant in (
        ("quantiles averaged, an episode 5 times as wide", "data-statistics-wrong", "--fix_data",
         _plant(_wide(5.0), mode="QUANTILES", averaged=True), _retrain_fix("QUANTILES")),
        ("quantiles averaged, an episode 2.5 times as wide", "data-statistics-wrong", "--fix_data",
         _plant(_wide(2.5), mode="QUANTILES", averaged=True), _retrain_fix("QUANTILES")),
        ("relative actions, absolute statistics, far places", "statistics-absolute", "--fix_data", _absolute(30.0),
         _retrain_fix("relative")),
        ("relative actions, absolute statistics, near places", "statistics-absolute", "--fix_data", _absolute(3.0),
         _retrain_fix("relative")),
        ("a joint that stands", "statistics-flat", "in which it moves", _plant(_noisy(0.0), robot=True),
         _recorded_again),
        ("a joint that jitters by 0.02°", "statistics-flat", "in which it moves", _plant(_noisy(0.02), robot=True),
         _recorded_again),
        ("the action is the state", "data-motion-copied-state", "Shift", _plant(_equal(0)), _shifted_as_it_says),
        ("the action is the state two ticks before", "data-motion-copied-state", "Shift", _plant(_equal(-2)),
         _shifted_as_it_says),
        ("24 of 64 frames stand at the start", "data-stands-at-starts", "Start to move", _plant(_standing(24)),
         _recorded_again),
        ("9 of 64 frames stand at the start", "data-stands-at-starts", "Start to move", _plant(_standing(9)),
         _recorded_again),
        ("three episodes count as padding", "data-index", "--fix_data", _plant_shifted_index(60, (1, 3, 5)),
         _use_fixed_copy),
        ("four frames of one episode count as padding", "data-index", "--fix_data", _plant_shifted_index(4, (2,)),
         _use_fixed_copy),
        ("40 frames are no numbers", "data-not", "--dataset.episodes", _plant_nonfinite_states(40), _left_out),
        ("one frame is no number", "data-not", "--dataset.episodes", _plant_nonfinite_states(1), _left_out),
        ("spread five times too large", "data-statistics-wrong", "--fix_data", _plant_scaled_statistics("std", 5.0),
         _retrain_fix("MEAN_STD")),
        ("spread 15 % too large", "data-statistics-wrong", "--fix_data", _plant_scaled_statistics("std", 1.15),
         _retrain_fix("MEAN_STD")),
        ("four episodes are the first one again", "data-copy", "--dataset.episodes",
         _plant(_duplicate_first_episode((1, 3, 5, 7))),
         _left_out),
        ("one episode is the first one again", "data-copy", "--dataset.episodes",
         _plant(_duplicate_first_episode((4,))), _left_out),
        ("the state is read at half the rate", "data-repeats", "Record again", _plant(_repeat_stale_states(0.5)),
         _recorded_again),
        ("the state is read at three quarters of the rate", "data-repeats", "Record again",
         _plant(_repeat_stale_states(0.75)),
         _recorded_again),
        ("a black camera", "data-dark", "remove_feature", _camera(_black, range(EPISODES)), _recorded_again),
        ("a camera that is black in one episode", "data-dark", "--dataset.episodes", _camera(_black, (2,)), _left_out),
        ("a frozen camera", "data-motion-frozen", "Record again", _camera(_freeze_images, range(EPISODES)),
         _recorded_again),
        ("a camera that is frozen in one episode", "data-motion-frozen", "--dataset.episodes",
         _camera(_freeze_images, (2,)),
         _left_out),
        ("no task", "data-task-empty", "modify_tasks", _task("", range(EPISODES)), _tasks_in_words),
        ("no task in one episode", "data-task-empty", "modify_tasks", _task("...", (2,)), _tasks_in_words),
        ("a task of one word", "data-task-one-word", "modify_tasks", _task("push", range(EPISODES)), _tasks_in_words),
        ("a task of one word in one episode", "data-task-one-word", "modify_tasks", _task("push", (2,)),
         _tasks_in_words),
        ("a camera without statistics", "data-statistics", "--fix_data", _drop_camera_statistics(), _use_fixed_copy),
        ("a camera without its spread", "data-statistics", "--fix_data", _drop_camera_statistics("std"),
         _use_fixed_copy),
        ("twice the rate is said", "data-rate", "'fps'", _said_rate(2 * FPS), _rate_corrected),
        ("a rate is said that is one frame off", "data-rate", "'fps'", _said_rate(FPS + 1), _rate_corrected),
        ("an episode is a second late", "data-timestamps", "--dataset.episodes", _late(FPS, slice(None)), _left_out),
        ("a frame is half a tick late", "data-timestamps", "--dataset.episodes", _late(0.5, slice(7, 8)), _left_out),
    )
)  # fmt: skip


def _relative_trained(stage: Stage, seed: int) -> Case:
    """A policy of relative actions with their statistics, on the data set as it was recorded."""
    from safetensors.numpy import load_file, save_file

    case = _case(
        stage, "truth-sound", _each(lambda values, at: values + 20 * at), more=_relative(["gripper"]), seed=seed
    )
    made = _episodes(_each(lambda values, at: values + 20 * at), seed)
    actions, states = (np.concatenate([each[key] for each in made]) for key in VECTORS)
    bounds = [(at * TICKS, (at + 1) * TICKS) for at in range(EPISODES)]
    mask = [joint != "gripper.pos" for joint in JOINTS]
    own = compute_statistics(relative_to_state(actions, states, bounds, RelativeActions(CHUNK, mask)))
    numbers = {f"{ACTION}.{name}": np.array(values, np.float32) for name, values in own.items()}
    for file in case.policy.glob("policy_*processor_step_*.safetensors"):
        save_file(load_file(file) | numbers, file)
    return case


def _stateless_case(stage: Stage, seed: int) -> Case:
    def change(folder: Path) -> None:
        file = folder / "config.json"
        _json(file, lambda read: read | {"input_features": {CAMERA: read["input_features"][CAMERA]}})
        for path in folder.glob("policy_preprocessor.json"):

            def forgotten(document: Any) -> Any:
                for step in document["steps"]:
                    (step.get("config") or {}).get("features", {}).pop(STATE, None)
                return document

            _json(path, forgotten)

    return _case(stage, "truth-sound", _noisy(0.0), more=change, seed=seed)


def _metre_case(stage: Stage, seed: int) -> Case:
    case = _case(stage, "truth-sound", _joint(GRIPPER, lambda values, _: values / 400), seed=seed)
    return replace(case, robot=_robot(stage, "metres"))


def _gripper_case(stage: Stage, seed: int, extent: float = 15.0) -> Case:
    """The gripper is in 0 to 100; the joints stay within ``extent`` degrees."""

    def change(values: np.ndarray, at: int) -> np.ndarray:
        values = values * (extent / 15)
        values[:, GRIPPER] = 50 + values[:, GRIPPER] / extent * 45
        return values

    return replace(_case(stage, "truth-sound", _each(change), seed=seed), robot=_robot(stage, "0 to 100"))


def _sound(change: Change, **more: Any) -> Callable[[Stage, int], Case]:
    return lambda stage, seed: _case(stage, "truth-sound", change, seed=seed, **more)


SOUND: dict[str, Callable[[Stage, int], Case]] = {
    "as recorded": _sound(lambda episodes: episodes, robot=True),
    "quantiles averaged, episodes alike": _sound(lambda episodes: episodes, mode="QUANTILES", averaged=True),
    "quantiles of all frames": _sound(_wide(3.0), mode="QUANTILES"),
    "min and max": _sound(lambda episodes: episodes, mode="MIN_MAX"),
    "relative actions": _relative_trained,
    "no state": _stateless_case,
    "a gripper in metres": _metre_case,
    "a gripper in 0 to 100": _gripper_case,
    "motions of 5 degrees": lambda stage, seed: _gripper_case(stage, seed, 5.0),
    "two robots merged": _sound(_each(lambda values, at: values + 25 * (at % 2)), robot=True),
    "the action is the next state": _sound(_equal(1)),
    "five frames stand": _sound(_standing(5)),
}


def sound_truth(stage: Stage, seeds: int) -> Iterator[str]:
    """Yield the findings on sound twins."""
    for name, make in SOUND.items():
        for seed in range(seeds):
            found = look(replace(make(stage, seed), decode=True))[1]
            rules = [each.rule for each in found if each.rule.startswith(("data-", "statistics-"))]
            yield from (f"{name}, seed {seed}: {rule}" for rule in {*serious(found), *rules} - {"acts-long-unseen"})


def reading_arguments(folder: Path, episodes: int, ticks: int = BIG_TICKS, *, command: bool = False) -> dict[str, Any]:
    """Return what it takes to read a data set of two cameras, a file for each episode, in a process of its own.

    With ``command`` also what `strobe preflight` takes, in another one.
    """
    write_large(folder, episodes, ticks)
    found: dict[str, Any] = {}
    for more in ([], ["--command"])[: 1 + command]:
        read = subprocess.run([sys.executable, str(READER), str(folder), *more], stdout=subprocess.PIPE, check=True,
                              text=True)  # fmt: skip
        found |= json.loads(read.stdout.splitlines()[-1])
    return found


def write_large(root: Path, episodes: int, ticks: int) -> None:
    """Write a data set as LeRobot lays it out, whose videos are one file again and again."""
    import av
    import pandas as pd

    cameras, count = ("observation.images.front", "observation.images.wrist"), np.arange(ticks)
    base, random = root / "base.mp4", np.random.default_rng(0)
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    with av.open(str(base), "w") as out:
        stream: Any = out.add_stream("mpeg4", rate=FPS)
        stream.width = stream.height = 32
        stream.pix_fmt = "yuv420p"
        for _ in range(ticks):
            out.mux(stream.encode(av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8), format="rgb24")))
        out.mux(stream.encode())
    vector = {"dtype": "float32", "shape": [len(JOINTS)], "names": list(JOINTS)}
    features: dict[str, Any] = dict.fromkeys(VECTORS, vector)
    features |= {key: {"dtype": "video", "shape": [32, 32, 3], "names": None} for key in cameras}
    features |= {key: {"dtype": "int64", "shape": [1]} for key in ("episode_index", "index", "task_index")}
    features["timestamp"] = {"dtype": "float32", "shape": [1]}
    rows, every = [], []
    for at in range(episodes):
        path = random.normal(size=(ticks + 2, len(JOINTS))).cumsum(axis=0).astype(np.float32)
        every.append(path)
        table = {"episode_index": at, "index": count + at * ticks, "task_index": 0, "timestamp": count / FPS}
        frames = pd.DataFrame(table | {ACTION: list(path[2:]), STATE: list(path[:-2])})
        files = {f"data/chunk-000/file-{at:03d}.parquet": None}
        files |= dict.fromkeys((f"videos/{key}/chunk-000/file-{at:03d}.mp4" for key in cameras), base)
        for name, source in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            frames.to_parquet(root / name) if source is None else shutil.copy(source, root / name)
        row: dict[str, Any] = {"episode_index": at, "length": ticks, "data/chunk_index": 0, "data/file_index": at}
        row |= {"dataset_from_index": at * ticks, "dataset_to_index": (at + 1) * ticks}
        for key in cameras:
            row |= {f"videos/{key}/chunk_index": 0, f"videos/{key}/file_index": at}
            row |= {f"videos/{key}/from_timestamp": 0.0, f"videos/{key}/to_timestamp": ticks / FPS}
        rows.append(row)
    meta = root / "meta"
    (meta / "episodes" / "chunk-000").mkdir(parents=True)
    pd.DataFrame(rows).to_parquet(meta / "episodes" / "chunk-000" / "file-000.parquet")
    pd.DataFrame({"task_index": [0]}, index=pd.Index(["push"])).to_parquet(meta / "tasks.parquet")
    cuts = {ACTION: slice(2, None), STATE: slice(None, -2)}
    numbers = {key: compute_statistics(np.concatenate([path[cut] for path in every])) for key, cut in cuts.items()}
    grey = {name: [[[0.5]]] * 3 for name in ("mean", "std", "min", "max")}
    (meta / "stats.json").write_text(json.dumps(numbers | dict.fromkeys(cameras, grey)))
    info = {"codebase_version": "v3.0", "fps": FPS, "features": features, "total_tasks": 1}
    info |= {"total_episodes": episodes, "total_frames": episodes * ticks}
    (meta / "info.json").write_text(json.dumps(info))
