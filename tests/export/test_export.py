"""`strobe export`: a policy in a folder runs without torch, acts as the policy does, and a changed one does not."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.builders.exports import TINY, Export, Exports, load_only_answer
from support.checks.refusals import assert_refused

pytest.importorskip("openvino", reason="needs the extra 'openvino'")

from strobe.core.cli.main import main
from strobe.core.errors import UserError
from strobe.core.treatments import room
from strobe.export.folder import seal
from strobe.export.whole import export_program, record
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import PolicyOptions

pytestmark = [pytest.mark.slow("whole policies are exported")]
WITHOUT_TORCH = """
import sys

class Refusing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("torch", "lerobot", "transformers", "strobe"):
            raise ImportError(f"{name} is not installed here")

sys.meta_path.insert(0, Refusing())
sys.path.insert(0, sys.argv[1])
import numpy as np
from policy import Policy
given = dict(np.load(sys.argv[2]))
np.save(sys.argv[3], Policy(threads=1).act(given))
"""


def test_no_traceback_of_an_engine_is_shown(act: Export) -> None:
    assert "Traceback" not in act.errors
    assert "WARNING" not in act.errors


def test_the_export_is_held_against_the_policy(act: Export) -> None:
    answer = act.answer
    assert (answer.outcome, answer.exported, answer.recipe) == ("held", "export", "")
    (check,) = answer.checks
    assert check.agreement is not None
    assert check.agreement.rms is not None
    assert check.agreement.rms < 1e-4
    assert check.agreement.observations >= 4
    readme = (act.folder / "README.md").read_text()
    assert "PASSED" in readme
    assert "`observation.state` | [1, 6] | float32" in readme


def test_its_program_runs_without_torch(act: Export, tmp_path: Path) -> None:
    subject: Any = load_subject(PolicyOptions(type="act", size="tiny", overrides=["--device=cpu"]))
    observation = subject.observation(1)
    arrays = {name: value.numpy() for name, value in observation.items() if hasattr(value, "numpy")}
    np.savez(tmp_path / "given.npz", **arrays)
    files = [str(act.folder), str(tmp_path / "given.npz"), str(tmp_path / "chunk.npy")]
    subprocess.run([sys.executable, "-c", WITHOUT_TORCH, *files], check=True)
    chunk, wanted = np.load(tmp_path / "chunk.npy"), subject.chunk(1).numpy()
    assert chunk.shape == wanted.shape == (1, 100, 6)
    assert np.abs(chunk - wanted).max() < 1e-3 * np.abs(wanted).max()


def scaled_actions(folder: Path) -> None:
    """All actions 1 % off."""
    edit_file(folder / "policy.py", "return self._run(", "return 1.01 * self._run(")


def other_numbers(folder: Path) -> None:
    """Another number in 4,000 bytes of 45 million."""
    weights = bytearray((folder / "policy.bin").read_bytes())
    np.frombuffer(weights, np.float32, count=1_000, offset=4 * (len(weights) // 8))[:] *= 1.5
    (folder / "policy.bin").write_bytes(weights)


def other_inputs(folder: Path) -> None:
    """The model's inputs are 0.1 % off."""
    cast = "array = np.ascontiguousarray(found, dtype)"
    edit_file(folder / "policy.py", cast, f"{cast} * np.float32(1.001)")


def edit_file(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("fault", "stage", "words"),
    [
        (scaled_actions, "chunk", "scaled and shifted"),
        (other_numbers, "chunk", "by 0.00"),
        (other_inputs, "inputs", "observation.images.front"),
    ],
)
def test_what_rounding_would_hide_is_found_with_its_stage(
    fault: Callable[[Path], None], stage: str, words: str, act: Export, tmp_path: Path
) -> None:
    """Each is within 0.02 σ, the limit of rounding, and was passed by it."""
    changed = tmp_path / "changed"
    shutil.copytree(act.folder, changed)
    fault(changed)
    seal(changed)
    flags = ["--policy.type=act", *TINY, f"--exported={changed}", f"--output_dir={tmp_path / 'runs'}"]
    assert main(["verify", *flags]) == 1
    answer = load_only_answer(tmp_path / "runs")
    assert (answer.outcome, answer.exported) == ("broken", "changed")
    (check,), (found,) = answer.checks, answer.passes
    assert check.agreement is not None
    assert check.agreement.rms is not None
    assert check.agreement.rms < 0.02
    assert found.first is not None
    assert found.first.stage == stage
    assert words in found.first.words


