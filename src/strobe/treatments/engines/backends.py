"""Engines that run a part in torch's place, for the shapes they are built for: OpenVINO (CPU), TensorRT (NVIDIA)."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import io
import logging
import math
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from strobe.core.devices.accelerators import computes_bf16, number_device
from strobe.core.errors import UserError, install
from strobe.core.measure.ceiling import faster_in_bfloat16
from strobe.core.measure.memory import available_bytes
from strobe.core.runs.cache import cache_folder
from strobe.treatments.engines.partitions import OnCard
from strobe.treatments.engines.recorded import Call, Results
from strobe.treatments.numbers.quantise import LEAST_FP8

# Floating tensors come and go as float32.
Inputs = Sequence[Tensor]
Run = Callable[[Inputs], Sequence[Tensor]]


class Engine(Protocol):
    """A way to build, keep and run an exported part."""

    suffix: str

    def require(self, device: torch.device) -> None:
        """Raise UserError if the package is missing, or the device is none of its own."""

    def precisions(self, device: torch.device) -> tuple[str, ...]:
        """Precisions that it has on ``device``."""
        ...

    def export_precision(self, precision: str) -> str:
        """Precision to export the program in, for an engine in ``precision``."""
        ...

    def building(self, precision: str) -> float:
        """Return the bytes of the machine's memory that building takes for each weight, besides the exported ones."""
        ...

    def versions(self, device: torch.device, precision: str) -> str:
        """Versions of all that an engine in ``precision`` for ``device`` in the cache depends on."""
        ...

    def read(self, program: ExportedProgram, inputs: Inputs) -> Any:
        """Return ``program`` as `build` takes it, for the shapes of ``inputs``; the same for every precision."""

    def build(self, model: object, calls: Sequence[Inputs], precision: str, keep: Path) -> Run:
        """Compile what `read` returned for the shapes and the device of ``calls``; write the engine to ``keep``.

        ``model`` stays unchanged. An engine in int8 is calibrated on ``calls``. No file is written where there is no
        room for it.
        """
        ...

    def load(self, file: Path, precision: str, device: torch.device) -> Run:
        """Load the engine that `build` kept. Raises any exception where the file cannot be read."""
        ...


class OpenVINO:
    """https://docs.openvino.ai: its CPU plugin, with as many threads as torch has."""

    suffix = ".blob"
    _HINTS = {"fp32": "f32", "bf16": "bf16", "fp16": "f16"}  # noqa: RUF012
    # Measured bytes for each weight, besides the weights that the engine holds. A cached engine has them in float32.
    _BESIDE, _KEPT = 0.8, 4.1
    _CALIBRATING = 16.0  # the model in float32 again, and its statistics

    def require(self, device: torch.device) -> None:
        if device.type != "cpu":
            raise UserError(f"engine=openvino runs on CPUs, but the policy is on {device.type}: use tensorrt")
        disable_telemetry()
        _require("openvino", "openvino")

    def precisions(self, device: torch.device) -> tuple[str, ...]:
        able = _core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        floating = [name for name in ("fp32", "bf16", "fp16") if name == "fp32" or name.upper() in able]
        return (*floating, *([INT8] if "INT8" in able else []))

    def export_precision(self, precision: str) -> str:
        return "fp32"  # of a program in bfloat16 it cannot compile every operator

    def building(self, precision: str) -> float:
        if precision == INT8:
            return self._BESIDE + self._CALIBRATING
        return self._BESIDE + (4 if precision == "fp32" else 2)

    def versions(self, device: torch.device, precision: str) -> str:
        rest = f", {self._floating}" if precision == INT8 else ""
        return f"openvino {version('openvino')}, torch {torch.__version__}{rest}"

    def read(self, program: ExportedProgram, inputs: Inputs) -> Any:
        """Return OpenVINO's model in float32: what takes most of the time, and every precision begins with it."""
        return convert_to_openvino(program, inputs)

    def build(self, model: Any, calls: Sequence[Inputs], precision: str, keep: Path) -> Run:
        weights = sum(math.prod(node.shape) for node in model.get_ops() if node.get_type_name() == "Constant")
        if precision == INT8:
            model = quantize_calibrated(model, calls)
        compiled = _core().compile_model(model, "CPU", self._options(precision))
        if self._KEPT * weights < available_bytes():
            _write_file(keep, lambda: keep.write_bytes(compiled.export_model().getvalue()))
        return self._run(compiled)

    def load(self, file: Path, precision: str, device: torch.device) -> Run:
        return self._run(_core().import_model(file.read_bytes(), "CPU", self._options(precision)))

    def _options(self, precision: str) -> dict[str, object]:
        # Without a hint it takes bfloat16 wherever the CPU has it.
        return {
            "INFERENCE_PRECISION_HINT": self._HINTS[self._floating if precision == INT8 else precision],
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        }

    @property
    def _floating(self) -> str:
        """The dtype in which an engine in int8 computes the rest."""
        return "bf16" if "bf16" in self.precisions(torch.device("cpu")) and faster_in_bfloat16() else "fp32"

    def _run(self, compiled: Any) -> Run:
        request = compiled.create_infer_request()
        count = len(compiled.outputs)

        def run(inputs: Sequence[Tensor]) -> list[Tensor]:
            arrays = [value.detach().contiguous().numpy() for value in inputs]
            results = request.infer(arrays, share_inputs=True, share_outputs=True)
            # A copy: the next call writes where this one's results are.
            return [torch.from_numpy(results[index]).clone() for index in range(count)]

        return run


