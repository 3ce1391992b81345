"""Six public questions of the kind "fine in open loop, useless on the arm": does Strobe name the cause first?

Each question is of a public thread that no check was written from. It is rebuilt small, with LeRobot's own files,
recordings and simulators, and asked with the commands of docs/guides/does-nothing-useful.md:

- huggingface/lerobot#1763: the arm stays at one pose. The statistics have the training data's name in theirs. Also
  #4451, where a dot stands for an underscore.
- simchowitzlabpublic/much-ado-about-noising#18: no episode succeeds. The checkpoint's actions are relative, and the
  simulator takes absolute ones. Also the other way round.
- strands-labs/robots#172: no episode succeeds. The images are turned by 180° twice.
- Robbyant/lingbot-vla#37: one arm behaves at random. Another order of the dimensions in the deployment.
- IliaLarchenko/dot_policy#4: the arm stands until somebody pushes it. The episodes begin with a pause. Also where it
  is later (RoboTwin-Platform/RoboTwin#50), which no check names.
- huggingface/lerobot#2051: good in training, no success in evaluation. The script drops the loaded weights.

Bars: the first warning names the cause; sound twins get none; the later pause is shown and has no bar. The last
question's checkpoint succeeds in each episode, and `strobe.verify` refuses the script's policy beside it.

    python benchmarks/public_questions.py            ten minutes on two cores
    python benchmarks/public_questions.py --quick    fewer episodes, without the images

The last line is JSON with every figure.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common.shared import finish, need
from safetensors.torch import load_file, save_file

from strobe.core.cli.main import main as strobe
from strobe.core.demo import CHECKPOINT
from strobe.core.runs import store

STATE, OBJECT, ACTION, IMAGE = "observation.state", "observation.environment_state", "action", "observation.image"
EPISODES, PAUSE = 12, 30  # ticks; a chunk of the demo has 20
ORDER = [2, 0, 1, 3]  # of x, y, z and gripper in the deployment
GAIN = 0.01  # metres of MetaWorld's hand for an action of 1
Episode = dict[str, np.ndarray]  # feature → (ticks, …)


@dataclass(frozen=True)
class Answer:
    """The text of a command.

    Args:
        rules, titles: of the warnings, the first first.
    """

    rules: list[str]
    titles: list[str]


def ask(work: Path, command: str, *arguments: str) -> Any:
    """Return the answer of a command of Strobe."""
    runs = work / "runs"
    shutil.rmtree(runs, ignore_errors=True)
    with contextlib.redirect_stdout(io.StringIO()):
        strobe([command, *arguments, f"--output_dir={runs}"])
    (made,) = runs.iterdir()
    return store.load_answer(made)


def look(work: Path, *arguments: str) -> Answer:
    """Return the warnings of `strobe preflight`."""
    found = [each for each in ask(work, "preflight", *arguments).findings if each.level == "warning"]
    return Answer([each.rule for each in found], [each.title for each in found])


def read(root: Path) -> tuple[Any, list[Episode]]:
    """Return a data set and its episodes."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    data: Any = LeRobotDataset(f"local/{root.name}", root=root)
    rows = [data[at] for at in range(len(data))]
    columns = {key: np.stack([row[key].numpy() for row in rows]) for key in data.features}
    if IMAGE in columns:  # as cameras give them
        columns[IMAGE] = (columns[IMAGE].transpose(0, 2, 3, 1) * 255).round().astype(np.uint8)
    episode = columns["episode_index"]
    return data, [{key: values[episode == at] for key, values in columns.items()} for at in np.unique(episode)]


