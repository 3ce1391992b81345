"""The loops of LeRobot that `strobe rollout` watches, by the word that chooses one after ``--``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strobe.core.errors import UserError, nearest

if TYPE_CHECKING:
    from strobe.core.timeline.layers import Call
    from strobe.loops.event_log import Log
    from strobe.loops.instrument import LoopWatch

ROLLOUT = "lerobot-rollout"
NAMES = (ROLLOUT, "lerobot-record", "lerobot-teleoperate", "robot_client", "policy_server")
REMOTE = "lerobot.async_inference."  # may stand before the last two, as after `python -m`


@dataclass(frozen=True)
class Loop:
    """One command.

    Args:
        check: makes the command's config of its arguments, and connects nothing. Raises UserError.
        watch: a watch for one run, from the log, the levels of the policy's parts, the seconds to record, and what
            takes observations, which only lerobot-rollout's gives.
        main: runs the command, with the arguments that are lent to it.
    """

    check: Callable[[Sequence[str]], object]
    watch: Callable[[Log, int, float, Call | None], LoopWatch]
    main: Callable[[], object]


def split_command(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """The command that the first word of ``arguments`` names, else `ROLLOUT`, and the arguments without it.

    Raises:
        UserError: the word is none of them.
    """
    if not arguments or arguments[0].startswith("-"):
        return ROLLOUT, list(arguments)
    word = arguments[0].removeprefix(REMOTE)
    if word not in NAMES:
        raise UserError(f"no loop is called '{word}': {nearest(word, NAMES)}")
    return word, list(arguments[1:])


def load_loop(command: str) -> Loop:
    """The loop of ``command``, one of `NAMES`; imports what of LeRobot it needs."""
    if command == ROLLOUT:
        from strobe.loops import rollout

        return Loop(rollout.rollout_config, rollout.RolloutWatch, rollout.loop.main)
    if command == "robot_client":
        from strobe.loops import remote_client

        return Loop(remote_client.config, remote_client.ClientWatch, remote_client.main)
    if command == "policy_server":
        from strobe.loops import remote_server

        return Loop(remote_server.config, remote_server.ServerWatch, remote_server.main)
    from strobe.loops import teleoperation

    watch = functools.partial(teleoperation.TeleopWatch, command)
    return Loop(functools.partial(teleoperation.led_config, command), watch, teleoperation.LOOPS[command][0].main)
