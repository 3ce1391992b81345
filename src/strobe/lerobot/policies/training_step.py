"""One training step of a policy as in ``lerobot-train``, with parts that treatments exchange."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from lerobot.policies.pretrained import PreTrainedPolicy
from torch import Tensor

from strobe.core.errors import UserError
from strobe.core.subjects.subject import Batch


@dataclass
class Training:
    """The parts of a training step that treatments can exchange.

    Args:
        autocast: the dtype of mixed precision; None for the one that ``lerobot-train`` takes from the policy's config.
        micro_batches: parts that the batch is split into before one optimizer step.
        image_format: memory format of images after preprocessing; None to leave it.
        tensor_float: whether products of float32 are in TF32 on CUDA; ``lerobot-train`` always has it so.
        benchmark: whether cuDNN tries its algorithms and takes the fastest; ``lerobot-train`` has it so, unless
            ``deterministic``, its ``--cudnn_deterministic``.
    """

    policy: PreTrainedPolicy
    autocast: torch.dtype | None = None
    micro_batches: int = 1
    image_format: torch.memory_format | None = None
    tensor_float: bool = True
    benchmark: bool = True
    deterministic: bool = False
    clip: float = field(default=float("inf"), init=False)
    _optimizer: torch.optim.Optimizer | None = field(default=None, init=False, repr=False)
    _scaler: torch.amp.GradScaler | None = field(default=None, init=False, repr=False)

    @property
    def has_begun(self) -> bool:
        """Whether the optimizer exists already, with its moments."""
        return self._optimizer is not None

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The policy's own optimizer at learning rate 0, built at first use; sets ``clip`` too."""
        if self._optimizer is None:
            config: Any = self.policy.config
            preset = config.get_optimizer_preset()
            optimizer = preset.build(self.policy.get_optim_params())
            if not isinstance(optimizer, torch.optim.Optimizer):
                raise TypeError(
                    f"{config.type}'s optimizer preset builds {type(optimizer).__name__}, not one optimizer"
                )
            for group in optimizer.param_groups:
                group["lr"] = 0.0
            self._optimizer = optimizer
            self.clip = getattr(preset, "grad_clip_norm", 0.0) or float("inf")
        return self._optimizer

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype that the forward pass is now cast to; None for none."""
        return self.autocast or own_autocast(self.policy)

    @property
    def scaler(self) -> torch.amp.GradScaler | None:
        """The loss scaler that accelerate uses with float16, one for all steps; None for other dtypes."""
        if self.dtype is not torch.float16:
            return None
        if self._scaler is None:
            self._scaler = torch.amp.GradScaler(self._device.type)
        return self._scaler

    def autocasting(self) -> contextlib.AbstractContextManager[object]:
        """Return the context of the forward pass."""
        dtype = self.dtype
        return contextlib.nullcontext() if dtype is None else torch.autocast(self._device.type, dtype)

    @property
    def sets_process(self) -> bool:
        """Whether ``lerobot-train``'s settings of its process matter on the policy's device."""
        return self._device.type == "cuda"

    @contextlib.contextmanager
    def hold_train_settings(self) -> Iterator[None]:
        """Hold what ``lerobot-train`` sets for its whole process, for one step: what runs in between has its own.

        Source: ``lerobot/scripts/lerobot_train.py``, before the data set is made.
        """
        if not self.sets_process:
            yield
            return
        cudnn = torch.backends.cudnn
        before = torch.get_float32_matmul_precision(), cudnn.benchmark, cudnn.deterministic
        try:
            torch.set_float32_matmul_precision("high" if self.tensor_float else "highest")
            cudnn.benchmark = self.benchmark
            cudnn.deterministic = self.deterministic or before[2]
            yield
        finally:
            torch.set_float32_matmul_precision(before[0])
            cudnn.benchmark, cudnn.deterministic = before[1:]

    def laid_out(self, batch: Batch) -> Batch:
        """Return ``batch`` with images (B, C, H, W) in ``image_format``."""
        if self.image_format is None:
            return batch
        images = {
            key: value.contiguous(memory_format=self.image_format) for key, value in batch.items() if _image(value)
        }
        return batch | images

    @property
    def _device(self) -> torch.device:
        return torch.device(self.policy.config.device or "cpu")


def own_autocast(policy: PreTrainedPolicy) -> torch.dtype | None:
    """Return the dtype that ``lerobot-train`` has accelerate cast to; None for none.

    It depends on ``policy.dtype``; without that on ``use_amp``.

    Source: ``lerobot/scripts/lerobot_train.py``, where the Accelerator is made.
    """
    config: Any = policy.config
    if hasattr(config, "dtype"):
        return {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(config.dtype)
    if not getattr(config, "use_amp", False):
        return None
    return torch.get_autocast_dtype(torch.device(config.device or "cpu").type)


def micro_batches(raw: Mapping[str, Any], count: int) -> list[Batch]:
    """Split a raw batch into ``count`` equal ones. Raises UserError if that is impossible."""
    if count == 1:
        return [dict(raw)]
    size = next(len(value) for value in raw.values() if isinstance(value, Tensor) and value.dim())
    if size % count:
        raise UserError(f"a batch of {size} cannot be split into {count} equal micro-batches: change --batch_size")
    each = size // count
    return [
        {key: value[start : start + each] if _is_per_sample(value, size) else value for key, value in raw.items()}
        for start in range(0, size, each)
    ]


def _is_per_sample(value: object, size: int) -> bool:
    if isinstance(value, Tensor):
        return value.dim() > 0 and len(value) == size
    return isinstance(value, list | tuple) and len(value) == size


def _image(value: object) -> bool:
    return isinstance(value, Tensor) and value.dim() == 4 and value.is_floating_point()
