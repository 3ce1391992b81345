"""The device that a cell asks for, and the one that it is given where a cluster hands out one accelerator a cell."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

_FLAG = re.compile(r"^--(?:policy\.)?device=(.*)$")
_NUMBERED = re.compile(r"^(cuda|xpu):[1-9]\d*$")


def device_of(argv: Sequence[str]) -> str | None:
    """Return the device that a study's flags ask for; None where they leave it to the machine that runs them."""
    values = dict(flag.split("=", 1) for flag in argv if "=" in flag)
    asked = values.get("--policy.device") or values.get("--device") or ""
    if asked.lower() not in ("null", "none", ""):
        return asked
    if any(name in values for name in ("--model.type", "--model.path")):
        return "cpu"  # a backbone's default; a policy's is the best device that there is
    return _of_checkpoint(values.get("--policy.path"))


def on_the_one_device(argv: Sequence[str]) -> tuple[list[str], str | None]:
    """Return ``argv`` for a cell that sees one accelerator, and in words what was asked for where that was another."""
    found, words = [], None
    for flag in argv:
        match = _FLAG.match(flag)
        if match and _NUMBERED.match(match[1]):
            name, asked = flag.split("=", 1)
            kind = asked.split(":")[0]
            words = f"{flag} was asked for: the cluster gave this cell one device, which is {kind}:0 there"
            flag = f"{name}={kind}:0"
        found.append(flag)
    return found, words


def without_device(argv: Sequence[str]) -> list[str]:
    """Return ``argv`` without the device, which need not be there on the machine that only hands out the cells."""
    return [flag for flag in argv if not _FLAG.match(flag)]


def _of_checkpoint(path: str | None) -> str | None:
    """Return the device in the config of the checkpoint in folder ``path``: LeRobot keeps to it where it can."""
    try:
        return json.loads((Path(path or "") / "config.json").read_text())["device"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
