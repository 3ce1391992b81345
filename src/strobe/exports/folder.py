"""The folder of an exported policy: the model, what goes in, a program that runs it without torch, a README."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from strobe.errors import UserError, install
from strobe.exports.exported import MANIFEST, PROGRAM, manifest
from strobe.exports.whole import Recording, exported, record, split
from strobe.policies.policy_subject import PolicySubject
from strobe.treatments.numbers.precision import Precision

CARRIED = Path(__file__).parent / "carried"
MODEL, README, TOKENIZER = "policy.xml", "README.md", "tokenizer.json"
PRECISIONS = {"fp32": "f32", "bf16": "bf16"}  # as Strobe writes them → OpenVINO's hints


def require_engine() -> None:
    """Raise UserError without OpenVINO."""
    from importlib.util import find_spec

    if find_spec("openvino") is None:
        raise UserError(f"strobe export needs OpenVINO: {install('openvino')}")


def write(subject: PolicySubject, folder: Path, precision: str, stage: Callable[[str], None]) -> None:
    """Export ``subject`` in OpenVINO into ``folder``, which is empty or not there.

    Args:
        precision: 'fp32' or 'bf16', in which the engine computes.
        stage: is told what is being done.

    Raises:
        UserError: the policy cannot be exported, with the reason; the folder holds something.
    """
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty: name a new folder with --to")
    if subject.device.type != "cpu":
        raise UserError(f"strobe export traces on the CPU, and the policy is on {subject.device}: --device=cpu")
    undo = Precision("fp32").apply(subject)  # of a program in bfloat16, OpenVINO cannot take every operator
    try:
        made, model = _converted(subject, stage)
        import openvino

        folder.mkdir(parents=True, exist_ok=True)
        openvino.save_model(model, str(folder / MODEL), compress_to_fp16=False)
        prompt = _prompt(subject, made, folder)
        (folder / MANIFEST).write_text(json.dumps(_manifest(subject, made, precision, prompt), indent=1) + "\n")
        shutil.copy(CARRIED / PROGRAM, folder / PROGRAM)
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror}") from error
    finally:
        undo()


def _converted(subject: PolicySubject, stage: Callable[[str], None]) -> tuple[Recording, Any]:
    """Return one inference of ``subject`` and OpenVINO's model of it. Raises UserError, with the reason."""
    from strobe.treatments.engines.backends import converted

    stage(f"exporting {subject.info.name}")
    made = record(subject)
    program = exported(subject, made)
    stage("converting it to OpenVINO")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch's code about torch's own
            model = converted(program, made.values)
    except Exception as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise UserError(f"OpenVINO cannot take {subject.info.name}: {_reason(error)}") from error
    _name_inputs(model, made)
    return made, model


def write_readme(folder: Path, outcome: str) -> None:
    """Write the folder's README. ``outcome``: what the check of the export said, in sentences."""
    about = manifest(folder)
    inputs = "\n".join(f"| `{each['name']}` | {each['shape']} | {each['dtype']} |" for each in about["inputs"])
    needs = "openvino numpy tokenizers" if about["prompt"] else "openvino numpy"
    _, actions, width = about["chunk"]
    floats = {hint: name for name, hint in PRECISIONS.items()}[about["precision"]]
    text = f"""# {about["policy"]} in OpenVINO

Runs without torch and without LeRobot: `pip install {needs}`, then

    from policy import Policy
    chunk = Policy().act(observation{', task="…"' if about["prompt"] else ""})

| input | shape | dtype |
|---|---|---|
{inputs}

Images are floats from 0 to 1, channels first, as LeRobot gives them. The answer is a chunk of {actions} actions with
{width} numbers each, in the robot's own units: both processors are in the model. It computes in {floats}. Strobe
{about["strobe"]} exported it from LeRobot {about["lerobot"]}.

## Does it act as the policy does?

{outcome}

    strobe verify --exported=FOLDER --policy.path=POLICY --dataset.root=DATASET     checks it again
"""
    (folder / README).write_text(text)


def size(folder: Path) -> str:
    """Return the bytes of the folder's files, in words."""
    return f"{sum(file.stat().st_size for file in folder.iterdir()) / 2**20:,.1f} MiB"


def _manifest(subject: PolicySubject, made: Recording, precision: str, prompt: dict[str, Any] | None) -> dict[str, Any]:
    inputs = [{"name": n, "shape": list(v.shape), "dtype": _dtype(v.dtype)} for n, v in made.inputs.items()]
    return {
        "format": "openvino",
        "model": MODEL,
        "policy": subject.info.name,
        "precision": PRECISIONS[precision],
        "inputs": inputs,
        "noise": [{"kind": kind, "shape": list(drawn.shape)} for kind, drawn in made.noise],
        "prompt": prompt,
        "chunk": list(made.chunk.shape),
        "actions": list(subject.inputs.action_names or ()),
        **{name: version(package) for name, package in PACKAGES.items()},
    }


PACKAGES = {"strobe": "strobe-lab", "lerobot": "lerobot", "torch": "torch", "openvino": "openvino"}


def _prompt(subject: PolicySubject, made: Recording, folder: Path) -> dict[str, Any] | None:
    """Save the tokenizer, and return how a task becomes tokens; its ``tokenizer`` is None where it has no file."""
    _, _, step = split(subject)
    if step is None:
        return None
    tokenizer = step.input_tokenizer
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        backend.save(str(folder / TOKENIZER))
    return {
        "tokenizer": TOKENIZER if backend is not None else None,
        "suffix": made.suffix,
        "length": step.max_length,
        "side": step.padding_side,
        "pad": int(getattr(tokenizer, "pad_token_id", 0) or 0),
    }


def _name_inputs(model: Any, made: Recording) -> None:
    names = [*made.inputs, *(f"noise {number}" for number in range(len(made.noise)))]
    for given, name in zip(model.inputs, names, strict=True):
        given.get_tensor().set_names({name})


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _reason(error: Exception) -> str:
    """Return the line of OpenVINO's report that names what it does not know."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    summary = [line for line in lines if "Conversion is failed" in line]
    told = [line for line in lines if not line.startswith("Check 'false'")]  # a place in OpenVINO's source
    return (summary or told or lines or [type(error).__name__])[0].removeprefix("-- ")[:200]