def convert_to_openvino(program: ExportedProgram, inputs: Inputs) -> Any:
    """Return OpenVINO's model of ``program``, for the shapes of ``inputs``. Raises OpenVINO's exceptions."""
    model = _openvino().convert_model(_decoder(program))
    model.reshape({index: list(value.shape) for index, value in enumerate(inputs)})
    return model


def _decoder(program: ExportedProgram) -> object:
    """Return what OpenVINO reads ``program`` by, with nodes that are found by their place and not by a search.

    OpenVINO 2026.4 looks for each argument of each node in the list of all of them: of SmolVLA's 24,000 nodes that took
    4 of 10 minutes.
    """
    decoder = importlib.import_module("openvino.frontend.pytorch.fx_decoder").TorchFXPythonDecoder
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)  # of operators that this torch takes apart by another name, with tracebacks
    try:
        made = decoder.from_exported_program(program)
    finally:
        logging.disable(level)
    if isinstance(getattr(made, "_nodes", None), list):
        made._nodes = _Nodes(made._nodes)
    return made


class _Nodes(list[Any]):
    """Nodes of a graph, each of which is there once."""

    def __init__(self, nodes: Sequence[object]) -> None:
        super().__init__(nodes)
        self._places = {id(node): place for place, node in enumerate(nodes)}

    def index(self, node: object, *_: object) -> int:
        try:
            return self._places[id(node)]
        except KeyError:
            raise ValueError(f"{node} is none of them") from None


