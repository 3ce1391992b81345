"""How a side of a comparison of environments is started: its interpreter, and its LeRobot."""

from __future__ import annotations

import contextlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from strobe.core.errors import UserError


@dataclass(frozen=True)
class SideOptions:
    """How a side is started.

    Args:
        python: of the environment; '' for this one.
        lerobot: a checkout of LeRobot to use in place of the installed one; '' for the installed one.
    """

    name: str
    python: str = ""
    lerobot: str = ""

    def check(self) -> None:
        """Raise UserError for an interpreter or a checkout that is not there."""
        if self.python and not (Path(self.python).is_file() and os.access(self.python, os.X_OK)):
            raise UserError(f"'{self.name}': python={self.python} is no interpreter that can be run")
        if self.lerobot:
            self.source()

    def source(self) -> Path:
        """Return the folder in the checkout that holds the package. Raises UserError."""
        for folder in (Path(self.lerobot) / "src", Path(self.lerobot)):
            if (folder / "lerobot" / "__init__.py").is_file():
                return folder.resolve()
        raise UserError(f"'{self.name}': lerobot={self.lerobot} holds no package 'lerobot', nor does its folder 'src'")

    @property
    def checkout(self) -> str:
        """The commit of the checkout, else its folder's name; '' for the installed LeRobot."""
        if not self.lerobot:
            return ""
        command = ["git", "-C", self.lerobot, "describe", "--always", "--dirty", "--exclude=*"]
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            described = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
            return described or Path(self.lerobot).name
        return Path(self.lerobot).resolve().name
