"""Figures in Weights & Biases (the real one, offline) and in Trackio."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.places import ROOT

from strobe.core.cli.main import main
from strobe.core.report.loggers import figures
from strobe.core.runs import store

EXAMPLES = ROOT / "docs" / "examples"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A ladder that was kept."""
    folder = tmp_path / "2026-11-22_optimize_act"
    folder.mkdir()
    shutil.copy(EXAMPLES / "optimize-act" / "result.json", folder)
    return folder


@pytest.fixture
def trackio(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """The calls that a trackio would get, which may not be installed here."""
    told: list[tuple[str, Any]] = []
    module = ModuleType("trackio")
    module.__spec__ = sys.__spec__
    module.init = lambda **given: told.append(("init", given))  # type: ignore[attr-defined]
    module.log = lambda given: told.append(("log", given))  # type: ignore[attr-defined]
    module.finish = lambda: told.append(("finish", None))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "trackio", module)
    return told


def test_wandb_offline_keeps_a_run(run, tmp_path, monkeypatch, capsys):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    assert main(["report", str(run), "--log=wandb", "--log.project=arms"]) == 0
    assert "logged   wandb, project arms: 2026-11-22_optimize_act" in capsys.readouterr().out
    assert list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))


def test_trackio_is_told_times_ratios_and_where_they_come_from(run, trackio):
    assert main(["report", str(run), "--log", "trackio"]) == 0
    (_, init), (_, logged), _ = trackio
    assert init["project"] == "strobe"
    assert init["name"] == "2026-11-22_optimize_act"
    assert init["config"]["type"] == "act"
    assert logged == figures(store.load(run))
    assert logged["step 4/median_ms"] == pytest.approx(41.74, abs=0.01)
    assert logged["step 4 vs baseline/ratio"] == pytest.approx(0.276, abs=0.001)


def test_a_space_of_trackio_is_passed_on_and_is_not_for_wandb(run, trackio, capsys):
    assert main(["report", str(run), "--log=trackio", "--log.space_id=me/arm"]) == 0
    assert trackio[0][1]["space_id"] == "me/arm"
    assert main(["report", str(run), "--log=wandb", "--log.space_id=me/arm"]) == 2
    assert "--log.space_id is Trackio's: it needs --log=trackio" in capsys.readouterr().err
    assert main(["report", str(run), "--log.space_id=me/arm"]) == 2
    assert "--log.space_id needs --log=trackio or --log=wandb" in capsys.readouterr().err


def test_what_the_tool_refuses_costs_a_line_and_not_the_run(run, trackio, monkeypatch, capsys):
    def refuse(**_: Any) -> None:
        raise OSError("no network\nhere")

    monkeypatch.setattr(sys.modules["trackio"], "init", refuse)
    assert main(["report", str(run), "--log=trackio"]) == 0
    assert "not logged in trackio: no network here; `strobe report RUN --log=trackio`" in capsys.readouterr().err
    flags = ["--log=trackio", "--log.project=arm", "--log.space_id=me/arm"]
    assert main(["report", str(run), *flags]) == 0
    assert f"`strobe report RUN {' '.join(flags)}` tries again" in capsys.readouterr().err
    assert (run / "report.html").is_file()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--log=wandbb"], "--log=wandbb: did you mean 'wandb'?"),
        (["--log"], "--log needs a value, such as --log=trackio"),
        (["--log.project=x"], "--log.project needs --log=trackio or --log=wandb"),
    ],
)
def test_wrong_input_is_a_line_before_anything_runs(flags, said, capsys):
    assert main(["breakdown", "--policy.type=act", *flags]) == 2
    assert said in capsys.readouterr().err


def test_a_tool_that_is_not_there_is_named(run, monkeypatch, capsys):
    monkeypatch.setattr("strobe.core.report.loggers.find_spec", lambda _: None)
    assert main(["report", str(run), "--log=trackio"]) == 2
    assert "--log=trackio needs a package: pip install trackio" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["record", "--root={new}"],
            "--log=trackio has nothing to log: strobe record only records a data set, and measures nothing",
        ),
        (["diff", "{run}", "{run}"], "the answer is not saved; --output_dir=FOLDER saves it"),
        (["report", "{runs}"], "contains several runs; name one of them"),
        (["report", "{run}", "--format=model-card"], "--format=model-card only writes a file"),
    ],
)
def test_what_keeps_nothing_says_that_it_logs_nothing(arguments, said, run, tmp_path, trackio, capsys):
    places = {"run": run, "runs": run.parent, "new": tmp_path / "new"}
    assert main([*(one.format(**places) for one in arguments), "--log=trackio"]) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert not shown.out
    assert not trackio
    assert not (tmp_path / "new").exists()


def test_a_difference_that_is_kept_is_logged(run, tmp_path, trackio):
    assert main(["diff", str(run), str(run), f"--output_dir={tmp_path / 'kept'}", "--log=trackio"]) == 0
    assert [name for name, _ in trackio] == ["init", "log", "finish"]