class TensorRT:
    """https://docs.pytorch.org/TensorRT: torch-tensorrt, which leaves to torch what TensorRT does not know.

    Each engine is for one device, by its number, and is built and run with that one as the current one.
    """

    suffix = ".ep"

    def require(self, device: torch.device) -> None:
        if device.type != "cuda":
            raise UserError(f"engine=tensorrt needs CUDA, but the policy is on {device.type}: use openvino")
        _require("torch_tensorrt", "tensorrt")

    def precisions(self, device: torch.device) -> tuple[str, ...]:
        floating = ("fp32", "bf16", "fp16") if computes_bf16(device) else ("fp32", "fp16")
        able = torch.cuda.get_device_capability(device) >= LEAST_FP8 and find_spec(MODELOPT) is not None
        return (*floating, FP8) if able else floating

    def export_precision(self, precision: str) -> str:
        # It computes in the program's dtypes; enabled_precisions is the deprecated way to say it. What an engine in
        # fp8 does not multiply in it stays in bfloat16, which has the range of float32.
        return "bf16" if precision == FP8 else precision

    def building(self, precision: str) -> float:
        return 0.0  # it is the device's memory that is taken, and that refuses by itself

    def versions(self, device: torch.device, precision: str) -> str:
        name, capability = torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device)
        where = f"{name} {capability} {number_device(device)}"
        return f"torch-tensorrt {version('torch-tensorrt')}, torch {torch.__version__}, {where}"

    def read(self, program: ExportedProgram, inputs: Inputs) -> Any:
        """Return ``program`` itself, which TensorRT takes."""
        return program

    def build(self, model: object, calls: Sequence[Inputs], precision: str, keep: Path) -> Run:
        inputs = calls[0]
        tensorrt: Any = importlib.import_module("torch_tensorrt")
        device = number_device(inputs[0].device)
        options = {"use_explicit_typing": True, "truncate_double": True, "min_block_size": 1, "device": device}
        # Without this option 2.11 takes every mask in attention for a causal one, drops it, and gives other results
        # (its lowering pass force_causal_efficient_attention). Older versions have neither the pass nor the option.
        if _takes(tensorrt.dynamo.compile, "attn_bias_is_causal"):
            options["attn_bias_is_causal"] = False
        with torch.cuda.device(device):
            built = OnCard(tensorrt.dynamo.compile(model, arg_inputs=list(inputs), **options), device)
            saved = {"output_format": "exported_program", "arg_inputs": list(inputs)}
            _write_file(keep, lambda: tensorrt.save(built.module, str(keep), **saved))
        return built

    def load(self, file: Path, precision: str, device: torch.device) -> Run:
        tensorrt: Any = importlib.import_module("torch_tensorrt")
        with torch.cuda.device(device):
            return OnCard(tensorrt.load(str(file)).module(), device)


def _takes(function: Callable[..., object], keyword: str) -> bool:
    taken = inspect.signature(function).parameters
    return keyword in taken or any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values())


def _write_file(keep: Path, write: Callable[[], object]) -> None:
    """Let ``write`` make the file ``keep``, which is not there where the disk is full, or must not be written to."""
    try:
        keep.parent.mkdir(parents=True, exist_ok=True)
        write()
    except OSError:
        with suppress(OSError):
            keep.unlink()


def _openvino() -> Any:
    disable_telemetry()
    return importlib.import_module("openvino")


def disable_telemetry() -> None:
    """Let OpenVINO send no telemetry from this process, whether it is imported already or not.

    Each conversion would start processes to send it, and leave their pipes open: some 40 engines leave more of them
    than select(2) can watch.
    """
    loaded: Any = sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    if loaded is not None:  # a program, or an export's own, imported OpenVINO first
        for name in ("start_session", "end_session", "send_event", "send_error", "send_stack_trace"):
            setattr(loaded.Telemetry, name, lambda *_, **__: None)


@cache
def _core() -> Any:
    """OpenVINO's core, one for as long as the process lives.

    Where the CPU has AMX, its plugin gives the thread that makes it a stack for signals, and takes that back on the
    thread that lets it go. Let go on another one, as garbage collection may, the first thread is left with freed
    memory, and the next signal that it handles ends the process: a worker of a torch loader that ends is enough.
    """
    return _openvino().Core()


def _require(module: str, extra: str) -> None:
    try:
        importlib.import_module(module)
    except ImportError:
        raise UserError(f"engine={extra} needs a package: {install(extra)}") from None


FORM = "2"  # of the files: those before may hold values of the call that they were exported from
ENGINES: dict[str, Callable[[], Engine]] = {"openvino": OpenVINO, "tensorrt": TensorRT}