def write(root: Path, like: Any, episodes: list[Episode], *keys: str) -> Path:
    """Write episodes as LeRobot does, with these features of ``like``."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    from strobe.lerobot.quiet import quiet

    shutil.rmtree(root, ignore_errors=True)
    features = {key: dict(like.features[key]) for key in keys}
    if IMAGE in features:
        features[IMAGE]["dtype"] = "image"
    with quiet():
        made = LeRobotDataset.create(f"local/{root.name}", like.fps, features, root=root, use_videos=False)
        for ticks in episodes:
            for at in range(len(ticks[ACTION])):
                made.add_frame({key: ticks[key][at] for key in keys} | {"task": like.meta.tasks.index[0]})
            made.save_episode(parallel_encoding=False)
        made.finalize()
    return root


def rename_statistics(folder: Path, change: Callable[[str], str | None]) -> Path:
    """Return a copy of the demo whose statistics have other names, or none."""
    shutil.copytree(CHECKPOINT, folder)
    for file in folder.glob("*normalizer_processor.safetensors"):
        save_file({new: each for name, each in load_file(file).items() if (new := change(name))}, file)
    return folder


def pause(ticks: Episode, at: int) -> Episode:
    """Return an episode in which the arm stands for a while."""
    rows = np.repeat(np.arange(len(ticks[ACTION])), np.where(np.arange(len(ticks[ACTION])) == at, PAUSE + 1, 1))
    made = {key: each[rows] for key, each in ticks.items()}
    made[ACTION][at : at + PAUSE, :3] = 0
    return made


@dataclass
class Material:
    """Recordings that the questions share."""

    work: Path

    def __post_init__(self) -> None:
        strobe(["record", f"--root={self.work / 'button'}", "--env=metaworld_state", f"--episodes={EPISODES}"])
        reach = ["--env=metaworld_state", "--task=reach-v3", f"--episodes={EPISODES}"]
        strobe(["record", f"--root={self.work / 'reach'}", *reach])
        strobe(["record", f"--root={self.work / 'pusht'}", f"--episodes={EPISODES}", "--image=96"])
        self.button, self.arm = read(self.work / "button")
        self.pusht, self.table = read(self.work / "pusht")

    def write_button(self, name: str, episodes: list[Episode]) -> Path:
        return write(self.work / name, self.button, episodes, STATE, OBJECT, ACTION)


def check_statistics(material: Material) -> Iterator[tuple[str, Answer]]:
    """Yield the answers on lerobot#1763 and #4451, each with the rule of the first warning; '' for none."""
    work = material.work

    def prefix(name: str) -> str | None:
        return f"so100.buffer.{name}" if name.startswith("action.") else None

    folder = rename_statistics(work / "prefix", prefix)
    yield "statistics-absent", look(work, f"--policy.path={folder}")
    data, fixed = f"--dataset.root={work / 'button'}", work / "prefix-fixed"
    look(work, f"--policy.path={folder}", data, "--read_only", f"--fix={fixed}")
    yield "", look(work, f"--policy.path={fixed}", data)
    dots = rename_statistics(work / "dots", lambda name: name.replace("environment_state", "environment.state"))
    yield "statistics-absent", look(work, f"--policy.path={dots}")


def check_action_space(material: Material) -> Iterator[tuple[str, Answer]]:
    """Yield the answers on much-ado-about-noising#18."""
    work, state = material.work, "--env.obs_type=environment_state_agent_pos"
    for name, rule, sign in (("relative", "simulator-action-range", 1), ("absolute", "", 0)):
        made = [{**ticks, ACTION: ticks[ACTION] - sign * ticks[STATE]} for ticks in material.table]
        root = write(work / f"pusht-{name}", material.pusht, made, STATE, ACTION)
        yield rule, look(work, f"--dataset.root={root}", "--env.type=pusht", state)
    made = []
    for ticks in material.arm:
        action = ticks[ACTION].copy()
        action[:, :3] = ticks[STATE][:, :3] + GAIN * action[:, :3]
        made.append({**ticks, ACTION: action})
    root = material.write_button("button-absolute", made)
    yield "simulator-action-scale", look(work, f"--dataset.root={root}", "--env.type=metaworld_state")


