"""Record the demo's episodes and train it: the ACT that comes with Strobe (`--policy.path=demo`). Minutes on one core.

    python scripts/demo.py                       into src/strobe/core/demo/checkpoint
    python scripts/demo.py --to=FOLDER --steps=2000

The episodes are those of `strobe record --env=metaworld_state`: MetaWorld's scripted expert presses a button, with
noise on what it executes, and what it wanted is recorded. The policy is LeRobot's ACT without images and without its
VAE. Its loss is LeRobot's own; only the batches are taken from memory, since reading them takes longer than a step.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from lerobot.utils.constants import ACTION, OBS_ENV_STATE, OBS_STATE

from strobe.core.demo import CHECKPOINT
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import InputOptions, PolicyOptions
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.simulators.metaworld_state import record_states

EPISODES, FRAMES, FIRST_SEED = 100, 90, 10_000  # `strobe evaluate` plays the starts from seed 0 on
STEPS, BATCH, RATE = 1500, 64, 1.5e-3
FLAGS = [
    "--chunk_size=20", "--n_action_steps=10", "--dim_model=96", "--n_heads=4", "--dim_feedforward=256",
    "--n_encoder_layers=2", "--n_decoder_layers=1", "--use_vae=false", "--dropout=0.0",
    "--pretrained_backbone_weights=null", "--device=cpu", "--push_to_hub=false",
    # ACT's own mapping leaves the environment's state as it is.
    '--normalization_mapping={"VISUAL": "MEAN_STD", "STATE": "MEAN_STD", "ENV": "MEAN_STD", "ACTION": "MEAN_STD"}',
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=CHECKPOINT, help="folder of the checkpoint, which is replaced")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as work:
        data = record_states(Path(work) / "demo", arguments.episodes, FRAMES, seed=FIRST_SEED)
        dataset = SimpleNamespace(root=data, repo_id="local/demo", episodes=None, video_backend=None)
        policy = PolicyOptions(type="act", overrides=FLAGS)
        subject = load_subject(policy, InputOptions(dataset=dataset), seed=arguments.seed)
        train(subject, arguments.steps, arguments.seed)
    save(subject, arguments.to)
    size = (arguments.to / "model.safetensors").stat().st_size
    print(f"{arguments.to}: {size / 1e6:.2f} MB of weights")


def train(subject: PolicySubject, steps: int, seed: int) -> None:
    """Train the subject's policy on all frames of its data set."""
    data = windows(subject)
    policy, count = subject.policy.train(), len(data["action"])
    optimizer = torch.optim.AdamW(policy.parameters(), lr=RATE, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=RATE, total_steps=steps, pct_start=0.05)
    generator, began = torch.Generator().manual_seed(seed), time.perf_counter()
    for step in range(1, steps + 1):
        picks = torch.randint(count, (BATCH,), generator=generator)
        loss, _ = policy.forward({key: values[picks] for key, values in data.items()})
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 10.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 250 == 0:
            print(f"{step} steps, loss {loss.item():.3f}, {time.perf_counter() - began:.0f} s", flush=True)


def windows(subject: PolicySubject) -> dict[str, torch.Tensor]:
    """Return all samples, preprocessed: key → (frames, …). LeRobot reads one in 12 ms, which is most of a step."""
    frames: Any = subject.inputs.frames
    config: Any = subject.policy.config
    table = frames._training.hf_dataset[:]
    columns = {key: torch.stack(list(table[key])) for key in (OBS_STATE, OBS_ENV_STATE, ACTION, "episode_index")}
    episode = columns.pop("episode_index")
    wanted = torch.arange(len(episode))[:, None] + torch.arange(config.chunk_size)
    within = wanted.clamp(max=len(episode) - 1)
    outside = (wanted >= len(episode)) | (episode[within] != episode[:, None])
    chunks = columns[ACTION][within]
    made = subject.preprocessor({**columns, ACTION: chunks, "action_is_pad": outside})
    return {key: values for key, values in made.items() if isinstance(values, torch.Tensor) and values.ndim}


def save(subject: PolicySubject, folder: Path) -> None:
    """Save policy and processors as LeRobot does."""
    shutil.rmtree(folder, ignore_errors=True)
    subject.policy.eval()
    for part in (subject.policy, subject.preprocessor, subject.postprocessor):
        part.save_pretrained(folder)
    for file in folder.iterdir():
        file.chmod(0o644)  # safetensors lets nobody else read its files, and a wheel keeps that


if __name__ == "__main__":
    main()
