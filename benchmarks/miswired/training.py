"""Train small policies for `preflight.py`, in this process: a minute or so each on a core.

Their ResNets keep the random weights that they were made with. Only their batch norms are fitted to the images, so the
features of all frames are computed once; the rest of the policy is trained on these. To train a ResNet takes nearly all
of the time, and what is planted here shows without.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from miswired.data import ACTION, World

from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import InputOptions, PolicyOptions
from strobe.lerobot.policies.policy_subject import PolicySubject

Batch = dict[str, torch.Tensor]
ACT, DIFFUSION = "act", "diffusion"
TRAINED = "trained.json"  # in a policy's folder: what came of its training
LR = 1e-3
_ACT = [
    "--chunk_size=16", "--n_action_steps=8", "--dim_model=64", "--n_heads=4", "--dim_feedforward=256",
    "--n_encoder_layers=2", "--n_decoder_layers=1", "--latent_dim=8", "--n_vae_encoder_layers=1",
    "--pretrained_backbone_weights=null", "--kl_weight=1",
]  # fmt: skip
_DIFFUSION = [
    "--horizon=16", "--n_action_steps=8", "--n_obs_steps=1", "--down_dims=[64,128]", "--crop_shape=null",
    "--spatial_softmax_num_keypoints=32", "--diffusion_step_embed_dim=32", "--num_train_timesteps=50",
    "--num_inference_steps=5", "--noise_scheduler_type=DDIM", "--pretrained_backbone_weights=null",
    "--prediction_type=sample",
]  # fmt: skip


def flags(kind: str) -> list[str]:
    """Return the flags of a policy's config."""
    return _ACT if kind == ACT else _DIFFUSION


def train(
    kind: str, world: World, root: Path, folder: Path, steps: int, *, batch: int = 32, seed: int = 0,
    change: Callable[[Batch], None] = lambda _: None,
) -> dict[str, Any]:  # fmt: skip
    """Train a policy on the data set at ``root``, save it in ``folder``, and return what came of it.

    A policy that is there is not trained again.

    Args:
        change: of each batch, in place: name of a feature → its normalised values, of a camera its ResNet's features.
    """
    if (folder / TRAINED).exists():
        return json.loads((folder / TRAINED).read_text())
    subject = _build_policy(kind, root, seed)
    policy: Any = subject.policy
    data = _preprocess_frames(subject)
    resnets = _resnets(kind, policy)
    for name, (owner, attribute, resnet) in zip(world.cameras, resnets, strict=True):
        data[name] = _features(resnet, data[name])
        setattr(owner, attribute, _Known(kind))
    policy.train()
    trained = [each for each in policy.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LR, weight_decay=1e-4)
    generator = torch.Generator().manual_seed(seed)
    began, losses = time.process_time(), []
    for step in range(steps):
        for group in optimizer.param_groups:  # a warm-up, then down to nothing
            group["lr"] = LR * min(1.0, (step + 1) / 50) * max(0.02, 1 - step / steps)
        picks = torch.randint(len(data[ACTION]), (batch,), generator=generator)
        some = {key: values[picks] for key, values in data.items()}
        change(some)
        loss, _ = policy.forward(some)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 10.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
        if len(losses) % 250 == 0:
            spent = time.process_time() - began
            print(f"  {kind}: {len(losses)} steps, loss {sum(losses[-250:]) / 250:.3f}, {spent:.0f} s", flush=True)
    for owner, attribute, resnet in resnets:
        setattr(owner, attribute, resnet)
    _save(subject, folder)
    last = losses[-250:]
    came = {"steps": len(losses), "loss": sum(last) / len(last), "seconds": round(time.process_time() - began)}
    (folder / TRAINED).write_text(json.dumps(came), encoding="utf-8")
    return came


def save_random(kind: str, root: Path, folder: Path, seed: int) -> Path:
    """Save a policy with random weights, as it would be before its training; return its folder."""
    _save(_build_policy(kind, root, seed), folder)
    return folder


class _Known(torch.nn.Module):
    """Stands for a ResNet where features come in place of images."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind

    def forward(self, features: torch.Tensor) -> Any:
        return features if self._kind == DIFFUSION else {"feature_map": features}


def _resnets(kind: str, policy: Any) -> list[tuple[Any, str, Any]]:
    """Return for each camera the module that has its ResNet, the name there, and the ResNet: of an ACT a single one."""
    if kind == DIFFUSION:
        return [(encoder, "backbone", encoder.backbone) for encoder in policy.diffusion.rgb_encoder]
    return [(policy.model, "backbone", policy.model.backbone)] * len(policy.config.image_features)


@torch.no_grad()
def _features(resnet: Any, images: torch.Tensor) -> torch.Tensor:
    """Fit the batch norms to the images, unless they were fitted; return the features of all images."""
    resnet.eval().requires_grad_(False)
    images = images.reshape(-1, *images.shape[-3:])  # a Diffusion has an axis of observations, of which it looks at one
    norms = [each for each in resnet.modules() if hasattr(each, "running_var")]
    if bool((norms[0].running_var == 1).all()):

        def fit(norm: Any, inputs: tuple[torch.Tensor, ...]) -> None:
            norm.running_mean.copy_(inputs[0].mean(dim=(0, 2, 3)))
            norm.running_var.copy_(inputs[0].var(dim=(0, 2, 3)))

        hooks = [norm.register_forward_pre_hook(fit) for norm in norms]
        resnet(images[:: max(1, len(images) // 256)])
        for hook in hooks:
            hook.remove()
    made = [resnet(part) for part in images.split(64)]
    return torch.cat([each["feature_map"] if isinstance(each, dict) else each for each in made])


def _build_policy(kind: str, root: Path, seed: int) -> PolicySubject:
    data = SimpleNamespace(root=root, repo_id=f"local/{root.name}", episodes=None, video_backend=None)
    options = PolicyOptions(type=kind, overrides=["--device=cpu", *flags(kind)])
    return load_subject(options, InputOptions(dataset=data), seed=seed)


def _preprocess_frames(subject: PolicySubject) -> dict[str, torch.Tensor]:
    """Return all frames of the data set as the policy's preprocessor makes them: key → (frames, …)."""
    frames: Any = subject.inputs.frames
    made = subject.preprocessor(_collate_items([frames._training[index] for index in range(len(frames._training))]))
    return {key: values for key, values in made.items() if isinstance(values, torch.Tensor) and values.ndim > 0}


def _save(subject: PolicySubject, folder: Path) -> None:
    subject.policy.eval()
    for part in (subject.policy, subject.preprocessor, subject.postprocessor):
        part.save_pretrained(folder)


def _collate_items(items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a batch; images float in [0, 1]."""
    batch: dict[str, Any] = {}
    for key, first in items[0].items():
        values = [item[key] for item in items]
        batch[key] = torch.stack(values) if isinstance(first, torch.Tensor) else values
        if isinstance(first, torch.Tensor) and first.dtype == torch.uint8:
            batch[key] = batch[key].float() / 255
    return batch
