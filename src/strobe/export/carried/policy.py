"""The policy of this folder, without torch. README.md says what to install.

    policy = Policy()
    chunk = policy.act({"observation.state": state, "observation.images.front": image}, task="pick up the cube")

`export.json` lists the arrays that an observation needs, with their shapes. Images are floats from 0 to 1, channels
first. A chunk is (1, actions, action dim) in the robot's own units.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    del sys.path[0]  # this folder: no file of it takes the place of a module

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
MANIFEST = "export.json"
DARKEST, BRIGHTEST = -0.5, 2.0  # of an image from 0 to 1, with room for overshoot in resizing
TOKENS, MASK = "observation.language.tokens", "observation.language.attention_mask"


class Policy:
    """The exported policy. ``threads``: of the CPU, 0 for as many as the engine takes; ``seed``: of its noise.

    Raises ValueError for a file of the folder that is missing, or damaged since it was exported.
    """

    def __init__(self, threads: int = 0, seed: int | None = None) -> None:
        if hiding := describe_hiding(HERE):
            raise ValueError(hiding)
        self.about: dict[str, Any] = json.loads((HERE / MANIFEST).read_text())
        if damage := describe_damage(HERE, self.about):
            raise ValueError(damage)
        self._run = ENGINES[self.about["format"]](str(HERE / self.about["model"]), self.about["precision"], threads)
        self._random = np.random.default_rng(seed)
        self._tokenizer: Any = None

    def act(self, observation: dict[str, Any], task: str = "", noise: Any = None) -> Any:
        """Return a chunk of actions. ``noise``: the arrays that `export.json` lists, for a repeatable answer.

        Raises ValueError for an array that is missing, has another shape or kind of numbers, or is not finite.
        """
        drawn = [self._draw_noise(wanted) for wanted in self.about["noise"]] if noise is None else list(noise)
        return self._run([*self.prepare_inputs(observation, task).values(), *drawn])

    def prepare_inputs(self, observation: dict[str, Any], task: str = "") -> dict[str, Any]:
        """Return the arrays that the model is given, by name. Raises ValueError as `act` does."""
        found = dict(observation)
        if self.about["prompt"] and TOKENS not in found:
            found |= self.tokens(task, found)
        return {wanted["name"]: self._array(found, wanted) for wanted in self.about["inputs"]}

    def tokens(self, task: str, observation: dict[str, Any]) -> dict[str, Any]:
        """Return the tokens of a prompt and their mask, (1, length) each; some prompts hold the state."""
        about = self.about["prompt"]
        if self._tokenizer is None:
            from tokenizers import Tokenizer

            self._tokenizer = Tokenizer.from_file(str(HERE / about["tokenizer"]))
            self._tokenizer.no_padding()
            self._tokenizer.no_truncation()
        ids = self._tokenizer.encode(write_prompt(about, task, observation)).ids[: about["length"]]
        rest = about["length"] - len(ids)
        padding, right = [about["pad"]] * rest, about["side"] == "right"
        tokens = [*ids, *padding] if right else [*padding, *ids]
        mask = [*[True] * len(ids), *[False] * rest] if right else [*[False] * rest, *[True] * len(ids)]
        return {TOKENS: np.array([tokens], np.int64), MASK: np.array([mask], bool)}

    def _array(self, given: dict[str, Any], wanted: dict[str, Any]) -> Any:
        if wanted["name"] not in given:
            raise ValueError(f"the observation lacks {wanted['name']} of shape {wanted['shape']}")
        name, dtype = wanted["name"], np.dtype(wanted["dtype"])
        found, image = np.asarray(given[name]), name.startswith("observation.image")
        if found.dtype.kind.replace("u", "i") != dtype.kind:  # NumPy would cast it without a word
            hint = ": images must be from 0 to 1: divide by 255" if image else ""
            raise ValueError(f"{name} is {found.dtype}, and the policy takes {dtype}{hint}")
        with np.errstate(over="ignore"):  # what does not fit float32 is refused below
            array = np.ascontiguousarray(found, dtype)
        if list(array.shape) != wanted["shape"]:
            raise ValueError(f"{name} is {list(array.shape)}, and the policy takes {wanted['shape']}")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} has infinite values or NaN")
        if image and array.ndim == 4 and array.shape[1] == 3 and not DARKEST <= array.min() <= array.max() <= BRIGHTEST:
            raise ValueError(f"{name} has {array.min():g} to {array.max():g}: images are from 0 to 1: divide by 255")
        return array

    def _draw_noise(self, wanted: dict[str, Any]) -> Any:
        draw = self._random.standard_normal if wanted["kind"] == "normal" else self._random.random
        return draw(wanted["shape"]).astype(np.float32)


def describe_hiding(folder: Path) -> str | None:
    """Say which file of ``folder`` Python would import in place of a module that is meant; None if it is none."""
    meant = {*getattr(sys, "stdlib_module_names", ()), "numpy", "onnxruntime", "openvino", "tokenizers", "torch"}
    files = [file for end in ("*.py", "*.so", "*.pyd", "*/__init__.py") for file in folder.glob(end)]
    names = sorted(file.relative_to(folder).parts[0] for file in files)
    hiding = [name for name in names if name.partition(".")[0] in meant]
    return f"{folder / hiding[0]} hides a module of Python's that is needed: move it elsewhere" if hiding else None


def describe_damage(folder: Path, about: dict[str, Any]) -> str | None:
    """Say which file of ``folder`` is missing or has changed since the export; None if none has.

    ``about``: what its `export.json` says. Digests show damage: who changes a file on purpose changes its digest too.
    """
    again = "copy the folder again, or export the policy again"
    for name, digest in about["files"].items():
        try:
            found = (
                export_digest(about) if name == MANIFEST else hashlib.sha256((folder / name).read_bytes()).hexdigest()
            )
        except OSError as error:
            return f"{folder / name} cannot be read ({error.strerror}): {again}"
        if found != digest:
            return f"{folder / name} has changed since it was exported: {again}"
    return None


def export_digest(about: dict[str, Any]) -> str:
    """Return the digest of the contents of `export.json` without the digests."""
    said = {key: value for key, value in about.items() if key != "files"}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def write_prompt(about: dict[str, Any], task: str, observation: dict[str, Any]) -> str:
    """Return the prompt, written as ``about`` (of `export.json`) says."""
    text: str = about["text"]
    if state := about["state"]:
        values = np.asarray(observation[state["name"]], np.float32).reshape(-1)
        offset, divisor = (np.asarray(state[key], np.float32) for key in ("offset", "divisor"))
        scaled = state["times"] * (values - offset) / divisor + state["plus"]
        bins = np.digitize(scaled, np.linspace(-1, 1, state["bins"] + 1)[:-1]) - 1
        text = text.replace("{state}", " ".join(map(str, bins)))
    cleaned = task.strip().replace("_", " ").replace("\n", " ") if about["cleaned"] else task
    return text.replace("{task}", cleaned)


# Each engine: the model's file, its precision and the CPU's threads in; out comes what turns inputs into a chunk.
Run = Callable[[list[Any]], Any]


def _openvino(file: str, precision: str, threads: int) -> Run:
    import openvino

    floating = "bf16" if precision == "bf16" else "f32"  # without a hint it takes bf16 wherever the CPU has it
    options: dict[str, Any] = {"INFERENCE_PRECISION_HINT": floating, "PERFORMANCE_HINT": "LATENCY"}
    if threads:
        options["INFERENCE_NUM_THREADS"] = threads
    request = _core(openvino).compile_model(file, "CPU", options).create_infer_request()
    return lambda arrays: request.infer(arrays)[0].copy()


def _core(openvino: Any) -> Any:
    """OpenVINO's core, one for all policies and for as long as the process lives.

    Where the CPU has AMX, each core gives the thread that makes it a stack for signals. Two that go in another order
    than they came leave freed memory there, and the next signal that is handled ends the process.
    """
    if not hasattr(openvino, "kept_core"):
        openvino.kept_core = openvino.Core()
    return openvino.kept_core


def _onnx(file: str, _: str, threads: int) -> Run:
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]
    return lambda arrays: session.run(None, dict(zip(names, arrays, strict=True)))[0]


def _executorch(file: str, _: str, threads: int) -> Run:
    import torch  # ExecuTorch's runtime in Python needs it; the one in C++ does not
    from executorch.extension.pybindings.portable_lib import (  # pyright: ignore[reportMissingImports]
        _unsafe_reset_threadpool,
    )
    from executorch.runtime import Runtime  # pyright: ignore[reportMissingImports]

    if threads:
        _unsafe_reset_threadpool(threads)
    program = Runtime.get().load_program(file)
    method = program.load_method("forward")
    return lambda arrays: method.execute([torch.from_numpy(array) for array in arrays])[0].numpy().copy()


ENGINES = {"openvino": _openvino, "onnx": _onnx, "executorch": _executorch}

if __name__ == "__main__":
    policy = Policy(seed=0)
    zeros = {each["name"]: np.zeros(each["shape"], each["dtype"]) for each in policy.about["inputs"]}
    chunk = policy.act(zeros)
    print(f"{policy.about['policy']}: a chunk of {chunk.shape[1]} actions; the first for zeros is {chunk[0, 0]}")
