"""argparse for the commands that take runs rather than LeRobot's flags, and the types of their flags."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
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


def page_flag(parser: argparse.ArgumentParser) -> None:
    """``--output`` of the commands whose answer is not kept in a run's folder."""
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="also write a page there: .html, or .md for Markdown"
    )


def levels(text: str) -> int:
    """A depth of trees, from 1 up."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of levels, such as 2")
    return int(text)


def percent(text: str) -> float:
    """A percentage of zero or more; the sign may be there."""
    value = _number(text.removesuffix("%"))
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a percentage, such as 5")
    return value


def share(text: str) -> float:
    """A share between 0 and 1, without the two."""
    value = _number(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a share between 0 and 1, such as 0.95")
    return value


def rate(text: str) -> float:
    """A rate above zero, in Hz."""
    value = _number(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a rate in Hz, such as 20")
    return value


def _number(text: str) -> float:
    """A finite number; NaN for anything else, which no comparison lets through."""
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def keep_flag(parser: argparse.ArgumentParser) -> None:
    """Add ``--output-dir``, of the commands whose answer is kept only where that is asked for."""
    parser.add_argument(
        "--output-dir", "--output_dir", type=Path, metavar="DIR", help="also keep it there, in a run folder of its own"
    )
