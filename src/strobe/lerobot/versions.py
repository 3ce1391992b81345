"""Where the versions of LeRobot differ from each other, for all of Strobe: what each has, and how it is met.

LeRobot after 0.6.1 (its main calls itself 0.6.2) paces its loops with a timer of its own, answers questions to the
policy while it rolls out, and tells environments when a rollout begins. Everything here goes by what is there, not by
the version's number, so that a build in between is met too.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable
from importlib import metadata
from typing import Any

from packaging.version import Version

TRIED = ("0.6.1", "0.6.2")  # the test suite runs on the first in full, `make test-next` on the other
QUERY = "pump_query"  # a rollout engine's answer to questions, after 0.6.1
_TIMER = "lerobot.utils.cycle_timer"  # after 0.6.1


def untried() -> str:
    """Return a line about a LeRobot that Strobe was never run on; '' for one of `TRIED`."""
    installed = metadata.version("lerobot")
    if Version(installed).base_version in TRIED:
        return ""
    return (
        f"Strobe was never run on LeRobot {installed}, only on {' and '.join(TRIED)}: a part that no longer fits is "
        "refused by its name, and every other number stands"
    )


def sleeping(modules: Iterable[Any]) -> list[Any]:
    """Return those of ``modules``, and LeRobot's timer where it has one, that sleep at a tick's end."""
    return [one for one in (*modules, sys.modules.get(_TIMER)) if hasattr(one, "precise_sleep")]


def timer() -> Any:
    """Return LeRobot's class of timers that pace a loop; None where it has none."""
    return getattr(sys.modules.get(_TIMER), "CycleTimer", None)


def reset_options() -> dict[str, Any] | None:
    """Return what an environment's ``reset`` is told where a rollout begins; None where LeRobot tells nothing."""
    from lerobot.envs import utils

    option = getattr(utils, "NEW_ROLLOUT_OPTION", None)
    return {option: True} if option else None


def guided() -> list[str]:
    """Return the types of policies, LeRobot's own and installed plug-ins', that say that RTC can guide them."""
    from lerobot.configs import PreTrainedConfig
    from lerobot.policies.factory import get_policy_class
    from lerobot.policies.pretrained import PreTrainedPolicy

    found = []
    for kind in sorted(PreTrainedConfig.get_known_choices()):
        with contextlib.suppress(Exception):  # a plug-in that cannot be imported, or a package that is missing
            if get_policy_class(kind).supports_rtc is not PreTrainedPolicy.supports_rtc:
                found.append(kind)
    return found
