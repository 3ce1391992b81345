"""The measuring commands on backbones: a run that ends in a report, and wrong input that ends in one line."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from support.checks.refusals import assert_refused
from support.checks.run_contents import load_stored
from support.suite.places import find_only_run

from strobe.core.cli.main import main
from strobe.core.results.answer import CompareResult
from strobe.core.runs import store
from strobe.sweep import cell_command as cell
from strobe.sweep import grid
from strobe.sweep.command import check_cells
from strobe.sweep.execute import Outcome
from strobe.sweep.table import tabulate

TINY = ["--model.type=vjepa2", "--model.size=tiny", "--iterations=8"]


def test_breakdown_of_a_backbone(tmp_path, capsys):
    assert (
        main(["breakdown", *TINY, "--batch_size=2", "--depth=2", "--operators", "--full", f"--output_dir={tmp_path}"])
        == 0
    )
    out = capsys.readouterr().out
    result = store.load(find_only_run(tmp_path))
    (measurement,) = result.measurements
    (blocks,) = measurement.blocks
    assert blocks.names == [f"block {index}" for index in range(6)]
    encoder = next(c for c in measurement.components if c.path == ["model", "encoder"])
    inside = [c for c in measurement.components if c.path[:2] == encoder.path and c.depth == 3]
    for index, whole in enumerate(encoder.values):
        assert sum(c.values[index] for c in inside) == pytest.approx(whole, abs=1e-3)
    assert measurement.traits.batch_size == 2
    assert measurement.traits.backbone.tokens == 72
    model: Any = result.config["model"]
    assert model["size"] == "tiny"
    assert {"attention", "MLP"} <= {c.name for c in measurement.components}
    for words in ("The 6 blocks in the encoder take", "clips/s", "frames/s", "Average", "Spread", "patch embedding"):
        assert words in out
    assert "chunks/s" not in out
    rate = 1000 / measurement.samples.summary.mean
    assert f"{2 * rate:,.2f}" in out
    assert f"{8 * rate:,.2f}" in out


def test_slowest_blocks_are_named_only_where_they_differ(tmp_path, capsys):
    main(["breakdown", *TINY, "--skip_counting", f"--output_dir={tmp_path}"])
    folder = find_only_run(tmp_path)
    for differ in (True, False):
        result = store.load(folder)
        result.measurements[0].blocks[0].differ = differ
        store.save(result, folder)
        capsys.readouterr()
        assert main(["report", str(folder), "--full"]) == 0
        out = capsys.readouterr().out
        assert ("SLOWEST BLOCKS" in out) == differ
        assert ("these samples show no difference between the blocks" in out) != differ


@pytest.mark.slow("torch.compile of a backbone")
def test_compare_a_backbone_eager_and_compiled(tmp_path):
    # A small graph, since compiling takes its time.
    small = ["--model.type=vit", "--model.size=tiny", "--model.num_hidden_layers=2", "--iterations=6"]
    assert main(["compare", *small, "--compile", "--skip_counting", f"--output_dir={tmp_path}"]) == 0
    result = load_stored(CompareResult, find_only_run(tmp_path))
    assert [m.name for m in result.measurements] == ["baseline", "baseline, compiled"]
    assert result.comparisons[0].agreement.cosine == pytest.approx(1, abs=1e-4)
    assert len(result.measurement("baseline").blocks) == 1
    assert "block 1" in result.measurement("baseline, compiled").unseen


def test_cells_of_a_sweep_count_clips(tmp_path):
    flags = [*TINY, "--skip_counting", "--batch_size=2"]
    cells = grid.cells("breakdown", flags, {"model.num_frames": ["2", "4"]})
    assert grid.swept_subject(cells) == "vjepa2"
    assert grid.grid_axes(cells)[0].unit == "frames"
    found = {}
    for one in cells:
        cell.keep(tmp_path / one.key, "breakdown", list(one.argv))
        done = Outcome(status="done", reason="", started=datetime.now(UTC), duration_s=1.0)
        found[one.key, 1] = done, store.load(tmp_path / one.key)
    rows = [row for one in tabulate(cells, 1, found, {})[0] for row in one.rows]
    assert [row.batch for row in rows] == [2, 2]
    assert all(row.throughput == pytest.approx(2e3 / row.ms.median) for row in rows)


def test_a_sweep_refuses_cells_before_it_runs_any():
    cells = grid.cells("breakdown", ["--model.type=vjepa2"], {"model.size": ["tiny", "small"]})
    assert list(check_cells("breakdown", cells)[0]) == [cells[1].key]


WRONG = {
    "both families": (["breakdown", *TINY, "--policy.type=act"], "exclude each other"),
    "type and path": (["breakdown", *TINY, "--model.path=x"], "exclude each other"),
    "neither": (["breakdown", "--model.size=tiny"], "--model.type=vjepa2"),
    "unknown model flag": (["breakdown", "--model.type=vjepa2", "--model.sice=tiny"], "did you mean '--model.size'"),
    "unknown flag": (["breakdown", *TINY, "--iteratons=3"], "did you mean --iterations"),
    "frames of a word": (["breakdown", *TINY, "--model.num_frames=many"], "whole number"),
    "image of odd size": (["breakdown", *TINY, "--model.img_size=250"], "take 240 or 256"),
    "dtype": (["breakdown", *TINY, "--model.dtype=fp16"], "float16"),
    "training": (["breakdown", *TINY, "--phases=[training step]"], "it can run inference"),
    "RTC": (["breakdown", *TINY, "--rtc.execution_horizon=8"], "--rtc is for policies"),
    "environment": (["breakdown", *TINY, "--env.type=pusht"], "--env is for policies"),
    "nothing to compare": (["compare", *TINY], "--compile"),
    "policy settings": (["compare", *TINY, "--variant", "a: policy.num_steps=5"], "not a policy"),
    "missing folder": (["breakdown", "--model.path=/no/such/model"], "/no/such/model"),
    "missing video": (["breakdown", *TINY, "--input.video=/no/such.mp4"], "/no/such.mp4"),
    "video for a policy": (["breakdown", "--policy.type=act", "--input.video=a.mp4"], "--input.video is for models"),
    "two inputs": (["breakdown", *TINY, "--input.video=a.mp4", "--dataset.root=b"], "not both"),
    "device": (["breakdown", *TINY, "--device=xpu"], "xpu"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_one_line_and_code_2(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    argv, words = WRONG[name]
    assert_refused(argv, words, capsys, tmp_path)
