"""A cluster's cells run on the device that they are given, one at a time on each, and say what was asked for."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from strobe.core.results.answer import BreakdownResult
from strobe.sweep import cell_command as cell
from strobe.sweep import command as sweep
from strobe.sweep import grid
from strobe.sweep.execute import ONE_DEVICE
from strobe_ray.fleet import device_resources

NODE = {"Resources": {"GPU": 4.0, "CPU": 32.0}}


def test_cells_on_accelerators_run_side_by_side_and_those_on_the_cpu_do_not():
    assert device_resources(NODE, {False}) == [{"num_gpus": 1, "num_cpus": 0}] * 4
    assert device_resources(NODE, {True}) == [{"num_cpus": 32.0}]  # accelerators may be somebody else's
    assert device_resources(NODE, {True, False}) == [{"num_gpus": 1, "num_cpus": 32.0}]
    assert device_resources({"Resources": {"CPU": 8.0}}, {False}) == [{"num_cpus": 8.0}]
    assert device_resources({"Resources": {"memory": 1.0}}, {True}) == []


@pytest.mark.parametrize(
    ("flags", "device"),
    [
        (["--policy.type=act", "--policy.device=cpu"], "cpu"),
        (["--policy.type=act", "--device=cuda:1"], "cuda:1"),
        (["--policy.type=act", "--policy.device=cuda", "--device=cpu"], "cuda"),
        (["--policy.type=act"], None),
        (["--policy.type=act", "--policy.device=null"], None),
        (["--model.type=vjepa2"], "cpu"),
        (["--model.type=vjepa2", "--device=cuda"], "cuda"),
    ],
)
def test_the_device_that_flags_ask_for(flags, device):
    assert grid.requested_device(flags) == device


def test_a_checkpoint_s_device_is_its_config_s(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"type": "act", "device": "cpu"}))
    assert grid.requested_device([f"--policy.path={tmp_path}"]) == "cpu"
    assert grid.requested_device([f"--policy.path={tmp_path / 'elsewhere'}"]) is None


@pytest.mark.parametrize("alone", [True, False])
def test_a_cell_with_one_card_runs_on_it_and_says_what_was_asked(monkeypatch, tmp_path, alone):
    seen = []
    result = BreakdownResult.model_construct(notes=[])
    command = SimpleNamespace(
        read=lambda argv: seen.append(list(argv)), study=lambda *_: SimpleNamespace(result=result, files={})
    )
    commands = []
    monkeypatch.setattr(cell.slices, "load", lambda _: command)
    monkeypatch.setattr("strobe.core.cli.runner.finish", lambda answer, line, started: commands.append(line))
    monkeypatch.setattr(cell.store, "save", lambda *_: None)
    if alone:
        monkeypatch.setenv(ONE_DEVICE, "1")
    asked = ["--policy.type=act", "--policy.device=cuda:1", "--batch_size=2"]
    cell.keep(tmp_path, "breakdown", asked)
    assert commands == [["breakdown", *asked]]
    if alone:
        assert seen == [["--policy.type=act", "--policy.device=cuda:0", "--batch_size=2"]]
        [note] = result.notes
        assert note.startswith("--policy.device=cuda:1 was asked for")
    else:  # a process that sees all cards
        assert seen == [asked]
        assert not result.notes


def test_a_driver_without_the_device_hands_out_cells_for_it():
    cells = grid.cells("breakdown", ["--policy.type=act", "--policy.device=cuda:7"], {"batch_size": ["8", "0"]})
    here, there = (sweep.check_cells("breakdown", cells, elsewhere=away)[0] for away in (False, True))
    assert len(here) == 2
    assert [why for why in there.values() if "cuda" in why] == []
    assert len(there) == 1  # what is wrong everywhere is still refused: a batch of none
