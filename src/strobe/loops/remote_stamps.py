"""Times that a watched policy server sends along with its answers: where a round trip went.

They are in gRPC's trailing metadata, which an unwatched client never looks at.

A server's times are nanoseconds of its own clock. Where both run on one machine, since one start of it, that is the
client's clock as well.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from strobe.errors import UserError, install
from strobe.lerobot.flags import joined

STAMPS, BOOT = "strobe-stamps", "strobe-boot"  # keys of the metadata

# Decisions of the server on an observation, by number.
KEPT, REPLACED, PREDICTED, SIMILAR = range(4)


def boot() -> str:
    """Return a name for this start of this machine; '' where there is none to be had."""
    with contextlib.suppress(OSError):
        return hashlib.sha256(Path("/proc/sys/kernel/random/boot_id").read_bytes()).hexdigest()[:16]
    return ""


def send(context: Any, stamps: list[int]) -> None:
    """Add ``stamps`` to the answer of a gRPC handler, whose ``context`` this is. Never raises."""
    with contextlib.suppress(Exception):
        context.set_trailing_metadata(((STAMPS, json.dumps(stamps)), (BOOT, boot())))


def received(call: Any) -> tuple[list[int] | None, str]:
    """Return the stamps of a finished gRPC call, None without any, and the server's `boot`. Never raises."""
    with contextlib.suppress(Exception):
        metadata = dict(call.trailing_metadata() or ())
        if STAMPS in metadata:
            return [int(stamp) for stamp in json.loads(metadata[STAMPS])], str(metadata.get(BOOT, ""))
    return None, ""


def key_of(timestamp: float) -> int:
    """Return the name of an observation: its time, which comes back with its first action."""
    return round(timestamp * 1e6)


def arguments_of(command: str, argv: Sequence[str]) -> list[str]:
    """Return ``argv`` as ``--a=1``. Raises UserError for help, a rate of 0, and where gRPC is not installed."""
    require_grpc()
    arguments = joined(argv, command)
    if "--help=true" in arguments:
        raise UserError(
            f"`python -m lerobot.async_inference.{command} --help` lists its flags; Strobe's own stand before the --"
        )
    if any(re.fullmatch(r"--fps=[-+]?0*\.?0*", argument) for argument in arguments):  # LeRobot divides by it
        raise UserError("--fps must be above 0")
    return arguments


def require_grpc() -> None:
    """Raises UserError where gRPC is not installed."""
    try:
        import grpc  # noqa: F401
    except ImportError:
        raise UserError(f"remote inference needs gRPC: {install('remote')}") from None
