"""From an address to a connection: ws:// is openpi's server, tcp:// is GR00T's, grpc:// is LeRobot's.

The client of GR00T's server is in strobe-zoo, which names it by an entry point in `GROUP`.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from strobe.core.errors import UserError, error_line, install
from strobe.servers.protocols.lerobot_messages import ServedPolicy
from strobe.servers.results import ADDRESSES

if TYPE_CHECKING:
    from strobe.servers.protocols.wire import Wire

EXAMPLE = f"write {', '.join(f'{url} ({name})' for name, url in ADDRESSES.items())}"
GROUP = "strobe.protocols"
_SCHEMES = ("ws", "wss", "grpc", "tcp")


def check_url(url: str, flag: str = "--policy.server") -> str:
    """Return the scheme of ``url``. Raises UserError for an address that is no SCHEME://HOST:PORT of a known scheme."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UserError(f"{flag}={url}: {error_line(error, 120)}; {EXAMPLE}") from None
    if parts.scheme not in _SCHEMES:
        raise UserError(f"{flag}={url}: Strobe knows no such protocol; {EXAMPLE}")
    if not parts.hostname or port == 0 or (port is None and parts.scheme in ("tcp", "grpc")):
        raise UserError(f"{flag}={url}: it names no {'port' if parts.hostname else 'host'}; {EXAMPLE}")
    if parts.username or parts.password:
        raise UserError(f"{flag} takes no user or password: they would be saved with the run")
    return parts.scheme


def require_packages(url: str) -> str:
    """Return the scheme of ``url``. Raises UserError where a package that its protocol needs is not installed."""
    scheme = check_url(url)
    openpi = {"msgpack": "msgpack", "websockets": "websockets"}
    needed = {"tcp": {"msgpack": "msgpack", "zmq": "pyzmq"}, "grpc": {"grpc": "grpcio"}}.get(scheme, openpi)
    for module, package in needed.items():
        try:
            import_module(module)
        except ImportError:
            raise UserError(f"a server at {scheme}:// needs the package {package}: {install('remote')}") from None
    if scheme == "tcp" and not entry_points(group=GROUP, name=scheme):
        raise UserError(
            "strobe-zoo, which speaks GR00T's protocol, is not installed: pip install ./packages/strobe_zoo in "
            "Strobe's repository"
        )
    return scheme


def connect(url: str, timeout_s: float, policy: ServedPolicy | None = None) -> Wire:
    """Return a connection to the policy server at ``url``.

    Args:
        timeout_s: that one call may take.
        policy: what LeRobot's server is to load; the others take none.

    Raises:
        UserError: a wrong address, a package that is missing, or nothing at the address that speaks the protocol.
    """
    scheme = require_packages(url)
    if scheme == "tcp":
        return next(iter(entry_points(group=GROUP, name=scheme))).load()(url, timeout_s)
    if scheme == "grpc":
        from strobe.servers.protocols.lerobot import LerobotWire

        if policy is None or not policy.path:
            raise UserError("LeRobot's server loads the policy that its client names: give --policy.path")
        return LerobotWire(url, timeout_s, policy)
    from strobe.servers.protocols.openpi import OpenpiWire

    return OpenpiWire(url, timeout_s)
