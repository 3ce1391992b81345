"""`make gpu`: an agenda of questions to a card, of which each runs once, within the time that there is."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.suite.scripts import load_script

AGENDA = """
[[experiment]]
name = "first"
question = "does it answer?"
seconds = 60
run = ["history --help"]

[[experiment]]
name = "second"
question = "does it fit?"
seconds = 600
run = ["breakdown --policy.type=act --policy.size=huge"]
quick = "--policy.size=tiny --iterations=2 --skip_counting"
"""


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    script = load_script("gpu")
    agenda = tmp_path / "agenda.toml"
    agenda.write_text(AGENDA)
    experiments = script.agenda
    monkeypatch.setattr(script, "agenda", lambda: experiments(agenda))
    return script


@pytest.fixture
def make(gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    def run(*flags: str) -> int:
        monkeypatch.setattr(sys, "argv", ["gpu.py", "--device=cpu", f"--output_dir={tmp_path / 'out'}", *flags])
        return gpu.main()

    return run


def test_each_command_of_the_agenda_is_strobes_and_runs_on_the_device_asked_for() -> None:
    script = load_script("gpu")
    experiments = script.agenda()
    assert len({each.name for each in experiments}) == len(experiments) > 10
    assert all(each.seconds <= 200 for each in experiments)
    for each in experiments:
        for text in each.run:
            for quick in (False, True):
                asked = script.argparse.Namespace(device="cuda:1", quick=quick)
                command = script.build_command(each, text, Path("data"), Path("out"), asked)
                assert any("cuda:1" in word for word in command) or text == "pytest"
                flags = [word.partition("=")[0] for word in command if "=" in word and word.startswith("--")]
                repeated = [
                    flag for flag in set(flags) if flags.count(flag) > 1 and flag not in ("--grid", "--variant")
                ]
                assert repeated == [] or "--" in command, command
                assert "huge" not in str(command)
        on_a_card, on_cpu = (
            str([script.build_command(each, text, Path("data"), Path("out"), asked) for text in each.run])
            for device in ("cuda", "cpu")
            for asked in [script.argparse.Namespace(device=device, quick=False)]
        )
        assert all(words in on_a_card and words not in on_cpu for words in each.on_cpu)
        assert "graph=" not in on_cpu
        assert "tf32=on" not in on_cpu


def test_an_experiment_that_does_not_fit_is_left_out_and_what_ran_does_not_run_again(
    make: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert make("--minutes=2", "--only=second") == 0
    assert "second: left out, 120 s remain of 600" in capsys.readouterr().out
    ran = {"first": {"outcome": "done", "seconds": 2, "day": "2026-11-26", "commit": "abc", "commands": ["strobe x"]}}
    (tmp_path / "out" / "agenda.json").write_text(json.dumps(ran))
    assert make("--minutes=2") == 0
    assert "first" not in capsys.readouterr().out.replace(str(tmp_path), "")
    assert make("--list") == 0
    assert "1 ahead, 10 minutes at most" in capsys.readouterr().out


@pytest.mark.slow("a real command runs to its bound")
def test_what_fails_is_said_and_kept_and_a_bound_interrupts(
    gpu: Any, make: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert make("--minutes=11", "--only=second") == 1
    assert "exit code" in capsys.readouterr().out
    kept = json.loads((tmp_path / "out" / "agenda.json").read_text())
    assert kept["second"]["outcome"].startswith("exit code")
    assert make("--minutes=11", "--only=second", "--quick") == 0
    kept = json.loads((tmp_path / "out" / "agenda.json").read_text())
    assert kept["second"]["outcome"] == "done"
    assert "act" in kept["second"]["answers"][0]
    assert list((tmp_path / "out" / "second").rglob("result.json"))
    with (tmp_path / "log").open("w") as log:
        sleeping = [sys.executable, "-c", "import time; time.sleep(60)"]
        assert gpu.run_bounded(sleeping, log, 0.1)[1] == "cut off"


def test_an_unknown_experiment_is_a_line(make: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        make("--only=third")
    assert "no experiment is called third" in capsys.readouterr().err


def test_the_answers_stand_in_the_page_once(gpu: Any, tmp_path: Path) -> None:
    page, card = tmp_path / "hardware.md", tmp_path / "hardware" / "h100"
    card.mkdir(parents=True)
    page.write_text("# Hardware\n")
    ran = {"outcome": "done", "seconds": 2, "day": "2026-11-26", "commit": "abc", "commands": ["strobe history"]}
    for answer in ("It is 5 ms.", "It is 4 ms."):
        (card / "agenda.json").write_text(json.dumps({"first": {**ran, "answers": [answer]}}))
        assert gpu.write_rows(page, tmp_path / "hardware") == 0
    text = page.read_text()
    assert "It is 5 ms." not in text
    assert "| does it answer? | It is 4 ms. (done, 2026-11-26, `abc`) | `strobe history` |" in text
