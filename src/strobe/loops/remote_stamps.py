"""Times that a watched policy server sends along with its answers: where a round trip went, or why there was none.

They are in gRPC's trailing metadata, which an unwatched client never looks at.

A server's times are nanoseconds of its own clock. Where both run on one machine, since one start of it, that is the
client's clock as well.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import linecache
import re
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from strobe.core.errors import UserError, install
from strobe.core.untrusted import parse_json
from strobe.lerobot.flags.lerobot_flags import join_flag_values

STAMPS, BOOT, FAILURE = "strobe-stamps", "strobe-boot", "strobe-failure"  # keys of the metadata
MOST = 300  # characters of an exception: gRPC limits its metadata to 8 KiB

# Decisions of the server on an observation, by number.
KEPT, REPLACED, PREDICTED, SIMILAR = range(4)


def boot() -> str:
    """Return a name for this start of this machine; an empty one if the system has no boot id."""
    with contextlib.suppress(OSError):
        return hashlib.sha256(Path("/proc/sys/kernel/random/boot_id").read_bytes()).hexdigest()[:16]
    return ""


def send(context: Any, values: Sequence[int | str], key: str = STAMPS) -> None:
    """Add stamps, or with `FAILURE` what failed, to the answer of a gRPC handler with ``context``. Never raises."""
    with contextlib.suppress(Exception):
        context.set_trailing_metadata(((key, json.dumps(list(values))), (BOOT, boot())))


def read_stamps(call: Any) -> tuple[list[int] | None, str]:
    """Return the stamps of a finished gRPC call, None without any, and the server's `boot`. Never raises."""
    with contextlib.suppress(Exception):
        metadata = dict(call.trailing_metadata() or ())
        if STAMPS in metadata:
            return [int(stamp) for stamp in parse_json(metadata[STAMPS])], str(metadata.get(BOOT, ""))
    return None, ""


def failure_received(call: Any) -> list[str] | None:
    """Return the `failure_of` that came with a finished gRPC call; None without one. Never raises."""
    with contextlib.suppress(Exception):
        metadata = dict(call.trailing_metadata() or ())
        if FAILURE in metadata:
            error, place, source = (str(text)[:MOST] for text in parse_json(metadata[FAILURE]))
            return [error, place, source]
    return None


def describe_failure(error: BaseException) -> list[str]:
    """Return an exception as a line, the function of LeRobot that raised it or called what did, and its line there.

    Where no function of LeRobot is in its traceback, the function is the innermost of all.
    """
    frames = list(traceback.walk_tb(error.__traceback__))
    of_lerobot = [pair for pair in frames if str(pair[0].f_globals.get("__name__", "")).startswith("lerobot")]
    kind = type(error).__name__
    words = " ".join(str(error).split())
    told = f"{kind}: {words}" if words else f"{kind}, without a message"
    if not frames:
        return [told[:MOST], "", ""]
    frame, number = (of_lerobot or frames)[-1]
    place = f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}, line {number}"
    return [told[:MOST], place[:MOST], linecache.getline(frame.f_code.co_filename, number).strip()[:MOST]]


def grpc_status(error: Exception) -> str | None:
    """Return gRPC's status with its details, such as 'UNAVAILABLE: no route'; None for a call that was cancelled."""
    code = getattr(error, "code", None)
    name = getattr(code() if callable(code) else None, "name", "")
    if not name or name == "CANCELLED":
        return None
    details = getattr(error, "details", None)
    words = " ".join(str((details() if callable(details) else "") or "").split())
    return (f"{name}: {words}" if words else name)[:MOST]


def observation_key(timestamp: float) -> int:
    """Return the name of an observation: its time, which comes back with its first action."""
    return round(timestamp * 1e6)


def parse_arguments(command: str, argv: Sequence[str]) -> list[str]:
    """Return ``argv`` as ``--a=1``. Raises UserError for help, a rate of 0, and where gRPC is not installed."""
    require_grpc()
    arguments = join_flag_values(argv, command)
    if "--help=true" in arguments:
        raise UserError(
            f"`python -m lerobot.async_inference.{command} --help` lists its flags; Strobe's own flags come before "
            "the --"
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