def test_an_observation_that_does_not_fit_is_named(act: Export) -> None:
    sys.path.insert(0, str(act.folder))
    try:
        from policy import Policy  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(act.folder))
        sys.modules.pop("policy", None)
    policy = Policy(threads=1)
    with pytest.raises(ValueError, match=r"lacks observation\.images\.front"):
        policy.act({"observation.state": np.zeros((1, 6), np.float32)})
    images = {f"observation.images.{name}": np.zeros((1, 3, 64, 64), np.float32) for name in ("front", "wrist")}
    with pytest.raises(ValueError, match=r"observation\.state is \[7\].*takes \[1, 6\]"):
        policy.act({**images, "observation.state": np.zeros(7, np.float32)})


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["export", "--policy.type=act"], "--to=FOLDER"),
        (["export", "--policy.type=act", "--to={full}"], "is not empty"),
        (["export", "--policy.type=act", "--to={new}", "--precision=int4"], "fp32, bf16, int8"),
        (["export", "--policy.type=act", "--to={new}", "--format=torch"], "openvino, onnx, executorch"),
        (["export", "--policy.type=act", "--to={new}", "--format=onnx", "--precision=bf16"], "onnx supports fp32"),
        (["export", "--model.type=vjepa2", "--to={new}"], "needs a policy of LeRobot"),
        (["verify", "--policy.type=act", "--exported={new}"], "has no export.json"),
    ],
)
def test_wrong_flags_are_a_line(argv: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").touch()
    filled = [argument.format(full=tmp_path / "full", new=tmp_path / "new") for argument in argv]
    (tmp_path / "empty").mkdir()
    assert_refused(filled, said, capsys, tmp_path / "empty")
    assert not (tmp_path / "new").exists()


def test_a_prompt_becomes_the_tokens_that_lerobot_makes(act: Export, tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = {"[UNK]": 0, "pick": 1, "up": 2, "the": 3, "cube": 4, "now": 5}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    folder = tmp_path / "prompted"
    shutil.copytree(act.folder, folder)
    made.save(str(folder / "tokenizer.json"))
    about = json.loads((folder / "export.json").read_text())
    made_so = {"text": "{task} now", "cleaned": False, "state": None}
    about["prompt"] = {"tokenizer": "tokenizer.json", **made_so, "length": 6, "side": "left", "pad": 9}
    (folder / "export.json").write_text(json.dumps(about))
    seal(folder)
    sys.path.insert(0, str(folder))
    try:
        from policy import Policy  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("policy", None)
    tokens = Policy(threads=1).tokens("pick up cube", {})
    assert tokens["observation.language.tokens"].tolist() == [[9, 9, 1, 2, 4, 5]]
    assert tokens["observation.language.attention_mask"].tolist() == [[False, False, True, True, True, True]]


def test_a_policy_that_does_not_fit_is_refused_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(room, "available_bytes", lambda: 10_000.0)
    assert_refused(
        ["export", "--policy.type=act", *TINY, f"--to={tmp_path / 'new'}"], "exporting act", capsys, tmp_path
    )


def test_numbers_that_change_before_the_tokens_are_refused() -> None:
    """The program begins after the tokens: a user would give it raw numbers, and the check normalised ones."""
    subject: Any = load_subject(PolicyOptions(type="smolvla", size="tiny", overrides=["--device=cpu", "--num_steps=1"]))
    steps = list(subject.preprocessor.steps)
    normalizer = next(step for step in steps if "Normalizer" in type(step).__name__)
    subject.preprocessor.steps = [normalizer, *(step for step in steps if step is not normalizer)]
    with pytest.raises(UserError, match=r"change observation\.state before they make tokens"):
        export_program(subject, record(subject))


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("flags", "draws"),
    [
        (["--policy.type=diffusion", "--policy.noise_scheduler_type=DDIM", "--policy.num_inference_steps=4"], 1),
        (["--policy.type=diffusion", "--policy.num_inference_steps=3"], 3),  # DDPM draws in each step but the last
        (["--policy.type=smolvla", "--policy.num_steps=2"], 1),
        (["--policy.type=pi05", "--policy.num_inference_steps=2"], 1),
    ],
)
def test_policies_with_noise_and_prompts(flags: list[str], draws: int, exports: Exports) -> None:
    export = exports(*flags)
    assert export.code == 0
    about = json.loads((export.folder / "export.json").read_text())
    assert [each["kind"] for each in about["noise"]] == ["normal"] * draws
