"""Does `strobe preflight` say what a policy has learnt, and nothing of a sound one?

Small ACTs are trained on scripted PushT and on MetaWorld's pick-and-place, two cameras each, as for `preflight.py`. Of
some the training data lacks what they should learn; all are looked at on sound episodes that none was trained on:

- constant: in each batch the observations have changed places, so that they tell nothing: the policy learns the mean.
- blind: the images of both cameras have changed places.
- one eye: those of one camera have.
- holds: all actions of a chunk are the state of its own frame (PushT, whose states and actions are positions).
- no gripper: the gripper's action is its mean (MetaWorld).
- undone: the sound training, ended after a tenth of its steps. Such a policy is merely bad: what is said is shown.
- the demo, and copies of it in which the weights of an input are zero, or whose steps drift: each is off by the same.

Bars: each is named by its rule first or second among the warnings, or by a note where the policy explains the data all
the same (with one eye) and nothing else is said; the sound policies, the demo among them, get none of
these rules as a warning.

    python benchmarks/learnt.py --work=FOLDER     about half an hour on one core; the folder keeps policies and data
    python benchmarks/learnt.py --quick           the demo alone, and its three plants

The last line is JSON with every figure.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from common.shared import finish, need
from miswired.case import Case, look, serious
from miswired.data import ACTION, METAWORLD, PUSHT, STATE, Ticks, World, record, write
from miswired.training import ACT, Batch, train
from safetensors.torch import load_file, save_file

from strobe.core.demo import CHECKPOINT

EPISODES, TICKS, UNSEEN, STEPS, FRAMES = 40, 32, 16, 600, 48
DRIFT = 0.7  # σ of the first action, a step
RULES = ("learnt-one-chunk", "learnt-ignores", "learnt-holds-still", "learnt-misses-switch", "steps-add-up")
Change = Callable[[Batch], None]


def mix(*names: str) -> Change:
    """Return a change by which these features of the frames of a batch change places, all in the same way.

    In each batch they do otherwise: a policy learns pairs by heart that are the same in each epoch.
    """

    def change(batch: Batch) -> None:
        order = torch.randperm(len(batch[ACTION]))
        batch.update({name: batch[name][order] for name in names})

    return change


def hold(batch: Batch) -> None:
    """Repeat the first action of each chunk."""
    batch[ACTION] = batch[ACTION][:, :1].expand_as(batch[ACTION])


def fix_gripper(batch: Batch) -> None:
    batch[ACTION][..., -1] = 0.0  # normalised: the mean


def act_on_state(episodes: list[Ticks]) -> list[Ticks]:
    """Return the episodes with the state of its frame as each action."""
    return [dict(each) | {ACTION: each[STATE].copy()} for each in episodes]


@dataclass(frozen=True)
class Lack:
    """The thing that a training lacks.

    Args:
        rule: that names it; None for a sound policy, '' for one of which anything may be said.
        change: of each batch of the training.
        steps: of the training.
        episodes: of the training, made of the recorded ones.
    """

    name: str
    world: World
    rule: str | None
    change: Change = lambda _: None
    steps: int = STEPS
    episodes: Callable[[list[Ticks]], list[Ticks]] = list


def make_lacks() -> Iterator[Lack]:
    for world in (PUSHT, METAWORLD):
        top, other = world.cameras
        yield Lack("sound", world, None)
        yield Lack("constant", world, "learnt-one-chunk", mix(top, other, STATE))
        yield Lack("blind", world, "learnt-ignores", mix(top, other))
        yield Lack("one eye", world, "learnt-ignores", mix(other), 4 * STEPS)  # to unlearn what its weights begin with
        yield Lack("undone", world, "", steps=STEPS // 10)
    yield Lack("holds", PUSHT, "learnt-holds-still", hold, episodes=act_on_state)
    yield Lack("no gripper", METAWORLD, "learnt-misses-switch", fix_gripper)


def judge_trained(lack: Lack, work: Path) -> dict[str, Any]:
    """Train, look, and return what was said."""
    slug = f"{lack.name.replace(' ', '-')}-{lack.world.name}"
    episodes = record(lack.world, work, EPISODES, TICKS)
    data = write(lack.world, work / f"data-{slug}", lack.episodes(episodes))
    policy = work / f"policy-{slug}"
    torch.manual_seed(0)
    came = train(ACT, lack.world, data, policy, lack.steps, change=lack.change)
    unseen = write(lack.world, work / f"unseen-{lack.world.name}", record(lack.world, work, UNSEEN, TICKS, seed=1))
    return {"plant": slug, "rule": lack.rule, **judge(policy, unseen, lack.rule), "loss": round(came["loss"], 4)}


def judge(policy: Path, data: Path, rule: str | None) -> dict[str, Any]:
    result, findings = look(Case(policy, data, frames=FRAMES))
    said = serious(findings)
    learnt = [each for each in said if each in RULES]
    loop = result.open_loop
    moved = {each.name: round(each.moved, 3) for each in loop.learnt.inputs} if loop is not None and loop.learnt else {}
    noted = [each.rule for each in findings if each.level == "info"]  # of a camera that adds nothing to the others
    right = not learnt if rule is None else rule == "" or rule in said[:2] or (not said and rule in noted)
    spread = round(loop.learnt.spread or 0.0, 3) if loop is not None and loop.learnt else None
    explained = round(loop.whole.explained, 2) if loop is not None and loop.whole else None
    return {"said": said, "right": right, "explained": explained, "spread": spread, "moved": moved}


def judge_demo(work: Path) -> Iterator[dict[str, Any]]:
    """Yield what is said of the demo, and of copies of which inputs have no weight, or whose steps drift."""
    data = work / "demo-data"
    if not data.exists():
        from strobe.core.cli.main import main as strobe

        strobe(["record", f"--root={data}", "--env=metaworld_state", "--episodes=8"])
    for name, parts, shift, rule in (
        ("demo", (), 0.0, None),
        ("demo without the object", ("env_state",), 0.0, "learnt-ignores"),
        ("demo without any input", ("env_state", "robot_state"), 0.0, "learnt-one-chunk"),
        ("demo with a drift", (), DRIFT, "steps-add-up"),
    ):
        folder = work / name.replace(" ", "-")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(CHECKPOINT, folder)
        weights = load_file(folder / "model.safetensors")
        for part in parts:
            weights[f"model.encoder_{part}_input_proj.weight"].zero_()
        weights["model.action_head.bias"][0] += shift
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        yield {"plant": name, "rule": rule, **judge(folder, data, rule)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, help="keeps policies and data; a temporary folder by default")
    parser.add_argument("--quick", action="store_true", help="the demo alone")
    arguments = parser.parse_args()
    need("metaworld", opengl=not arguments.quick)
    with tempfile.TemporaryDirectory() as scratch:
        work = arguments.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        rows = []
        for row in judge_demo(work):
            rows.append(row)
            print(row, flush=True)
        for lack in () if arguments.quick else make_lacks():
            rows.append(judge_trained(lack, work))
            print(rows[-1], flush=True)
    planted = [row for row in rows if row["rule"]]
    named = sum(row["right"] for row in planted)
    false = [row["plant"] for row in rows if row["rule"] is None and not row["right"]]
    finish({"planted": len(planted), "named": named, "false": false, "rows": rows},
           named == len(planted) and not false)  # fmt: skip


if __name__ == "__main__":
    main()
