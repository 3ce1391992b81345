"""LeRobot's policies on the command line, and the records of their families."""

from __future__ import annotations

from strobe.core.cli.groups import PROVE, UNDERSTAND
from strobe.core.slices import Command, Slice

SLICE = Slice(
    commands=(
        Command(
            "breakdown",
            UNDERSTAND,
            "parts of inference, of a training forward pass, of a training step, in milliseconds",
            "strobe.lerobot.commands.breakdown",
        ),
        Command(
            "compare",
            UNDERSTAND,
            "variants of one policy, alternating: RTC on/off, compiled, other precision, other settings",
            "strobe.lerobot.commands.compare",
        ),
        Command(
            "verify",
            PROVE,
            "a policy with and without a recipe: the whole check without timing; a CI gate",
            "strobe.lerobot.commands.verify",
        ),
    ),
    families=("strobe.lerobot.families",),
    offers={
        "help on subjects": "strobe.lerobot.flags.help:subject_help",
        "imports": "strobe.lerobot.versions:prepare_imports",
        "module of another project": "strobe.lerobot.other_projects:module_of_other_project",
        "policy of another project": "strobe.lerobot.other_projects:policy_of_other_project",
        "others' refusals": "strobe.lerobot.refusals:of_others",
    },
)
