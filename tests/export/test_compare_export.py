"""`strobe compare` with an export as a variant."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.builders.exports import Export
from support.checks.refusals import assert_refused

pytest.importorskip("openvino", reason="needs the extra 'openvino'")

from strobe.core.cli.main import main
from strobe.core.results.answer import CompareResult
from strobe.core.runs import store
from strobe.export.folder import seal

pytestmark = [pytest.mark.slow("whole policies are exported")]
ACT = ["--policy.type=act", "--policy.size=tiny", "--device=cpu"]


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
    assert sentences.index("`export` changes the actions too much") < sentences.index("less time per")


def test_nothing_goes_with_an_export_in_a_variant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["compare", *ACT, "--variant=both: exported=EXPORT, precision=bf16"]
    assert_refused(flags, "nothing goes with it", capsys, tmp_path)
