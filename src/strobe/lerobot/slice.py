"""The records of LeRobot's families, and what the core asks of whoever knows LeRobot."""

from __future__ import annotations

from strobe.core.slices import Slice

SLICE = Slice(
    families=("strobe.lerobot.families",),
    offers={
        "flags of other tools": "strobe.lerobot.flags.argument_names:find_former_flag",
        "imports": "strobe.lerobot.versions:prepare_imports",
        "module of another project": "strobe.lerobot.other_projects:module_of_other_project",
        "policy of another project": "strobe.lerobot.other_projects:policy_of_other_project",
        "scripts of other tools": "strobe.lerobot.flags.former_flags:find_script",
        "others' refusals": "strobe.lerobot.refusals:outside_error_line",
    },
)
