"""Flags of the scripts that people come from: each is answered with the flag that says the same here."""

from __future__ import annotations

import shlex

import pytest
from support.checks.approval import APPROVED, approve

from strobe.core.cli.help import help_text
from strobe.core.errors import UserError
from strobe.core.slices import commands, load
from strobe.lerobot.flags import former_flags
from strobe.lerobot.flags.argument_names import has_flag

PI05 = ("--policy.type=pi05", "--policy.size=tiny")
SMOLVLA = ("--policy.type=smolvla", "--policy.size=tiny")
VJEPA2 = ("--model.type=vjepa2", "--model.size=tiny")
LIBERO = (*PI05, "--env.type=libero")
ARM = ("--", "--robot.type=so100_follower", "--policy.path=folder")
TRAINED = ("--", "--policy.type=diffusion", "--dataset.repo_id=me/data")

# Old spelling, the command with its other arguments, words of the hint. LeRobot's flags come after the --. More of them
# are in old-spellings.txt.
SPELLINGS: list[tuple[str, tuple[str, ...], str]] = [
    # profile_rtc_comparison.py, profile_pi0_rtc_detailed.py
    ("--policy-path=folder", ("breakdown",), "--policy.path"),
    ("--policy_path=folder", ("evaluate",), "--policy.path"),
    ("--execution_horizon=20", ("rollout",), "--inference.rtc.execution_horizon after the --"),
    ("--warmup_iterations=10", ("evaluate", *LIBERO), "not needed: the warm-up is found"),
    # eval_with_real_robot_profiled.py
    ("--policy.path=folder", ("rollout",), "put it after the --"),
    ("--robot.port=/dev/ttyACM0", ("rehearse",), "put it after the --"),
    ("--rtc.execution_horizon=20", ("rehearse", *ARM), "--inference.rtc.execution_horizon"),
    # profile_vjepa2.py
    ("--img-size=256", ("breakdown", *PI05), "--image_size"),
    ("--hidden_size=64", ("breakdown", *VJEPA2), "--model.hidden_size"),
    ("--skip-detailed", ("verify", *VJEPA2), "timing or calls"),
    # profile_train.py, profile_detailed.py, profile_dataloader.py
    ("--dataset.root=data", ("dataloader",), "put it after the --"),
    ("--policy.type=diffusion", ("dataloader",), "put it after the --"),
    ("--num_workers=4", ("dataloader",), "--workers for the numbers to try; the training's own comes after the --"),
    ("--num_workers=4", ("breakdown", *PI05), "strobe dataloader"),
    ("--batch_size=256", ("dataloader",), "--batch_sizes"),
    ("--prefetch_factor=4", ("dataloader",), "--prefetch for the factors"),
    ("--pin_memory=true", ("train",), "strobe dataloader"),
    ("--use_amp=true", ("train",), "--policy.use_amp after the --"),
    ("--use_amp=true", ("compare", *PI05), "--levers=amp"),
    ("--depth=2", ("train", *TRAINED), "it is Strobe's, put it before the --"),
    # a field without its prefix
    ("--repo_id=me/data", ("breakdown", *PI05), "--dataset.repo_id"),
]


@pytest.mark.parametrize(
    ("spelling", "command", "says"), SPELLINGS, ids=[f"{name} in {command[0]}" for name, command, _ in SPELLINGS]
)
def test_an_old_spelling_is_answered_with_the_flag_that_is_meant(
    spelling: str, command: tuple[str, ...], says: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.argv", ["strobe"])
    name, *given = command
    with pytest.raises(UserError) as refused:
        load(commands()[name].module).run([*given, spelling])
    assert says in str(refused.value)
    assert "see --help" not in str(refused.value)


def test_each_hint_of_the_table_names_flags_that_there_are():
    """A flag that is renamed leaves no hint to its old name."""
    texts = {}
    for command in ("breakdown", "compare", "dataloader", "evaluate", "optimize", "record", "sweep", "tune", "verify"):
        module = load(commands()[command].module)
        config = getattr(module, f"{command.capitalize()}Config")
        texts[command] = help_text("", config) + " --policy. --model. --rtc. --env. --eval.n_episodes "
    ours = "\n".join(texts.values())
    for row in former_flags.ROWS.values():
        for flag, _ in row:
            name = flag.removeprefix(former_flags.THEIRS).partition("=")[0]
            of_strobe = not flag.startswith(former_flags.THEIRS) and (
                name in ours or f"{name.partition('.')[0]}." in ours
            )
            theirs = [has_flag(command, name) for command in ("lerobot-train", "lerobot-rollout")]
            assert not flag or of_strobe or any(theirs), flag


def test_the_answers_to_old_spellings_are_those_that_a_person_read(monkeypatch: pytest.MonkeyPatch):
    """As users of the five kits, of LeRobot, openpi and Isaac-GR00T type them. A new one is a line of the file."""
    monkeypatch.setattr("sys.argv", ["strobe"])
    file = APPROVED / "cli" / "old-spellings.txt"
    typed = [line for line in file.read_text().splitlines() if line.startswith("strobe ")]
    assert len(typed) >= 25
    lines: list[str] = []
    for line in typed:
        _, name, *given = shlex.split(line)
        with pytest.raises(UserError) as refused:
            load(commands()[name].module).run(given)
        lines += [line, f"    {refused.value}", ""]
    approve("\n".join(lines), file)
