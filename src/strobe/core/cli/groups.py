"""The order of the commands below each heading of `strobe --help`."""

from __future__ import annotations

from strobe.core.slices import GROUPS, Command, commands

# What comes first in its group; the others follow by name.
_FIRST = (
    "doctor", "breakdown", "compare", "train", "optimize", "budget", "batch", "verify", "evaluate", "tune", "trials",
    "diff", "preflight", "rollout", "rehearse", "replay", "dataloader", "report",
)  # fmt: skip


def group_commands() -> dict[str, list[Command]]:
    """Return heading → its commands, in the order of help."""
    place = {name: number for number, name in enumerate(_FIRST)}
    ordered = sorted(commands().values(), key=lambda command: (place.get(command.name, len(place)), command.name))
    return {group: [command for command in ordered if command.group == group] for group in GROUPS}
