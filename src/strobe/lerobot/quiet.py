"""Keep what LeRobot does to its process from being seen or felt: prints, logs and warnings, and a thread's priority.

Warnings that matter are handed back.
"""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator

# Logged on every load; nothing that the user could act on.
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
    """Passes LeRobot's warning that torchcodec cannot be loaded once, cut from two hundred lines to one."""

    def __init__(self) -> None:
        super().__init__()
        self._passed = False

    def filter(self, record: logging.LogRecord) -> bool:
        if "torchcodec" not in record.getMessage():
            return True
        repeated, self._passed = self._passed, True
        record.msg, record.args = "torchcodec cannot be loaded here: videos are decoded by pyav", ()
        return not repeated


_DECODER = _Decoder()


def shorten_warnings() -> None:
    """Cut LeRobot's warnings of hundreds of lines to one line each. Idempotent."""
    logging.getLogger("lerobot.utils.import_utils").addFilter(_DECODER)


@contextlib.contextmanager
def root_logger_restored() -> Iterator[None]:
    """Take off what LeRobot's commands put on the root logger: it would write into what runs after them."""
    handlers, level = logging.root.handlers[:], logging.root.level
    try:
        yield
    finally:
        logging.root.handlers[:] = handlers
        logging.root.setLevel(level)


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
    """Print and log nothing while open. Yields the list of warnings, one line each, which fills as they come.

    Direct writes to the terminal still show, such as our own progress and the Hub's downloads.
    """
    root = logging.getLogger()
    libraries = [logging.getLogger(name) for name in ("transformers", "diffusers", "datasets", "huggingface_hub")]
    collector = _Collector()
    before = [(logger, logger.handlers[:], logger.propagate) for logger in (root, *libraries)]
    root.handlers = [collector]
    for logger in libraries:
        logger.handlers, logger.propagate = [logging.NullHandler()], False
    try:
        # Not by replacing builtins.print: numba, which LIBERO imports, would store the replacement.
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.showwarning = lambda *_, **__: None  # for libraries that turn their own warnings on again
            yield collector.notes
    finally:
        for logger, handlers, propagate in before:
            logger.handlers, logger.propagate = handlers, propagate


@contextlib.contextmanager
def muted_stderr() -> Iterator[None]:
    """Drop writes to standard error while open: video encoders and compilers know no logger."""
    stderr, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nowhere)


# If it may (as root, or in a container with SYS_NICE), the encoder SVT-AV1 makes the thread that opens it real-time,
# with the highest priority there is (SCHED_FIFO, 99), and leaves it so. From then on whatever that thread does or
# starts starves all else on the machine: a loop that waits for an answer keeps the answering thread off its core.

_SCHEDULERS = {
    getattr(os, name): name
    for name in ("SCHED_OTHER", "SCHED_BATCH", "SCHED_IDLE", "SCHED_FIFO", "SCHED_RR", "SCHED_DEADLINE")
    if hasattr(os, name)
}
REAL_TIME = ("SCHED_FIFO", "SCHED_RR", "SCHED_DEADLINE")


def scheduling() -> tuple[str, int] | None:
    """Return the calling thread's scheduling policy and real-time priority; None on systems that do not report them."""
    if not hasattr(os, "sched_getscheduler"):
        return None
    number = os.sched_getscheduler(0) & ~getattr(os, "SCHED_RESET_ON_FORK", 0)
    return _SCHEDULERS.get(number, f"SCHED_{number}"), os.sched_getparam(0).sched_priority


@contextlib.contextmanager
def priority_restored() -> Iterator[None]:
    """Restore the calling thread's scheduling policy and priority at the end, on systems that have them."""
    if not hasattr(os, "sched_getscheduler"):
        yield
        return
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        yield
    finally:
        if os.sched_getscheduler(0) != policy:
            os.sched_setscheduler(0, policy, parameters)
