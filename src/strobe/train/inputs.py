"""What goes into a training besides time: statistics, an adapter, the frames of its batches. Nothing is changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from strobe.lerobot.processors import READ
from strobe.preflight.wiring.checkpoint import read_json
from strobe.train.results import Adapter, Gradients, Resumed

# Settings that differ between a run and the one that continues it, and say nothing of what either trains on.
_ITS_OWN = ("resume", "output_dir", "checkpoint_path", "policy.pretrained_path", "reward_model.pretrained_path")


@dataclass
class Inputs:
    """What one training is fed, gathered while it is set up and in its recorded steps.

    Attributes:
        seen: for each recorded step the indices of its frames and of their episodes, both (batch,).
        accumulation: gradient accumulation that accelerate was given, in batches.
        precision: mixed precision as accelerate has it: 'no', 'bf16', 'fp16'; None before the first backward pass.
        rate: the learning rate that LeRobot logged for the last recorded step; None before one.
        gradients: after the backward pass of the step whose FLOP are counted; None if none was.
        normalises: whether a normaliser was seen.
        off: feature → the farthest that a statistic in use lies from the dataset's, in the dataset's own spread.
        not_compared: features whose statistics have another shape than the dataset's.
    """

    seen: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    accumulation: int = 1
    precision: str | None = None
    rate: float | None = None
    gradients: Gradients | None = None
    normalises: bool = False
    off: dict[str, float] = field(default_factory=dict)
    not_compared: list[str] = field(default_factory=list)
    adapter: Adapter | None = None
    resumed: Resumed | None = None

    def see(self, batch: object) -> None:
        """Note which frames a batch has. On a device nothing waits for it: the numbers are read after the run."""
        if not isinstance(batch, Mapping):
            return
        frames, episodes = batch.get("index"), batch.get("episode_index")
        if isinstance(frames, Tensor) and isinstance(episodes, Tensor):
            # A worker's tensors hold a file descriptor each, for as long as they live.
            self.seen.append((frames.detach().clone(), episodes.detach().clone()))

    def look_at_statistics(self, preprocessor: Any, dataset: Any) -> None:
        """Compare the statistics that ``preprocessor`` normalises with to those of ``dataset``."""
        for step in getattr(preprocessor, "steps", ()):
            if not hasattr(step, "norm_map") or not hasattr(step, "_tensor_stats"):
                continue
            self.normalises = True
            for name, feature in step.features.items():
                mode = getattr(step.norm_map.get(feature.type), "name", "IDENTITY")
                used, its = step._tensor_stats.get(name, {}), (dataset.meta.stats or {}).get(name, {})
                read = READ.get(mode, ())
                if not read or not all(key in used and key in its for key in read):
                    continue
                found = _distance(mode, [used[key] for key in read], [its[key] for key in read])
                if found is None:
                    self.not_compared.append(name)
                elif found > 0:
                    self.off[name] = found

    def look_at_gradients(self, policy: nn.Module) -> None:
        """Note which trained weights have no gradient after a backward pass, or one of zeros alone."""
        trained = {name: weights for name, weights in policy.named_parameters() if weights.requires_grad}
        idle = {name for name, weights in trained.items() if weights.grad is None or not weights.grad.any()}
        moved = {place for name in trained.keys() - idle for place in _places(name)}
        outermost = (next(place for place in _places(name) if place not in moved) for name in idle)
        self.gradients = Gradients(
            trained=sum(weights.numel() for weights in trained.values()),
            without=sum(trained[name].numel() for name in idle),
            modules=sorted(set(outermost)),
        )

    def look_at_adapter(self, policy: nn.Module, config: Any) -> None:
        """Note a PEFT adapter, and whether the weights with it differ from the base's.

        An adapter of another kind than LoRA is not judged. Reads an adapter's config in a local checkpoint.
        """
        path = getattr(config.trainable_config, "pretrained_path", None)
        file = Path(str(path)) / "adapter_config.json" if path else None
        there = file is not None and file.is_file()
        configs: dict[str, Any] = getattr(policy, "peft_config", {})
        if not configs:
            if there and file is not None:
                self.adapter = Adapter(method=str(read_json(file).get("peft_type"))[:40], applied=False, loaded=True)
            return
        name, its = next(iter(configs.items()))
        method = str(getattr(its.peft_type, "value", its.peft_type))
        found = Adapter(method=method, applied=True, loaded=there)
        with torch.no_grad():
            for module in policy.modules():
                equal = _equal_to_base(module, name)
                if equal is not _NO_ADAPTER:
                    found.layers += 1
                    found.idle += equal is True
                    found.not_judged += equal is None
        self.adapter = found


def _distance(mode: str, used: list[Any], its: list[Any]) -> float | None:
    """The farthest of two statistics from the data's, in the data's spread; None if shapes differ."""
    ours, theirs = ([torch.as_tensor(each).float().cpu().flatten() for each in side] for side in (used, its))
    if any(one.shape != other.shape for one, other in zip(ours, theirs, strict=True)):
        return None
    spread = theirs[1] if mode == "MEAN_STD" else theirs[1] - theirs[0]
    gaps = [(one - other).abs() / spread.abs().clamp_min(1e-6) for one, other in zip(ours, theirs, strict=True)]
    # Statistics travel as float32, and come back a last bit off.
    far = max(float(gap.max()) for gap in gaps) if spread.numel() else 0.0
    return far if far > 1e-4 else 0.0


def resumed_run(config: Any) -> Resumed:
    """Return the checkpoint that a run continues, its step, and the settings that differ from its train_config.json.

    To be called before the run writes checkpoints of its own: `last` is another one then.
    """
    folder = Path(str(config.checkpoint_path)).resolve()
    step = read_json(folder / "training_state" / "training_step.json").get("step")
    found = Resumed(checkpoint=folder.name, step=step if isinstance(step, int) else None)
    if before := _flat(read_json(folder / "pretrained_model" / "train_config.json")):
        now = _flat(config.to_dict())
        names = [name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]
        found.changed = {name: (_text(before, name), _text(now, name)) for name in names if name not in _ITS_OWN}
    return found


def _flat(config: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return dotted name → value."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= _flat(value, f"{above}{key}.") if isinstance(value, Mapping) and value else {f"{above}{key}": value}
    return flat


def _text(config: Mapping[str, Any], name: str) -> str:
    return json.dumps(config[name], default=str)[:120] if name in config else "not there"


def _places(name: str) -> list[str]:
    """Return the modules that a parameter lies in, the outermost first, and then its own name."""
    steps = name.split(".")
    return [".".join(steps[:end]) for end in range(1, len(steps) + 1)]


_NO_ADAPTER = object()


def _equal_to_base(module: Any, name: str) -> object:
    """Whether a module's weights with the adapter have the base's bits; None if unknown; `_NO_ADAPTER` without one."""
    if name in (getattr(module, "modules_to_save", None) or ()) and hasattr(module, "original_module"):
        ours, base = module.modules_to_save[name].state_dict(), module.original_module.state_dict()
        return all(torch.equal(ours[key], base[key]) for key in base)
    if not hasattr(module, "base_layer") or not hasattr(module, "active_adapters"):
        return _NO_ADAPTER
    known = name in (getattr(module, "lora_B", None) or ()) and not getattr(module, "use_dora", {}).get(name)
    weight = getattr(module.get_base_layer(), "weight", None)
    if not known or weight is None:
        return None
    return torch.equal(weight, weight + module.get_delta_weight(name).to(weight.dtype))
