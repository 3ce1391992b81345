"""strobe compare in several precisions."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.checks.refusals import assert_refused
from support.checks.run_contents import load_stored

from strobe.core.cli.main import main
from strobe.core.results.answer import CompareResult

TINY = ["compare", "--policy.type=act", "--policy.size=tiny", "--iterations=6", "--seconds=20"]


def load_only_answer(folder: Path):
    (found,) = [path.parent for path in folder.rglob("result.json")]
    return load_stored(CompareResult, found)


@pytest.mark.slow("three dtypes in turn")
def test_precisions_side_by_side(tmp_path, capsys):
    assert main([*TINY, "--precision", "auto", "--full", f"--output_dir={tmp_path}"]) == 0
    result = load_only_answer(tmp_path)
    assert [m.name for m in result.measurements] == ["fp32", "bf16"]
    full, half = result.measurements
    assert [m.traits.treatment("precision").value for m in (full, half)] == ["fp32", "bf16"]
    assert half.memory.weights * 2 == full.memory.weights
    assert 0.999 < result.comparisons[0].agreement.cosine < 1
    assert {"float32", "bfloat16"} <= set(result.machine.ceiling.gflops)
    assert {c.name for c in half.components} == {c.name for c in full.components}
    assert "bf16 vs fp32" in capsys.readouterr().out


@pytest.mark.slow("casts of one part, from flags to report")
def test_parts_of_it(tmp_path):
    half = "precision=bf16, precision.part=model.backbone"
    variants = ["--variant", f"half vision: {half}"]
    variants += ["--variant", f"two formats: {half}, precision=fp16, precision.part=model.encoder"]
    assert main([*TINY, "--skip_counting", *variants, f"--output_dir={tmp_path}"]) == 0
    result = load_only_answer(tmp_path)
    assert [m.name for m in result.measurements] == ["baseline", "half vision", "two formats"]
    assert result.measurements[1].traits.labelled_values()["precision.part"] == "model.backbone"
    assert result.measurements[2].traits.labelled_values()["precision"] == "bf16, fp16"
    assert result.measurements[2].traits.labelled_values()["precision.part"] == "model.backbone, model.encoder"
    assert all(comparison.agreement.cosine > 0.999 for comparison in result.comparisons)


WRONG = {
    "the old meaning": (["--precision=0.02"], "the width to stop at is --interval=0.02"),
    "twice": (["--precision=bf16,bfloat16"], "each precision once"),
    "no such part": (["--variant", "a: precision=bf16, precision.part=model.bakbone"], "did you mean 'model.backbone'"),
    "part without precision": (["--variant", "a: precision.part=model.backbone"], "write precision="),
    "training step": (["--precision=fp32,bf16", "--phase=training step"], "compare 'training forward'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_in_one_line(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    argv, words = WRONG[name]
    assert_refused([*TINY, "--skip_counting", *argv], words, capsys, tmp_path)
