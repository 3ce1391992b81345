"""The folder of an exported policy: the model, what goes in, a program that runs it without torch, a README."""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import torch

from strobe.core.errors import UserError, error_line
from strobe.core.treatments.room import numbers, require_room
from strobe.core.untrusted import JsonObject, parse_json
from strobe.export.carried.policy import MANIFEST, export_digest
from strobe.export.exported import PROGRAM, is_float32, manifest
from strobe.export.formats import FORMATS, require
from strobe.export.whole import Recording, export_program, record, split
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.treatments.numbers.precision import Precision

CARRIED = Path(__file__).parent / "carried"
README, TOKENIZER = "README.md", "tokenizer.json"
CALIBRATION = 16  # observations that the scales of int8 are taken from
# Bytes for each byte of the weights in float32, in addition to the policy: the engine's copy. Diffusion took 1.06.
ENGINE_COPY = 1.1


@dataclass(frozen=True)
class ExportOptions:
    """The format and the precision of an export.

    Args:
        format: a key of `FORMATS`.
        precision: of those that the format has.
    """

    format: str = "openvino"
    precision: str = "fp32"


def write(subject: PolicySubject, folder: Path, wanted: ExportOptions, stage: Callable[[str], None]) -> None:
    """Export ``subject`` into ``folder``, which is empty or not there. ``stage`` is told what is being done.

    Raises:
        UserError: it cannot be exported, with the reason; a package is missing; the memory that it takes is not there.
    """
    require(wanted.format)
    if subject.device.type != "cpu":
        raise UserError(f"strobe export traces on the CPU, but the policy is on {subject.device}: use --device=cpu")
    weights = 4 * numbers(subject.module.parameters())
    copies = ENGINE_COPY + (not is_float32(subject))  # with the policy's own in float32
    require_room(copies * weights, f"exporting {subject.info.name}", subject)
    undo = Precision("fp32").apply(subject)  # of a program in bfloat16, engines do not know every operator
    try:
        made = _save_model(subject, folder, wanted, stage)
        prompt = _prompt(subject, made, folder)
        shutil.copy(CARRIED / PROGRAM, folder / PROGRAM)
        (folder / MANIFEST).write_text(json.dumps(_manifest(subject, made, wanted, prompt)))
        seal(folder)
    except OSError as error:
        raise UserError(f"{error.filename or folder}: {error.strerror}") from error
    finally:
        undo()


def _save_model(subject: PolicySubject, folder: Path, wanted: ExportOptions, stage: Callable[[str], None]) -> Recording:
    """Write the model into ``folder``, and return one inference of ``subject``. Raises UserError, with the reason."""
    into = FORMATS[wanted.format]
    stage(f"exporting {subject.info.name}")
    made = record(subject)
    program = export_program(subject, made)
    more = range(1, CALIBRATION) if wanted.precision == "int8" else ()
    calls = [made.values, *(record(subject, index).values for index in more)]
    names = [*made.inputs, *(f"noise {number}" for number in range(len(made.noise)))]
    stage(f"converting it to {into.title}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch's code about torch's own
            folder.mkdir(parents=True, exist_ok=True)
            into.save(program, calls, names, folder / into.file)
    except Exception as error:
        with suppress(OSError):
            folder.rmdir()  # nothing was written
        if isinstance(error, torch.OutOfMemoryError | OSError):
            raise
        raise UserError(f"{into.title} cannot convert {subject.info.name}: {_reason(error)}") from error
    return made


def seal(folder: Path) -> None:
    """Write the digests of the folder's files into its manifest."""
    about = parse_json((folder / MANIFEST).read_text())
    about["files"] = {MANIFEST: export_digest(about)} | {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.iterdir())
        if file.is_file() and file.name not in (MANIFEST, README)
    }
    (folder / MANIFEST).write_text(json.dumps(about, indent=1) + "\n")


def write_readme(folder: Path, outcome: str) -> None:
    """Write the folder's README. ``outcome``: what the check of the export said, in sentences."""
    about = manifest(folder)
    inputs = "\n".join(f"| `{each['name']}` | {each['shape']} | {each['dtype']} |" for each in about["inputs"])
    into = FORMATS[about["format"]]
    needs = f"{into.runs_with} tokenizers" if about["prompt"] else into.runs_with
    _, actions, width = about["chunk"]
    text = f"""# {about["policy"]} in {into.title}

Runs without torch and without LeRobot: `pip install {needs}`, then

    from policy import Policy
    chunk = Policy().act(observation{', task="…"' if about["prompt"] else ""})

| input | shape | dtype |
|---|---|---|
{inputs}

Images are floats from 0 to 1, channels first, as LeRobot gives them. The answer is a chunk of {actions} actions with
{width} numbers each, in the robot's own units: both processors are in the model. It computes in
{about["precision"]}. Strobe {about["strobe"]} exported it from LeRobot {about["lerobot"]}.

## Does it act the same?

{outcome}

    strobe verify --exported=FOLDER --policy.path=POLICY --dataset.root=DATASET     checks it again
"""
    (folder / README).write_text(text)


def _manifest(subject: PolicySubject, made: Recording, wanted: ExportOptions, prompt: JsonObject | None) -> JsonObject:
    dtypes = {name: str(value.dtype).removeprefix("torch.") for name, value in made.inputs.items()}
    inputs = [{"name": n, "shape": list(v.shape), "dtype": dtypes[n]} for n, v in made.inputs.items()]
    into = FORMATS[wanted.format]
    return {
        "format": wanted.format,
        "model": into.file,
        "policy": subject.info.name,
        "precision": wanted.precision,
        "inputs": inputs,
        "noise": [{"kind": kind, "shape": list(drawn.shape)} for kind, drawn in made.noise],
        "prompt": prompt,
        "chunk": list(made.chunk.shape),
        "actions": list(subject.inputs.action_names or ()),
        "strobe": version("strobe-lab"),
        **{package: version(package) for package in ("lerobot", "torch", into.packages[0])},
    }


def _prompt(subject: PolicySubject, made: Recording, folder: Path) -> JsonObject | None:
    """Save the tokenizer, and return how a task becomes tokens; its ``tokenizer`` is None if it has no file."""
    step = split(subject).tokenizer
    if step is None or made.prompt is None:
        return None
    tokenizer = step.input_tokenizer
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        backend.save(str(folder / TOKENIZER))
    return {
        "tokenizer": TOKENIZER if backend is not None else None,
        **asdict(made.prompt),
        "length": step.max_length,
        "side": step.padding_side,
        "pad": int(getattr(tokenizer, "pad_token_id", 0) or 0),
    }


def _reason(error: Exception) -> str:
    summary = [line for line in str(error).splitlines() if "Conversion is failed" in line]
    return error_line(summary[0] if summary else error, 200).removeprefix("-- ")
