"""An export's folder that is damaged, and arrays that do not fit, are refused in a line. No engine is needed for it."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from strobe.core.errors import UserError
from strobe.export.carried import policy as carried
from strobe.export.exported import ExportedPolicy
from strobe.export.folder import seal

STATE, IMAGE = "observation.state", "observation.images.front"
STATE_IN_PROMPT = {"name": STATE, "offset": [0.0], "divisor": [1.0], "times": 1.0, "plus": 0.0, "bins": 256}
PROMPT = {"text": "{task}", "cleaned": True, "state": STATE_IN_PROMPT, "tokenizer": None, "length": 48}
FITTING = {STATE: np.zeros((1, 6), np.float32), IMAGE: np.ones((1, 3, 8, 8), np.float32)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with everything but a model that an engine could read."""
    shutil.copy(carried.__file__, tmp_path / "policy.py")
    (tmp_path / "policy.onnx").write_bytes(b"weights" * 100)
    inputs = [{"name": name, "shape": list(array.shape), "dtype": "float32"} for name, array in FITTING.items()]
    about = {
        "format": "onnx", "model": "policy.onnx", "policy": "act", "precision": "fp32", "inputs": inputs, "noise": [],
        "prompt": None, "chunk": [1, 4, 6], "files": dict.fromkeys(("export.json", "policy.py", "policy.onnx"), ""),
    }  # fmt: skip
    (tmp_path / "export.json").write_text(json.dumps(about))
    seal(tmp_path)
    return tmp_path


def load_echo_program(folder: Path) -> Any:
    """The folder's program with an engine that returns what it is given."""
    spec = importlib.util.spec_from_file_location("carried_by_export", folder / "policy.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.ENGINES = {"onnx": lambda *_: list}
    return module.Policy()


def say(folder: Path, **other: Any) -> None:
    """Change what the manifest says."""
    file = folder / "export.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | other))


def flip(file: Path) -> None:
    """Change one bit in the middle."""
    held = bytearray(file.read_bytes())
    held[len(held) // 2] ^= 1
    file.write_bytes(held)


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda folder: flip(folder / "policy.onnx"), "policy.onnx has changed"),
        (lambda folder: flip(folder / "policy.py"), "policy.py has changed"),
        (lambda folder: say(folder, chunk=[1, 4, 7]), "export.json has changed"),
        (lambda folder: (folder / "policy.onnx").unlink(), "policy.onnx cannot be read"),
        (lambda folder: (folder / "json.py").write_text(""), "json.py hides a module of Python's"),
        (lambda folder: (folder / "numpy").mkdir() or (folder / "numpy/__init__.py").touch(), "numpy hides a module"),
    ],
)
def test_the_damaged_file_is_named_before_anything_is_run(
    damage: Callable[[Path], None], named: str, folder: Path
) -> None:
    (folder / "my_robot.py").touch()
    (folder / "code").mkdir()
    ExportedPolicy(folder)
    load_echo_program(folder)
    damage(folder)
    with pytest.raises(UserError, match=named):
        ExportedPolicy(folder)
    if "policy.py" not in named:
        with pytest.raises(ValueError, match=named):
            load_echo_program(folder)


@pytest.mark.parametrize(
    "odd", [
        {"prompt": 5}, {"inputs": {}}, {"files": {"../outside": ""}}, {"precision": "int8"}, {"format": "torch"},
        {"files": {}}, {"noise": [{"kind": "normal", "shape": [10**6] * 2}]}, {"noise": [{"kind": [], "shape": [1]}]},
        {"prompt": PROMPT | {"length": 10**9}}, {"prompt": PROMPT | {"state": STATE_IN_PROMPT | {"bins": 10**12}}},
    ])  # fmt: skip
def test_odd_values_in_the_manifest_are_a_line(odd: dict[str, Any], folder: Path) -> None:
    say(folder, **odd)
    seal(folder) if "files" not in odd else None
    with pytest.raises(UserError, match=r"export\.json has an invalid value for|export the policy again"):
        ExportedPolicy(folder)


def test_a_prompt_of_the_usual_size_is_read_and_its_program_imports_nothing_beside_it(folder: Path) -> None:
    say(folder, prompt=PROMPT)
    seal(folder)
    ExportedPolicy(folder)
    (folder / "json.py").write_text("raise SystemExit('imported')")
    ran = subprocess.run([sys.executable, folder / "policy.py"], capture_output=True, text=True, check=False)
    assert "json.py hides a module of Python's that is needed" in ran.stderr.splitlines()[-1]


def test_what_an_export_may_do_is_not_taken_from_its_folder(folder: Path) -> None:
    say(folder, effect="lossy")
    seal(folder)
    assert ExportedPolicy(folder).effect == "exact"
    assert ExportedPolicy(folder, "lossy").effect == "lossy"  # of a recipe that the user names


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        (IMAGE, np.full((1, 3, 8, 8), 200, np.uint8), "is uint8, and the policy takes float32.*divide by 255"),
        (IMAGE, np.full((1, 3, 8, 8), 200, np.float32), "has 200 to 200.*divide by 255"),
        (IMAGE, np.full((1, 3, 8, 8), -0.9, np.float32), "has -0.9 to -0.9: images are from 0 to 1"),
        (STATE, np.full((1, 6), np.nan, np.float32), "has infinite values or NaN"),
        (STATE, np.full((1, 6), 1e300), "has infinite values or NaN"),  # beyond float32
        (STATE, np.zeros((1, 6), int), "is int64, and the policy takes float32"),
    ],
)
def test_numbers_of_another_kind_and_what_is_not_finite_are_refused(
    name: str, given: Any, said: str, folder: Path
) -> None:
    program = load_echo_program(folder)
    assert len(program.act(FITTING)) == 2
    with pytest.raises(ValueError, match=rf"^{name} {said}"):
        program.act({**FITTING, name: given})
