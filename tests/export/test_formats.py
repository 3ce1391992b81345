"""`strobe export --format`, `--precision` and `--recipe`: what is in the folder, and how it is judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.builders.exports import TINY, Exports
from support.checks.refusals import assert_refused

from strobe.export import formats
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import PolicyOptions

RUN = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from policy import Policy
np.save(sys.argv[3], Policy(threads=1).act(dict(np.load(sys.argv[2]))))
assert "torch" not in sys.modules
"""


@pytest.mark.slow("the export to ONNX")
def test_onnx_runs_without_torch_and_acts_the_same(exports: Exports, tmp_path: Path) -> None:
    for package in ("onnxruntime", "onnxscript"):
        pytest.importorskip(package, reason="needs the extra 'onnx'")
    export = exports("--policy.type=act", "--format=onnx")
    folder, answer = export.folder, export.answer
    assert (export.code, answer.outcome) == (0, "held")
    assert answer.checks[0].agreement.rms < 1e-4
    assert "pip install onnxruntime numpy" in (folder / "README.md").read_text()
    subject: Any = load_subject(PolicyOptions(type="act", size="tiny", overrides=["--device=cpu"]))
    observation = subject.observation(1)
    np.savez(tmp_path / "given.npz", **{name: v.numpy() for name, v in observation.items() if hasattr(v, "numpy")})
    files = [str(folder), str(tmp_path / "given.npz"), str(tmp_path / "chunk.npy")]
    subprocess.run([sys.executable, "-c", RUN, *files], check=True)
    chunk, wanted = np.load(tmp_path / "chunk.npy"), subject.chunk(1).numpy()
    assert np.abs(chunk - wanted).max() < 1e-3 * np.abs(wanted).max()


@pytest.mark.slow("a whole policy in 8 bits")
def test_int8_is_judged_as_what_changes_more_than_rounding(exports: Exports) -> None:
    pytest.importorskip("openvino", reason="needs the extra 'openvino'")
    export = exports("--policy.type=act", "--precision=int8")
    about = json.loads((export.folder / "export.json").read_text())
    assert about["precision"] == "int8"
    (check,) = export.answer.checks
    assert check.effect == "lossy"
    assert check.agreement.rms > 1e-4, "nothing was put in 8 bits"


@pytest.mark.slow("an export of a recipe")
def test_a_recipes_settings_go_in_and_the_rest_is_named(exports: Exports, tmp_path: Path) -> None:
    pytest.importorskip("openvino", reason="needs the extra 'openvino'")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("policy: diffusion\ntreatments:\n- policy.num_inference_steps: 1\n- channels_last: true\n")
    flags = ["--policy.type=diffusion", "--policy.noise_scheduler_type=DDIM", "--policy.num_inference_steps=2"]
    export = exports(*flags, f"--recipe={recipe}")
    (note,) = [note for note in export.answer.notes if "not in the export" in note]
    assert "channels_last" in note
    assert "num_inference_steps" not in note
    same, whole = export.answer.checks
    assert (same.effect, same.outcome) == ("exact", "held"), "it is not the policy with the recipe's settings"
    assert whole.effect == "lossy"
    assert whole.agreement.rms > 1e-3, "the export has the policy's own number of steps"


def test_executorch_is_written_outside_an_activated_environment_and_acts_the_same(
    exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its compiler of FlatBuffers is on PATH only in an environment that is activated."""
    pytest.importorskip("executorch", reason="needs the extra 'executorch'")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("FLATC_EXECUTABLE", raising=False)
    export = exports("--policy.type=act", "--format=executorch")
    assert (export.code, export.answer.outcome) == (0, "held")


def test_a_missing_package_is_named_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(formats.FORMATS["executorch"], "packages", ("no_such_package",))
    flags = ["--policy.type=act", *TINY, f"--to={tmp_path / 'export'}", "--format=executorch"]
    assert_refused(["export", *flags], "no_such_package", capsys, tmp_path)
    assert not (tmp_path / "export").exists()
