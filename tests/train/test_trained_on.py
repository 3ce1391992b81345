"""What a training trained on: each fault on a tiny real training beside a sound one that gets no word of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate.state import AcceleratorState
from safetensors.torch import load_file, save_file
from support.builders.training_run import arguments, rules, run_training

from strobe.core.errors import UserError
from strobe.core.kinds import advise, document
from strobe.core.report import markdown
from strobe.lerobot.datasets.images import find_idle_transforms
from strobe.preflight.run import Preflight, preflight
from strobe.train.results import TrainedOn
from strobe.train.run import WatchOptions, train

TINY = (
    "--policy.n_heads=2", "--policy.dim_model=16", "--policy.chunk_size=2", "--policy.n_action_steps=2",
    "--policy.n_encoder_layers=1", "--policy.dim_feedforward=16", "--batch_size=4",
)  # fmt: skip
OURS = {"statistics-of-other-data", "episodes-not-asked", "episodes-missing", "adapter-idle", "adapter-not-applied",
        "accumulation-ignored", "no-gradient", "precision-not-used"}  # fmt: skip


def record_dataset(root: Path, shift: float) -> Path:
    """Three episodes of eight frames with one small image each; ``shift`` moves states and actions."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    vector = {"dtype": "float32", "shape": (2,), "names": ["x", "y"]}
    image = {"dtype": "image", "shape": (32, 32, 3), "names": ["height", "width", "channels"]}
    features = {"observation.images.top": image, "observation.state": vector, "action": vector}
    made = LeRobotDataset.create("local/tiny", 10, features, root=root, use_videos=False)
    random = np.random.default_rng(0)
    for _ in range(3):
        for _ in range(8):
            numbers = {name: random.normal(shift, size=2).astype("float32") for name in ("observation.state", "action")}
            made.add_frame({"observation.images.top": random.integers(0, 255, (32, 32, 3), np.uint8), **numbers,
                            "task": "push"})  # fmt: skip
        made.save_episode()
    made.finalize()
    return root


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_dataset(tmp_path_factory.mktemp("trained_on") / "tiny", 0.0)


