"""The formats of an exported policy: how each is made of torch's program, and what runs it."""

from __future__ import annotations

import io
import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from strobe.core.errors import UserError, install

if TYPE_CHECKING:  # the command's help reads this file, without torch
    from torch import Tensor
    from torch.export import ExportedProgram

    Inputs = Sequence[Tensor]


OPTIMISED = 5_000  # operators of a program that onnxscript's optimiser is run on; SmolVLA at full size has 24,000


class Format(Protocol):
    """A way to write a policy as a file that an engine runs.

    Args:
        title: its name, as people write it.
        extra: the extra of Strobe that installs ``packages``.
        packages: modules that writing and checking need.
        runs_with: packages that the export's program needs, as pip takes them.
        file: the model's file in the export's folder.
        precisions: those in which the engine computes.
    """

    title: str
    extra: str
    packages: tuple[str, ...]
    runs_with: str
    file: str
    precisions: tuple[str, ...]

    def save(self, program: ExportedProgram, calls: Sequence[Inputs], names: Sequence[str], to: Path) -> None:
        """Write ``program``, the whole policy in float32, to the file ``to``.

        Args:
            calls: its inputs in recorded calls. More than one asks for int8, whose scales are taken from them.
            names: of the inputs, in their order.

        Raises any exception for what the engine does not know.
        """
        ...


class OpenVINO:
    """https://docs.openvino.ai: one model for Intel's CPUs, GPUs and NPUs and for Arm's CPUs."""

    title = "OpenVINO"
    extra = "openvino"
    packages: tuple[str, ...] = ("openvino",)
    runs_with = "openvino numpy"
    file = "policy.xml"
    precisions: tuple[str, ...] = ("fp32", "bf16", "int8")

    def save(self, program: ExportedProgram, calls: Sequence[Inputs], names: Sequence[str], to: Path) -> None:  # noqa: D102  # as a format's
        from strobe.treatments.engines.backends import convert_to_openvino, quantize_calibrated

        model = convert_to_openvino(program, calls[0])
        if len(calls) > 1:
            # A whole policy has each product once for each denoising step: correcting all took more than ten minutes.
            model = quantize_calibrated(model, calls, corrected=False)
        for given, name in zip(model.inputs, names, strict=True):
            given.get_tensor().set_names({name})
        model.outputs[0].get_tensor().set_names({"action"})
        import openvino

        openvino.save_model(model, str(to), compress_to_fp16=False)


class ONNX:
    """https://onnx.ai, run by ONNX Runtime: https://onnxruntime.ai. The weights are in a file next to the model."""

    title = "ONNX"
    extra = "onnx"
    packages: tuple[str, ...] = ("onnxruntime", "onnxscript")
    runs_with = "onnxruntime numpy"
    file = "policy.onnx"
    precisions: tuple[str, ...] = ("fp32",)

    def save(self, program: ExportedProgram, calls: Sequence[Inputs], names: Sequence[str], to: Path) -> None:  # noqa: D102  # as a format's
        import torch

        with _quiet("onnxscript", "onnx_ir"):
            # The optimiser makes ACT's calls 16 % faster. It takes 140 s for ACT, and grows with the operators' square.
            small = len(program.graph.nodes) < OPTIMISED
            made: Any = torch.onnx.export(program, dynamo=True, verbose=False, optimize=small)
            for given, name in zip(made.model.graph.inputs, names, strict=True):
                given.name = name
            made.model.graph.outputs[0].name = "action"
            made.save(str(to), external_data=True)


class ExecuTorch:
    """https://docs.pytorch.org/executorch with XNNPACK, for Arm's boards and phones.

    In C++ the file runs without torch. In Python ExecuTorch's runtime imports it.
    """

    title = "ExecuTorch"
    extra = "executorch"
    packages: tuple[str, ...] = ("executorch",)
    runs_with = "executorch torch numpy"
    file = "policy.pte"
    precisions: tuple[str, ...] = ("fp32",)

    def save(self, program: ExportedProgram, calls: Sequence[Inputs], names: Sequence[str], to: Path) -> None:  # noqa: D102  # as a format's
        exir: Any = import_module("executorch.exir")
        xnnpack: Any = import_module("executorch.backends.xnnpack.partition.xnnpack_partitioner")
        # It looks for its compiler of FlatBuffers on PATH, where it is only in an environment that is activated.
        compiler = Path(import_module("executorch.data.bin").__path__[0], "flatc")
        if compiler.is_file():
            os.environ.setdefault("FLATC_EXECUTABLE", str(compiler))
        with _quiet("executorch"), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            lowered: Any = exir.to_edge_transform_and_lower(program, partitioner=[xnnpack.XnnpackPartitioner()])
            to.write_bytes(lowered.to_executorch().buffer)


FORMATS: dict[str, Format] = {"openvino": OpenVINO(), "onnx": ONNX(), "executorch": ExecuTorch()}


def require(name: str) -> None:
    """Raise UserError if a package is missing that the format ``name`` needs."""
    wanted = FORMATS[name]
    if any(find_spec(package) is None for package in wanted.packages):
        raise UserError(f"--format={name} needs {' and '.join(wanted.packages)}: {install(wanted.extra)}")


@contextmanager
def _quiet(*loggers: str) -> Iterator[None]:
    levels = {name: logging.getLogger(name).level for name in loggers}
    for name in loggers:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
