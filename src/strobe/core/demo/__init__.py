"""The policy that comes with Strobe: a small trained ACT that presses MetaWorld's button, called ``demo``.

``scripts/demo.py`` records its episodes and trains it. It reads the hand's state and the button's position, so it needs
neither a GPU nor a network, and its simulator draws nothing: ``--env.type=metaworld_state``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

NAME = "demo"
CHECKPOINT = Path(__file__).parent / "checkpoint"
SIMULATOR = "--env.type=metaworld_state"  # its other fields have the demo's values by default
PLAY = ("evaluate", "tune")  # commands that ask for a simulator
_FLAGS = ("--policy.path", "--policy.pretrained_path", "--against.path")


def demo_folder(path: str | Path) -> str | Path:
    """Return the demo's folder for ``demo``, unless there is a folder of that name here; any other path unchanged."""
    return CHECKPOINT if str(path) == NAME and not Path(NAME).exists() else path


def spelt_out(command: str, arguments: Sequence[str]) -> list[str]:
    """Return a command's arguments with the demo's folder in place of its name, LeRobot's after ``--`` too.

    A command that plays episodes gets the demo's simulator where none is named.
    """
    made, before, found = [], "", False
    for argument in arguments:
        flag, equals, value = argument.partition("=")
        if equals and flag in _FLAGS:
            made.append(f"{flag}={demo_folder(value)}")
        elif equals and flag == "--policies":
            made.append(f"{flag}={','.join(str(demo_folder(each)) for each in value.split(','))}")
        else:
            made.append(str(demo_folder(argument)) if before in (*_FLAGS, "--policies") else argument)
        found |= made[-1] != argument
        before = argument
    if found and command in PLAY and not any(argument.startswith("--env.") for argument in made):
        at = made.index("--") if "--" in made else len(made)
        made.insert(at, SIMULATOR)
    return made


def restore_typed_name(value: Any) -> Any:
    """Return a text, or JSON data, with the demo's name in place of its folder: as the user typed it."""
    if isinstance(value, str):
        return value.replace(str(CHECKPOINT), NAME)
    if isinstance(value, dict):
        return {key: restore_typed_name(each) for key, each in value.items()}
    return [restore_typed_name(each) for each in value] if isinstance(value, list | tuple) else value