# An OpenVINO model in 8 bits: its products and convolutions, scaled by what they were given in recorded calls. By NNCF,
# OpenVINO's own quantiser (https://github.com/openvinotoolkit/nncf, Apache-2.0): weights symmetric by channel, what
# they are multiplied with by one scale each, as a transformer wants it. The scales are constants of the engine, so that
# no call has to look for the largest number of its inputs first. Convolutions are quantised too, which int8=dynamic
# cannot.

INT8 = "int8"
# torch-tensorrt takes products in float8 by an operator that ModelOpt registers when it is imported
# (https://github.com/NVIDIA/Model-Optimizer, Apache-2.0).
FP8, MODELOPT = "fp8", "modelopt"


def require_nncf() -> None:
    """Raise UserError if NNCF is missing."""
    if find_spec("nncf") is None:
        raise UserError(f"int8_engine needs a package: {install('openvino')}")


def quantize_calibrated(model: object, calls: Sequence[Sequence[Tensor]], *, corrected: bool = True) -> Any:
    """Return ``model`` with the products that NNCF quantises in int8.

    Args:
        calls: its inputs in recorded calls, on the CPU, floating ones in float32; scales are taken from all of them.
        corrected: whether biases make up for the mean error of their products. NNCF builds a model for each of those.
    """
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # NNCF imports it: "no CUDA runtime"
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):  # bars of progress
        nncf: Any = importlib.import_module("nncf")
        nncf.set_log_level(logging.ERROR)
        arrays = [[value.detach().contiguous().numpy() for value in call] for call in calls]
        return nncf.quantize(
            model,
            nncf.Dataset(arrays),
            subset_size=len(arrays),
            model_type=nncf.ModelType.TRANSFORMER,
            advanced_parameters=nncf.AdvancedQuantizationParameters(disable_bias_correction=not corrected),
        )


# The cache of built engines: a file per engine, named after all that it depends on.

MOST_BYTES = 16 * 2**30  # size of all files; the engine of a language model has 4 bytes for each of its weights


def engines_folder() -> Path:
    """Return the engines' folder, below STROBE_CACHE, else in the user's cache. It may be deleted at any time."""
    return cache_folder() / "engines"


def trim_engines() -> None:
    """Remove the files that were not used for longest, until those that stay have `MOST_BYTES` or less."""
    remaining = MOST_BYTES
    with suppress(OSError):
        for file in sorted(engines_folder().iterdir(), key=lambda file: file.stat().st_mtime, reverse=True):
            remaining -= file.stat().st_size
            if remaining < 0:
                file.unlink(missing_ok=True)


def mark_used(file: Path) -> None:
    """Note that ``file`` was used now."""
    with suppress(OSError):
        file.touch()


def engine_file(
    part: nn.Module,
    call: Call,
    results: Results,
    name: str,
    engine: Engine,
    precision: str,
    device: torch.device,
    about: str,
) -> Path:
    """Return the file of the engine ``name``, whether it exists or not.

    It depends on weights, shapes, versions, ``device`` and ``precision``, and on what ``about`` says.
    """
    digest = hashlib.blake2b(digest_size=16)
    keys = [FORM, name, precision, engine.versions(device, precision), _package(part), str(getattr(part, "config", ""))]
    keys += [about, repr(part), repr(call.key), repr(call.dtypes), repr([tuple(t.shape) for t in results.tensors])]
    digest.update("\0".join(keys).encode())
    for path, weight in [*part.named_parameters(), *part.named_buffers()]:
        digest.update(f"{path} {tuple(weight.shape)} {weight.dtype}".encode())
        digest.update(weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return engines_folder() / f"{digest.hexdigest()}{engine.suffix}"


def _package(part: nn.Module) -> str:
    from importlib.metadata import PackageNotFoundError, version

    kind = type(part)
    package = kind.__module__.split(".")[0]
    try:
        return f"{kind.__module__}.{kind.__qualname__} {version(package)}"
    except PackageNotFoundError:
        return f"{kind.__module__}.{kind.__qualname__}"