def check_orientation(material: Material) -> Iterator[tuple[str, Answer]]:
    """Yield the answers on strands-labs/robots#172."""
    for name, step in (("turned", -1), ("upright", 1)):
        made = [{**ticks, IMAGE: ticks[IMAGE][:, ::step, ::step].copy()} for ticks in material.table]
        root = write(material.work / name, material.pusht, made, STATE, ACTION, IMAGE)
        rule = "simulator-image-orientation" if step < 0 else ""
        yield rule, look(material.work, f"--dataset.root={root}", "--env.type=pusht")


def check_order(material: Material) -> Iterator[tuple[str, Answer]]:
    """Yield the answers on lingbot-vla#37."""
    made = [{**ticks, **{key: ticks[key][:, ORDER] for key in (STATE, ACTION)}} for ticks in material.arm]
    root = material.write_button("deployed", made)
    yield "statistics-in-other-order", look(material.work, "--policy.path=demo", f"--dataset.root={root}")
    yield "", look(material.work, "--policy.path=demo", f"--dataset.root={material.work / 'button'}")


def check_pauses(material: Material) -> Iterator[tuple[str | None, Answer]]:
    """Yield the answers on dot_policy#4 and RoboTwin#50."""
    for name, rule, at in (("start", "data-stands-at-starts", 0), ("middle", None, 25)):
        root = material.write_button(f"pause-{name}", [pause(ticks, at) for ticks in material.arm])
        yield rule, look(material.work, f"--dataset.root={root}")
    for name in ("button", "reach"):
        yield "", look(material.work, f"--dataset.root={material.work / name}")


def check_weights(material: Material, episodes: int) -> dict[str, Any]:
    """Return what is said of lerobot#2051: of the checkpoint, and of the script's policy beside it."""
    from lerobot.policies.act.modeling_act import ACTPolicy

    import strobe as api

    loaded = ACTPolicy.from_pretrained(CHECKPOINT)
    script = ACTPolicy(loaded.config)
    script.from_pretrained(CHECKPOINT)  # as in the thread: what it returns is dropped
    columns = [material.arm[0][key][::20] for key in (STATE, OBJECT)]
    inputs = [dict(zip((STATE, OBJECT), map(torch.from_numpy, row), strict=True)) for row in zip(*columns, strict=True)]
    inputs = [{key: each[None] for key, each in row.items()} for row in inputs]
    with contextlib.redirect_stdout(io.StringIO()):
        outcomes = [
            api.verify(loaded.predict_action_chunk, policy.predict_action_chunk, inputs, guard="largest_error<=1e-3")
            for policy in (script, ACTPolicy.from_pretrained(CHECKPOINT))
        ]
    played = ask(material.work, "evaluate", "--policy.path=demo", f"--episodes={episodes}").variants[0]
    return {"script": outcomes[0].outcome, "twice": outcomes[1].outcome, "success": played.together.success.rate}


QUESTIONS = (check_statistics, check_action_space, check_order, check_pauses, check_orientation)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer episodes, without the images")
    quick = parser.parse_args().quick
    need("metaworld", "pusht")
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as work:
        material = Material(Path(work))
        for question in QUESTIONS[: -1 if quick else None]:
            for rule, answer in question(material):
                right = rule is None or answer.rules[:1] == ([rule] if rule else [])
                rows.append({"question": question.__name__, "rule": rule, "right": right, "said": answer.titles})
                print(rows[-1], flush=True)
        weights = check_weights(material, 4 if quick else 20)
    wrong = [row for row in rows if not row["right"]]
    planted, sound = (
        sum(row["rule"] is not None and bool(row["rule"]) is one for row in rows) for one in (True, False)
    )
    figures = {"planted": planted, "sound": sound, "wrong": wrong, "weights": weights}
    finish(figures, not wrong and weights == {"script": "broken", "twice": "held", "success": 1.0})


if __name__ == "__main__":
    main()
