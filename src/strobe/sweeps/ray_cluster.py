"""Ray: joining a cluster, and the answers of actors, each error in a line."""

from __future__ import annotations

import logging
import os
import socket
import time
from typing import Any

from strobe.errors import UserError, install

LOOK_EVERY_S = 2.0
_REACH_S = 5.0


def load_ray() -> Any:
    """Import Ray, set up before that to print nothing, because the terminal is the command's. Return the package.

    Raises:
        UserError: it is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # some versions warn unless it is set
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")  # a lost node's last words come despite log_to_driver=False
    try:
        import ray
    except ImportError:
        raise UserError(f"Ray is not installed: {install('ray')}") from None
    return ray


def connected(address: str | None) -> tuple[Any, bool]:
    """Return Ray, connected, and whether this call connected it."""
    ray = load_ray()
    if ray.is_initialized():
        return ray, False
    asked = address if address not in (None, "auto") else os.environ.get("RAY_ADDRESS") or "auto"
    more: dict[str, Any] = {}
    if asked == "auto" and not _cluster_here():
        asked = "local"
    if asked == "local":
        os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's own 15 would measure at low priority
        more["include_dashboard"] = False
    elif asked != "auto":
        _require_listener(asked)
    try:
        ray.init(address=asked, log_to_driver=False, logging_level=logging.CRITICAL, **more)
    except Exception as error:  # ConnectionError, RuntimeError, ValueError, and others from one version to the next
        if asked == "local":
            raise UserError(f"found no Ray cluster, and could not start one here: {_line(error)}") from None
        raise UserError(
            f"cannot join the Ray cluster at {asked}: {_line(error)} (start the command on one of its nodes)"
        ) from None
    return ray, True


def _cluster_here() -> bool:
    """Whether this machine belongs to a cluster. One that crashed leaves its address; Ray would try it for minutes."""
    from ray._private.services import get_ray_address_from_environment  # what 'auto' means; nothing public tells

    try:
        _require_listener(get_ray_address_from_environment("auto", None))
    except (ConnectionError, UserError):
        return False
    return True


def _require_listener(address: str) -> None:
    """Raises UserError where nothing answers at ``address``, at once: Ray itself would try for a minute."""
    if "://" in address:
        raise UserError(f"--ray.address={address}: write HOST:PORT, and start the command on a node of the cluster")
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UserError(f"--ray.address={address}: write HOST:PORT, such as 10.0.0.1:6379, or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_S).close()
    except (OSError, OverflowError) as error:
        why = (getattr(error, "strerror", None) or str(error)).lower()
        raise UserError(f"no Ray cluster at {address} ({why}): 'ray start --head' starts one") from None


class LostError(Exception):
    """The actor, or its answer, went down with its node or its process."""


def answered(ray: Any, calls: list[Any]) -> Any:
    """Return a call that has an answer; None if there is none after a while."""
    if not calls:
        time.sleep(LOOK_EVERY_S)
        return None
    done, _ = ray.wait(calls, num_returns=1, timeout=LOOK_EVERY_S)
    return done[0] if done else None


def answer(ray: Any, call: Any, node: str, work: str) -> Any:
    """Return the result of an actor's call.

    Args:
        work: of the actor, in words: 'run cells'.

    Raises:
        UserError: our code failed on the node, where it would fail again.
        LostError: the actor, or its answer, was lost.
    """
    from ray.exceptions import ActorUnavailableError, RayActorError, RayError, RayTaskError, RuntimeEnvSetupError

    try:
        return ray.get(call)
    except (RayTaskError, RuntimeEnvSetupError) as error:
        raise _unfit(node, work, error) from None
    except RayError as error:
        if isinstance(error, RayActorError) and error.actor_init_failed:
            raise _unfit(node, work, error) from None
        # Ray's message goes on with advice and numbers: its first sentence is enough.
        why = "out of reach" if isinstance(error, ActorUnavailableError) else _line(error).split(". ")[0].rstrip(".")
        raise LostError(why) from None


def _unfit(node: str, work: str, error: Exception) -> UserError:
    return UserError(f"node {node} cannot {work}: {_line(error)} (every node needs the driver's environment)")


def _line(error: Exception) -> str:
    """Return the last line of an error of Ray's, at most 300 characters: tracebacks and identifiers come first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]


def name_of(node: dict[str, Any]) -> str:
    """Return the name that the node was started with, else its host's: Ray's own default is the bare address."""
    name = node.get("NodeName")
    return name if name and name != node["NodeManagerAddress"] else node["NodeManagerHostname"]
