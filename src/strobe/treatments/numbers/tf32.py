"""TensorFloat-32: products of float32 on CUDA's tensor cores, with ten bits after the point instead of 23."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from strobe.errors import UserError
from strobe.policies.subject import Subject
from strobe.treatments.process.wanted import Wanted
from strobe.treatments.switch import Switch
from strobe.treatments.treatment import ANY_PHASE, Undo


@dataclass
class TensorFloat32(Switch, key="tf32"):
    """TF32 for matrix products and convolutions, as ``lerobot-train`` always has it (torch: convolutions only)."""

    phases = ANY_PHASE
    dtypes = ("tf32",)

    @classmethod
    def fits(cls, subject: Subject) -> bool:
        floats = any(parameter.dtype is torch.float32 for parameter in subject.module.parameters())
        return subject.device.type == "cuda" and floats

    def apply(self, subject: Subject) -> Undo:
        if subject.device.type != "cuda":
            raise UserError(f"tf32 is a mode of CUDA's tensor cores: there is none on {subject.device.type}")
        return set_tensor_float("high", True)


def convolutions_in_tf32(device: torch.device) -> bool:
    """Whether convolutions of float32 are computed in TF32 on ``device`` now. cuDNN does, by torch's default."""
    if device.type != "cuda" or torch.version.hip or not torch.backends.cudnn.allow_tf32:
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)  # Ampere and later


def set_tensor_float(products: str, convolutions: bool) -> Undo:
    """Float32's ``products`` ('high' is TF32, 'highest' is not), and whether convolutions use TF32."""
    return _TENSOR_FLOAT.want((products, convolutions))


def _read() -> tuple[str, bool]:
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32


def _put(value: tuple[str, bool]) -> None:
    torch.set_float32_matmul_precision(value[0])
    torch.backends.cudnn.allow_tf32 = value[1]


_TENSOR_FLOAT = Wanted(_read, _put)


ENTRY = TensorFloat32.entry()
