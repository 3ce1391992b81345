"""Keep LeRobot's prints, logs and warnings off the screen, and hand back the warnings that matter."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator

# Said on every load and nothing the user could act on.
_CHATTER = (
    "Switching to",
    "auto-detected",
    "No accelerated backend",
    "Vision embedding key",
    "no-op",
    "features are parsed from an environment",
    "Skipping",
    "fast processor",
)


class _Decoder(logging.Filter):
    """Lets LeRobot's warning that torchcodec cannot be loaded through once, as a line: it has two hundred."""

    def __init__(self) -> None:
        super().__init__()
        self._told = False

    def filter(self, record: logging.LogRecord) -> bool:
        if "torchcodec" not in record.getMessage():
            return True
        told, self._told = self._told, True
        record.msg, record.args = "torchcodec cannot be loaded here: videos are decoded by pyav", ()
        return not told


_DECODER = _Decoder()


def shorten_warnings() -> None:
    """Let LeRobot warn in a line where it would in hundreds; asked for again, it changes nothing."""
    logging.getLogger("lerobot.utils.import_utils").addFilter(_DECODER)


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.notes: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        lines = record.getMessage().strip().splitlines()
        if lines and lines[0] not in self.notes and not any(part in lines[0] for part in _CHATTER):
            self.notes.append(lines[0])


@contextlib.contextmanager
def quiet() -> Iterator[list[str]]:
    """While open, nothing is printed or logged; yields the warnings, one line each, as they come.

    What is written to the terminal directly still shows, such as our own progress and the Hub's downloads.
    """
    root = logging.getLogger()
    libraries = [logging.getLogger(name) for name in ("transformers", "diffusers", "datasets", "huggingface_hub")]
    collector = _Collector()
    kept = [(logger, logger.handlers[:], logger.propagate) for logger in (root, *libraries)]
    root.handlers = [collector]
    for logger in libraries:
        logger.handlers, logger.propagate = [logging.NullHandler()], False
    try:
        # Not builtins.print: numba, which LIBERO imports, keeps the one that it finds.
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.showwarning = lambda *_, **__: None  # for those who turn their own warnings on again
            yield collector.notes
    finally:
        for logger, handlers, propagate in kept:
            logger.handlers, logger.propagate = handlers, propagate


@contextlib.contextmanager
def errors_alone() -> Iterator[None]:
    """While open, nothing below an error is logged."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def muted_stderr() -> Iterator[None]:
    """While open, what is written to standard error is dropped: video encoders and compilers know no logger."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
