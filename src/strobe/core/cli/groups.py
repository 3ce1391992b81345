"""The headings of `strobe --help`, and the order of the commands below each."""

from __future__ import annotations

from strobe.core.slices import Command, commands

START = "Start: can this machine be trusted?"
UNDERSTAND = "Understand: where does the time go?"
SPEED_UP = "Speed up: what makes it fast enough?"
PROVE = "Prove: does it act the same?"
ROBOT = "Robot: does it get its actions in time?"
DATA = "Data: does it come fast enough?"
SHARE = "Share: over settings, machines and people"
GROUPS = (START, UNDERSTAND, SPEED_UP, PROVE, ROBOT, DATA, SHARE)

# What comes first in its group; the others follow by name.
_FIRST = (
    "doctor", "breakdown", "compare", "train", "optimize", "budget", "batch", "verify", "evaluate", "tune", "trials",
    "diff", "preflight", "rollout", "rehearse", "replay", "dataloader", "report",
)  # fmt: skip


def grouped() -> dict[str, list[Command]]:
    """Return heading → its commands, in the order of help."""
    place = {name: number for number, name in enumerate(_FIRST)}
    ordered = sorted(commands().values(), key=lambda command: (place.get(command.name, len(place)), command.name))
    return {group: [command for command in ordered if command.group == group] for group in GROUPS}
