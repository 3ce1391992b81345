"""draccus and what it refuses: its flags of a config, and one line for whatever it raises."""

from __future__ import annotations

import contextlib
import functools
import io
import re
from collections.abc import Iterator
from typing import Any

from draccus.argparsing import ArgumentParser

from strobe.errors import UserError, in_a_line
from strobe.findings.thresholds import refusal_of_former
from strobe.lerobot.quiet import errors_alone


@functools.cache
def option_names(config_class: Any) -> frozenset[str]:
    """Every flag that draccus makes of a config class."""
    with errors_alone():
        parser = ArgumentParser(config_class)
    return frozenset(option for action in parser.parser._actions for option in action.option_strings)


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Raises UserError, a line, for whatever draccus and a config's own checks refuse inside."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors), errors_alone():
            yield
    except SystemExit:
        lines = [line for line in errors.getvalue().splitlines() if "error:" in line]
        raise UserError(lines[-1].split("error:", 1)[1].strip() if lines else "wrong arguments") from None
    except UserError:
        raise
    except Exception as error:  # draccus and the configs' own checks raise many kinds, all of them the user's input
        # What a config itself refused says more than draccus around it.
        cause = error.__cause__ if isinstance(error.__cause__, ValueError) else error
        refused = cause if str(error).startswith("Couldn't instantiate class") else error
        former = refusal_of_former(re.findall(r"\w+", str(refused))) if "for Thresholds" in str(refused) else ""
        raise UserError(former or one_line(refused)) from None


def one_line(error: BaseException) -> str:
    """An exception's message without its line breaks, cut where it grows long."""
    text = in_a_line(error)
    return text if len(text) <= 300 else f"{text[:300]}…"
