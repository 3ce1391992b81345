"""Flags of the scripts that people come from: each is answered with the flag that says the same here."""

from __future__ import annotations

import shlex

from support.checks.approval import APPROVED, approve

from strobe.core.cli.help import help_text
from strobe.core.cli.main import main
from strobe.core.slices import commands, load
from strobe.lerobot.flags import former_flags
from strobe.lerobot.flags.argument_names import has_flag


def test_each_hint_of_the_table_names_flags_that_there_are():
    """A flag that is renamed leaves no hint to its old name."""
    texts = {}
    for command in ("breakdown", "compare", "dataloader", "evaluate", "optimize", "record", "sweep", "tune", "verify"):
        module = load(commands()[command].module)
        config = getattr(module, f"{command.capitalize()}Config")
        texts[command] = help_text("", config) + " --policy. --model. --rtc. --env. --eval.n_episodes "
    ours = "\n".join(texts.values())
    for row in former_flags.ROWS.values():
        for flag, *_ in row:
            name = flag.removeprefix(former_flags.THEIRS).partition("=")[0]
            of_strobe = not flag.startswith(former_flags.THEIRS) and (
                name in ours or f"{name.partition('.')[0]}." in ours
            )
            theirs = [has_flag(command, name) for command in ("lerobot-train", "lerobot-rollout")]
            assert not flag or of_strobe or any(theirs), flag


def test_the_answers_to_old_spellings_are_those_that_a_person_read(monkeypatch, capsys):
    """As users of the five kits, of LeRobot, openpi and Isaac-GR00T type them. A new one is a line of the file."""
    monkeypatch.setattr("sys.argv", ["strobe"])
    file = APPROVED / "cli" / "old-spellings.txt"
    typed = [line for line in file.read_text().splitlines() if line.startswith("strobe ")]
    assert len(typed) >= 25
    lines: list[str] = []
    for line in typed:
        assert main(shlex.split(line)[1:]) == 2
        lines += [line, f"    {capsys.readouterr().err.strip().removeprefix('strobe: ')}", ""]
    approve("\n".join(lines), file)
