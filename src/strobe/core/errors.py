"""The one error type for a user's mistake: a wrong flag, a missing folder, an extra that is not installed."""

from __future__ import annotations

import difflib
import errno
import os
import re
from collections.abc import Iterable
from pathlib import Path

_WORDS = re.compile(r"[-_.]")  # between the words of a name
DISTRIBUTION = "strobe-lab"  # the package's name where it is installed from; a stranger has "strobe"


class UserError(Exception):
    """Something the user can put right. The command line prints it as one line and exits with code 2."""

    def __str__(self) -> str:
        """Return the line; a name of a file may be no UTF-8, and the line can be written all the same."""
        return legible(super().__str__())


def legible(text: str) -> str:
    r"""Return a text that can be written as UTF-8, with a ? for each part that cannot, such as names of some files.

    >>> legible("run \udcff")
    'run ?'
    """
    return text.encode(errors="replace").decode()


class NotKeptError(UserError):
    """An answer that was shown, or was to be shown, and could not be written: a full disk, a folder of another user."""


def os_error_reason(error: OSError) -> str:
    """The system's reason for refusing, such as 'no space left on device'."""
    return os.strerror(error.errno).lower() if error.errno else str(error)


def is_full(error: OSError) -> bool:
    """Return whether a disk or its quota is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def make_not_kept_error(what: str, flag: str, folder: Path, error: OSError) -> NotKeptError:
    """Return the error that the ``what``, a run or a sweep, cannot be saved in ``folder``, which ``flag`` names."""
    free = "free some or " if is_full(error) else ""
    return NotKeptError(
        f"cannot save the {what} in {folder}: {os_error_reason(error)}; {free}name another folder with {flag}"
    )


_CPP = re.compile(r"\.(cpp|cc|hpp|h):\d+:?\s*$|^FrontEnd API failed with \w+:\s*$")  # a place, and no reason


def error_line(error: object, most: int | None = None) -> str:
    r"""The words of an error of anybody's in one line of at most ``most`` characters; its type where it has none.

    Lines that name a place in C++, as OpenVINO's errors begin with, are left out where others say what is wrong.

    >>> error_line(ValueError("no\n  such layer"))
    'no such layer'
    >>> error_line(RuntimeError("Check 'res.ok' failed at src/model.cpp:219:\nIncorrect weights in bin file!\n"))
    'Incorrect weights in bin file!'
    """
    lines = str(error).splitlines()
    words = " ".join(line for line in lines if not _CPP.search(line)) if len(lines) > 1 else ""
    return " ".join((words if words.strip() else str(error)).split())[:most] or type(error).__name__


def nearest(name: str, valid: Iterable[str], *, many: int = 12) -> str:
    """Say what ``name`` may have meant: the nearest of ``valid``, else the list of them.

    >>> nearest("difusion", ["act", "diffusion"])
    "did you mean 'diffusion'?"
    """
    choices = sorted(valid)
    close = same_words(name, choices) or difflib.get_close_matches(name, choices, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"known: {', '.join(choices[:many])}{', …' if len(choices) > many else ''}"


def same_words(name: str, valid: Iterable[str]) -> list[str]:
    """Return those of ``valid`` that say ``name`` in the same words, all of them or what follows a dot.

    >>> same_words("--policy_path", ["--policy.path", "--env.path"])
    ['--policy.path']
    >>> same_words("--repo_id", ["--dataset.repo_id", "--dataset.root"])
    ['--dataset.repo_id']
    """
    words = _WORDS.sub("", name)
    choices = list(valid)
    return [choice for choice in choices if _WORDS.sub("", choice) == words] or [
        choice for choice in choices if "." in choice and _WORDS.sub("", choice.partition(".")[2]) == words
    ]


def install(extra: str) -> str:
    """How to install ``extra``: it is Strobe's where Strobe has one of that name, else LeRobot's."""
    from importlib import metadata

    try:
        ours = metadata.metadata(DISTRIBUTION).get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:  # it runs from a folder of sources
        ours = []
    return f"pip install '{DISTRIBUTION if extra in (*ours, 'lerobot') else 'lerobot'}[{extra}]'"
