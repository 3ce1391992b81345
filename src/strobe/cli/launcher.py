"""Flags of commands that run here or on a Ray cluster: ``--launcher`` and ``--ray.address``."""

from __future__ import annotations

from dataclasses import dataclass

from strobe.errors import UserError, nearest

LAUNCHERS = ("local", "ray")
HELP = "  --ray.address\n      The cluster: auto, HOST:PORT (default: one that is found here, else this machine alone)"


@dataclass
class RayFlags:
    # The cluster: 'auto' or HOST:PORT; left out, the one found here, or one of this machine alone.
    address: str | None = None


def check(launcher: str, ray: RayFlags) -> None:
    """Raises UserError for an unknown launcher, or a cluster that is not asked for."""
    if launcher not in LAUNCHERS:
        raise UserError(f"--launcher={launcher}: {nearest(launcher, LAUNCHERS)}")
    if ray.address is not None and launcher != "ray":
        raise UserError("--ray.address needs --launcher=ray")
