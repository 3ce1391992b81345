"""argparse for the commands that take runs rather than LeRobot's flags."""

from __future__ import annotations

import argparse
from typing import NoReturn

from strobe.errors import UserError


class Arguments(argparse.ArgumentParser):
    """argparse, with a wrong flag answered in one line."""

    def __init__(self, command: str, about: str | None) -> None:
        super().__init__(
            prog=f"strobe {command}",
            description=about,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; `{self.prog} --help` lists the flags")
