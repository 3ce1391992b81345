"""Train small policies for `preflight.py` on PushT, in this process: a few minutes each on a core."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from _preflight_data import HAND, SIZE, TOP

from strobe.policies.loading import load_subject
from strobe.policies.options import InputOptions, PolicyOptions
from strobe.policies.policy_subject import PolicySubject

KINDS: dict[str, list[str]] = {
    "act": [
        "--chunk_size=16", "--n_action_steps=8", "--dim_model=64", "--n_heads=4", "--dim_feedforward=256",
        "--n_encoder_layers=2", "--n_decoder_layers=1", "--latent_dim=8", "--n_vae_encoder_layers=1",
        "--pretrained_backbone_weights=null", "--kl_weight=1",
    ],
    "act of images": [],  # as ACT, without the state: nearly all that PushT's pusher does follows from its place
    "diffusion": [
        "--horizon=16", "--n_action_steps=8", "--n_obs_steps=2", "--down_dims=[32,64]", "--crop_shape=null",
        "--spatial_softmax_num_keypoints=16", "--diffusion_step_embed_dim=32", "--num_train_timesteps=50",
        "--num_inference_steps=10", "--noise_scheduler_type=DDIM", "--pretrained_backbone_weights=null",
    ],
}  # fmt: skip
CAMERAS = {name: {"type": "VISUAL", "shape": [3, SIZE, SIZE]} for name in (TOP, HAND)}
KINDS["act of images"] = [*KINDS["act"], f"--input_features={json.dumps(CAMERAS)}"]


def train(kind: str, root: Path, folder: Path, seconds: float, *, batch: int = 16, seed: int = 0) -> dict[str, Any]:
    """Train a policy of ``kind`` on the data set at ``root``, save it in ``folder``; return what came of it."""
    if (folder / "config.json").exists():
        return {}
    subject = _built(kind, root, seed)
    frames: Any = subject.inputs.frames
    items = [frames._training[index] for index in range(len(frames._training))]
    policy = subject.policy.train()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=5e-4, weight_decay=1e-4)
    generator = torch.Generator().manual_seed(seed)
    began, losses, steps = time.process_time(), [], 0
    while (spent := time.process_time() - began) < seconds:
        for group in optimizer.param_groups:  # a warm-up, then down to nothing
            group["lr"] = 5e-4 * min(1.0, (steps + 1) / 50) * max(0.02, 1 - spent / seconds)
        picks = torch.randint(len(items), (batch,), generator=generator).tolist()
        loss, _ = policy.forward(subject.preprocessor(_collated([items[pick] for pick in picks])))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 10.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
        steps += 1
        if steps % 50 == 0:
            print(f"  {kind}: {steps} steps, loss {sum(losses[-50:]) / 50:.3f}, {spent:.0f} s", flush=True)
    _save(subject, folder)
    return {"steps": steps, "loss": sum(losses[-50:]) / len(losses[-50:]), "seconds": time.process_time() - began}


def save_random(kind: str, root: Path, folder: Path, seed: int) -> Path:
    """Save a policy with random weights, as it would be before its training; return its folder."""
    _save(_built(kind, root, seed), folder)
    return folder


def _built(kind: str, root: Path, seed: int) -> PolicySubject:
    data = SimpleNamespace(root=root, repo_id=f"local/{root.name}", episodes=None, video_backend=None)
    options = PolicyOptions(type=kind.split()[0], overrides=["--device=cpu", *KINDS[kind]])
    return load_subject(options, InputOptions(dataset=data), seed=seed)


def _save(subject: PolicySubject, folder: Path) -> None:
    subject.policy.eval()
    for part in (subject.policy, subject.preprocessor, subject.postprocessor):
        part.save_pretrained(folder)


def _collated(items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a batch; images float in [0, 1]."""
    batch: dict[str, Any] = {}
    for key, first in items[0].items():
        values = [item[key] for item in items]
        batch[key] = torch.stack(values) if isinstance(first, torch.Tensor) else values
        if isinstance(first, torch.Tensor) and first.dtype == torch.uint8:
            batch[key] = batch[key].float() / 255
    return batch
