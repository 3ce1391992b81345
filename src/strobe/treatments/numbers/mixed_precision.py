"""Automatic mixed precision in training: autocast around the forward pass, as accelerate has it in lerobot-train."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from strobe.errors import UserError, nearest
from strobe.policies.policy_subject import PolicySubject
from strobe.policies.subject import Subject
from strobe.results.traits import TreatmentTraits
from strobe.treatments.switch import entry
from strobe.treatments.treatment import FOR_TRAINING, Spec, Treatment, Undo, policy_of

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
AUTO = "auto"


@dataclass
class MixedPrecision(Treatment, key="amp"):
    """Autocast to ``dtype``: bf16, fp16 (with a loss scaler), or auto for what ``policy.use_amp`` is on the device."""

    dtype: str = AUTO
    _used: str | None = field(default=None, init=False, repr=False)
    _flag: str = field(default="", init=False, repr=False)
    phases = FOR_TRAINING

    def __post_init__(self) -> None:
        if self.dtype not in (*DTYPES, AUTO):
            raise UserError(f"amp={self.dtype}: {nearest(self.dtype, (*DTYPES, AUTO))}")
        if self.dtype != AUTO:  # else the device decides, when it is put on
            self.dtypes = (str(DTYPES[self.dtype]).removeprefix("torch."),)

    def traits(self) -> TreatmentTraits:
        return TreatmentTraits(key=self.key, value=self._used or self.dtype, lerobot_flag=self._flag)

    def apply(self, subject: Subject) -> Undo:
        owner = policy_of(subject)
        if self._used is None:
            device = owner.device.type
            own = torch.get_autocast_dtype(device)
            used = self.dtype if self.dtype != AUTO else next(n for n, dtype in DTYPES.items() if dtype is own)
            _require_one_format(owner, used)
            self._used = used
            self.dtypes = (str(DTYPES[used]).removeprefix("torch."),)
            self._flag = _flag(owner, DTYPES[used])
        training = owner.training
        before, training.autocast = training.autocast, DTYPES[self._used]

        def undo() -> None:
            training.autocast = before

        return undo


def _require_one_format(subject: PolicySubject, used: str) -> None:
    """Raises UserError where weights are in the other format of 16 bits: autocast joins no tensors of both.

    Source: ``prioritize`` in ATen's ``autocast_mode.h``, which SmolVLA's bfloat16 backbone meets in ``torch.cat``.
    """
    held = {parameter.dtype for parameter in subject.module.parameters()}
    for name, dtype in DTYPES.items():
        if name != used and dtype in held:
            where = f"{subject.info.name} has weights in {name}"
            raise UserError(f"amp={used}: {where}, and autocast joins no tensors of both: amp={name}")


def _flag(subject: PolicySubject, dtype: torch.dtype) -> str:
    """Return the flag or command with which ``lerobot-train`` does the same; '' where none does.

    See `subjects.training.own_autocast`.
    """
    config: Any = subject.policy.config
    device, name = subject.device.type, str(dtype).removeprefix("torch.")
    if device == "cpu" and dtype is torch.float16:  # accelerate refuses it there
        return ""
    if hasattr(config, "dtype"):
        return f"--policy.dtype={name}" if name == "bfloat16" else ""
    if dtype is torch.get_autocast_dtype(device):
        return "--policy.use_amp=true"
    short = next(short for short, one in DTYPES.items() if one is dtype)
    return f"accelerate launch --mixed_precision={short} $(which lerobot-train)"


def _make(spec: Spec) -> MixedPrecision:
    return MixedPrecision(AUTO if spec["amp"] is True else str(spec["amp"]))


ENTRY = entry("amp", _make)
