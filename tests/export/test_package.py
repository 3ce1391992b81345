"""`strobe verify --exported` of a policy package, which physicalai runs in a process of its own.

physicalai cannot be installed beside LeRobot, which needs another transformers; a stand-in loads its packages here.
"""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.exports import TINY, Export, load_only_answer
from support.places import TESTS
from support.refused import assert_refused

pytest.importorskip("openvino", reason="needs the extra 'openvino'")

from strobe.core.cli.main import main
from strobe.core.results.answer import CompareResult, VerifyResult
from strobe.core.runs import store
from strobe.export.folder import seal

pytestmark = [
    pytest.mark.slow("whole policies are exported"),
]
STAND_IN = TESTS / "support" / "physicalai_stand_in"
ACT = ["--policy.type=act", "--policy.size=tiny", "--device=cpu"]


@pytest.fixture
def package(act: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same model as a policy package, and a physicalai that finds it."""
    folder = tmp_path / "package"
    folder.mkdir()
    for name in ("policy.xml", "policy.bin"):
        shutil.copy(act.folder / name, folder / name)
    write(folder, {"artifacts": {"openvino": "policy.xml"}})
    monkeypatch.setenv("PYTHONPATH", str(STAND_IN), prepend=":")
    return folder


def write(folder: Path, model: dict[str, object]) -> None:
    about = {"format": "policy_package", "version": "1.0", "policy": {"name": "policy"}, "model": model}
    (folder / "manifest.json").write_text(json.dumps(about))


def new(folder: Path) -> Path:
    folder.mkdir()
    return folder


def run_verify(package: Path, runs: Path) -> tuple[int, VerifyResult]:
    code = main(["verify", "--policy.type=act", *TINY, f"--exported={package}", f"--output_dir={runs}"])
    return code, load_only_answer(runs)


def test_a_package_is_held_against_the_policy(package: Path, tmp_path: Path) -> None:
    code, answer = run_verify(package, tmp_path / "runs")
    assert (code, answer.outcome) == (0, "held")
    assert answer.checks[0].agreement.rms < 1e-4


def test_inputs_are_found_by_the_names_that_physicalai_gives_them(package: Path, act: Export, tmp_path: Path) -> None:
    inputs = [each["name"] for each in json.loads((act.folder / "export.json").read_text())["inputs"]]
    names = {
        "observation.state": "state",
        "observation.images.front": "images.observation.images.front",  # of a checkpoint of LeRobot
        "observation.images.wrist": "images.wrist",  # of its own training
    }
    features = [{"name": names[name]} for name in inputs]
    write(package, {"artifacts": {"openvino": "policy.xml"}, "input_features": features})
    code, answer = run_verify(package, tmp_path / "runs")
    assert (code, answer.outcome) == (0, "held")


def test_a_package_with_other_weights_breaks_the_guard(package: Path, tmp_path: Path) -> None:
    """As physicalai 0.3 makes it of a LeRobot 0.6 checkpoint, whose normalisation it does not find."""
    weights = bytearray((package / "policy.bin").read_bytes())
    middle = len(weights) // 2 // 4 * 4
    weights[middle : middle + 800_000] = bytes(800_000)
    (package / "policy.bin").write_bytes(weights)
    code, answer = run_verify(package, tmp_path / "runs")
    assert (code, answer.outcome) == (1, "broken")


def test_an_input_that_the_policy_does_not_have_is_named(
    package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(package, {"artifacts": {"openvino": "policy.xml"}, "input_features": [{"name": "images.chest"}]})
    flags = ["verify", "--policy.type=act", *TINY, f"--exported={package}"]
    assert_refused(flags, "needs 'images.chest'", capsys, new(tmp_path / "empty"))


@pytest.mark.skipif(find_spec("physicalai") is not None, reason="physicalai is installed here")
def test_without_physicalai_the_flag_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "package"
    folder.mkdir()
    write(folder, {"artifacts": {"openvino": "policy.xml"}})
    flags = ["verify", "--policy.type=act", *TINY, f"--exported={folder}"]
    assert_refused(flags, "--exported_python=PYTHON", capsys, new(tmp_path / "empty"))


def test_compare_takes_an_export_as_a_variant(act: Export, tmp_path: Path) -> None:
    flags = [*ACT, "--iterations=6", f"--variant=export: exported={act.folder}"]
    assert main(["compare", *flags, f"--output_dir={tmp_path / 'runs'}"]) == 0
    (found,) = (tmp_path / "runs").glob("*/result.json")
    answer = store.load(found.parent)
    assert isinstance(answer, CompareResult)
    (comparison,) = answer.comparisons
    assert (comparison.candidate, comparison.outcome) == ("export", "held")
    assert comparison.agreement.rms < 1e-4


def test_an_export_that_acts_otherwise_is_said_before_its_time(
    act: Export, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(act.folder, changed)
    program = (changed / "policy.py").read_text()
    (changed / "policy.py").write_text(program.replace("return self._run(", "return 1.01 * self._run("))
    seal(changed)
    flags = [*ACT, "--iterations=6", f"--variant=export: exported={changed}"]
    assert main(["compare", *flags, f"--output_dir={tmp_path / 'runs'}"]) == 1
    sentences = capsys.readouterr().out
    assert sentences.index("'export' does not act as 'baseline' does") < sentences.index("export is")


def test_nothing_goes_with_an_export_in_a_variant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["compare", *ACT, "--variant=both: exported=EXPORT, precision=bf16"]
    assert_refused(flags, "nothing goes with it", capsys, new(tmp_path / "empty"))