@pytest.fixture(scope="module")
def checkpoint(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint after two steps."""
    out = tmp_path_factory.mktemp("checkpoint") / "out"
    run_training(data, out, *TINY, "--save_checkpoint=true", steps=2, workers=0)
    return out / "checkpoints" / "last" / "pretrained_model"


PRINTED = "INFO 2026-11-30 06:00:{} ot_train.py:643 step:1K smpl:4K ep:2 epch:1.50 loss:{} grdn:1.000 lr:1.0e-05 "


@pytest.mark.parametrize("phases", [{"updt_s": 0.3, "data_s": 0.1}, {"data_s": 0.1, "prep_s": 0.1, "updt_s": 0.3}])
def test_a_training_that_is_over_is_read_from_its_checkpoint_and_its_log(
    phases: dict[str, float], checkpoint: Path, data: Path, tmp_path: Path
) -> None:
    log, meters = tmp_path / "log", " ".join(f"{name}:{seconds:.3f}" for name, seconds in phases.items())
    lines = [PRINTED.format(*line) + meters for line in (("00", 0.5), ("20", 0.4), ("40", "nan"))]
    log.write_text("\r".join(["Training:  10%|█", *lines]).replace("\rINFO", "\nINFO") + " smp/s:9\n")
    result = preflight(Preflight(checkpoint, data, log=log))
    saved = result.wiring.training
    assert saved is not None
    assert saved.log is not None
    assert (saved.step, saved.planned, saved.batch_size, saved.processes, saved.frames) == (2, 2, 4, 1, 24)
    assert (saved.learning_rates, saved.stepped) == (pytest.approx([1e-5, 1e-5]), saved.trained)
    assert (saved.log.losses, saved.log.seconds, saved.log.wall_s) == ([0.5, 0.4, None], pytest.approx(phases), 4.0)
    assert "training-loss-not-finite" in rules(advise(result))
    assert f"{4000 - 1000 * sum(phases.values()):.0f} ms" in markdown.render(document(result))
    log.write_text("Training:  10%")
    with pytest.raises(UserError, match="no line of lerobot-train"):
        preflight(Preflight(checkpoint, log=log))


def continue_training(checkpoint: Path, *more: str) -> tuple[TrainedOn, set[str], str]:
    run = [f"--config_path={checkpoint / 'train_config.json'}", "--resume=true", "--steps=3",
           "--save_checkpoint=false", *more]  # fmt: skip
    return read_answer(train(run, WatchOptions()).result)


def finetune(data: Path, path: Path, out: Path, *more: str) -> tuple[TrainedOn, set[str], str]:
    given = arguments(data, out, "--batch_size=4", *more, steps=1, workers=0)
    given = [argument for argument in given if not argument.startswith("--policy.")]
    return read_answer(train([*given, f"--policy.path={path}", "--policy.push_to_hub=false"], WatchOptions()).result)


def read_answer(result: Any) -> tuple[TrainedOn, set[str], str]:
    """The record, the rules on it that fired, and the page."""
    return result.training.trained_on, rules(advise(result)) & OURS, markdown.render(document(result))


@pytest.mark.slow("three trainings: LeRobot's own resume")
def test_a_run_that_continues_on_other_data_has_the_statistics_of_the_first(data, checkpoint, tmp_path):
    sound, unwanted, page = continue_training(checkpoint)
    assert (sound.statistics_off, unwanted) == ({}, set())
    assert sound.resumed is not None
    assert sound.resumed.step == 2
    assert set(sound.resumed.changed or {}) == {"steps", "save_checkpoint"}
    assert "changed: steps | 2 → 3" in page

    other = record_dataset(tmp_path / "other", 3.0)
    found, fired, _ = continue_training(checkpoint, f"--dataset.root={other}")
    assert fired == {"statistics-of-other-data"}
    assert found.normalised_by == "the checkpoint's statistics"
    assert min(found.statistics_off[name] for name in ("action", "observation.state")) > 1
    assert (found.resumed.changed or {})["dataset.root"] == (json.dumps(str(data)), json.dumps(str(other)))

    fixed, unwanted, _ = finetune(other, checkpoint, tmp_path / "new")  # the advice of the finding
    assert (fixed.normalised_by, fixed.statistics_off, unwanted) == ("the data's statistics", {}, set())


@pytest.mark.slow("two trainings, with a worker")
def test_a_stream_that_ignores_the_episodes_is_told_from_files_that_do_not(data, tmp_path, monkeypatch):
    given = (*TINY, "--dataset.episodes=[0]", "--dataset.image_transforms.enable=true")
    sound, unwanted, page = read_answer(run_training(data, tmp_path / "files", *given, steps=2, workers=1).result)
    assert (sound.episodes_asked, sound.episodes_seen, sound.not_asked, unwanted) == (1, 1, [], set())
    assert sound.startup_ms is not None
    assert sound.first_batch_ms is not None
    assert sound.startup_ms <= sound.first_batch_ms
    assert sound.transforms is not None
    assert "brightness" in sound.transforms
    assert sound.transforms_each == 3
    assert sound.samples_per_step == 4
    assert "image transforms | at most 3 of brightness" in page

    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4")
    found, fired, _ = read_answer(run_training(data, tmp_path / "stream", *given, "--dataset.streaming=true", steps=7,
                                   workers=1).result)  # fmt: skip
    assert fired == {"episodes-not-asked", "accumulation-ignored"}
    assert (found.not_asked, found.frames_distinct, found.accumulation) == ([1, 2], 24, 4)
    assert found.never_came == [], "an epoch has 24 frames, and the seventh batch is of the second"


COUNTED = 4  # steps: the least of which one is counted


@pytest.fixture
def unset_precision() -> Iterator[None]:
    """A training in this process with another precision than those before it: accelerate has one for a process."""
    AcceleratorState._reset_state()
    yield
    AcceleratorState._reset_state()


@pytest.mark.usefixtures("unset_precision")
def test_a_part_that_gets_no_gradient_and_arithmetic_in_another_dtype_are_named(data, tmp_path, monkeypatch):
    from lerobot.policies.act.modeling_act import ACT

    half = (*TINY, "--policy.use_amp=true")
    sound, unwanted, page = read_answer(run_training(data, tmp_path / "ok", *half, steps=COUNTED, workers=0).result)
    assert (sound.precision, unwanted) == ("bf16", set())
    assert sound.gradients is not None
    assert sound.gradients.without == 0 < sound.gradients.trained
    assert "in bfloat16" in page

    make, forward = ACT.__init__, ACT.forward

    def make_detached(self: Any, *args: Any) -> None:
        make(self, *args)
        self.encoder_robot_state_input_proj.register_forward_hook(lambda _, __, output: output.detach())

    def run_without_autocast(*args: Any) -> Any:
        with torch.autocast("cpu", enabled=False):
            return forward(*args)

    monkeypatch.setattr(ACT, "__init__", make_detached)
    monkeypatch.setattr(ACT, "forward", run_without_autocast)
    found, fired, _ = read_answer(run_training(data, tmp_path / "bad", *half, steps=COUNTED, workers=0).result)
    assert fired == {"no-gradient", "precision-not-used"}
    assert found.gradients is not None
    assert found.gradients.modules == ["model.encoder_robot_state_input_proj"]


@pytest.mark.parametrize("as_bytes", [True, False])
def test_transforms_that_return_bytes_unchanged_are_named(data: Path, as_bytes: bool):
    """As LeRobot 0.7.0's notes say of 0.6.1: seven transforms return uint8 images as they came."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset
    from lerobot.transforms.transforms import ImageTransformConfig, ImageTransforms, ImageTransformsConfig

    kinds = {"noise": "GaussianNoise", "shadow": "RandomShadow", "hue": "ColorJitter", "never": "RandomHorizontalFlip"}
    settings = {"hue": {"hue": 0.3}, "never": {"p": 0.0}}
    tfs = {name: ImageTransformConfig(type=kind, kwargs=settings.get(name, {})) for name, kind in kinds.items()}
    transforms = ImageTransforms(ImageTransformsConfig(enable=True, tfs=tfs))

    class Films(LeRobotDataset):
        """Images as lerobot-train reads those of videos."""

        def __getitem__(self, index: Any) -> Any:
            item: Any = super().__getitem__(index)
            name = "observation.images.top"
            return item | {name: (item[name] * 255).to(torch.uint8)}

    made = (Films if as_bytes else LeRobotDataset)("local/tiny", root=data, image_transforms=transforms)
    assert find_idle_transforms(made) == (["noise", "shadow"] if as_bytes else [])
    assert made.image_transforms is transforms


def test_a_stream_without_workers_reads_nothing(data, tmp_path):
    with pytest.raises(UserError, match="--num_workers=1"):
        run_training(data, tmp_path / "out", *TINY, "--dataset.streaming=true", steps=1, workers=0)


@pytest.mark.slow("trainings with a PEFT adapter")
def test_an_adapter_that_does_nothing_is_told_from_one_that_was_trained(data, checkpoint, tmp_path):
    out = tmp_path / "made"
    peft = ("--peft.r=2", '--peft.target_modules=["linear1","linear2"]', "--peft.full_training_modules=[]")
    fresh, unwanted, _ = finetune(data, checkpoint, out, *peft, "--save_checkpoint=true")
    assert fresh.adapter is not None
    assert not fresh.adapter.loaded
    assert unwanted == set()
    assert fresh.adapter.idle == fresh.adapter.layers > 0, "PEFT makes it so that it begins at the base"

    made = out / "checkpoints" / "last" / "pretrained_model"
    renamed = Path(shutil.copytree(made, tmp_path / "renamed"))  # as after a change of the policy's modules
    weights = load_file(renamed / "adapter_model.safetensors")
    others = {name.replace("linear", "dense"): one for name, one in weights.items()}
    save_file(others, renamed / "adapter_model.safetensors")
    sound, unwanted, _ = finetune(data, made, tmp_path / "sound")
    assert sound.adapter is not None
    assert sound.adapter.loaded
    assert sound.adapter.idle == 0
    assert unwanted == set()
    idle, fired, page = finetune(data, renamed, tmp_path / "idle")
    assert fired == {"adapter-idle"}
    assert idle.adapter is not None
    assert f"{idle.adapter.layers} of {idle.adapter.layers} are bit-identical" in page

    # Both the base's weights and an adapter, and a config that does not name it: LeRobot reads the first.
    left = Path(shutil.copytree(made, tmp_path / "left"))
    shutil.copy(checkpoint / "model.safetensors", left)
    settings = json.loads((left / "config.json").read_text())
    (left / "config.json").write_text(json.dumps(settings | {"use_peft": False}))
    _, fired, _ = finetune(data, left, tmp_path / "unread")
    assert fired == {"adapter-not-applied"}
