"""Differences between versions of LeRobot, and between its policies, for all of Strobe.

LeRobot after 0.6.1 (its main calls itself 0.6.2) paces its loops with a timer of its own, answers questions to the
policy while it rolls out, and notifies environments when a rollout begins. The code here looks for these features, not
at the version's number, so that it also fits a build in between.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable
from importlib import metadata
from importlib.util import find_spec

from packaging.requirements import Requirement
from packaging.version import Version

from strobe.lerobot.quiet import shorten_warnings

TRIED = ("0.6.1", "0.6.2")  # the test suite runs on the first in full, `make test-next` on the other
QUERY = "pump_query"  # method of a rollout engine that answers questions, after 0.6.1
TIMER = "lerobot.utils.cycle_timer"  # module of versions after 0.6.1


def describe_untried() -> str | None:
    """Return a line about a version of LeRobot that Strobe was never run on."""
    installed = metadata.version("lerobot")
    if Version(installed).base_version in TRIED:
        return None
    return (
        f"Strobe was not tested on LeRobot {installed}, only on {' and '.join(TRIED)}: it refuses parts that no "
        "longer fit, by name; all other figures are valid"
    )


def suit_transformers() -> bool:
    """Let LeRobot do without a transformers that is older than its policies need; return whether it is.

    LeRobot imports all its policies at once, and some import names of transformers 5. openpi needs 4.53. LeRobot then
    refuses only the policies that need transformers, and Strobe measures what is not LeRobot's.
    """
    try:
        installed = Version(metadata.version("transformers"))
    except metadata.PackageNotFoundError:
        return False
    needed = [Requirement(line).specifier for line in metadata.requires("lerobot") or () if "transformers<" in line]
    least = [Version(each.version) for one in needed for each in one if each.operator == ">="]
    if not least or installed.major >= min(least).major:
        return False
    import huggingface_hub
    from lerobot.utils import import_utils

    import_utils._transformers_available = False
    if not hasattr(huggingface_hub, "sync_bucket"):  # LeRobot imports the name, for data sets in buckets
        huggingface_hub.sync_bucket = None  # type: ignore[attr-defined]
    return True


def sleeping(modules: Iterable[object]) -> list[object]:
    """Return those of ``modules``, and LeRobot's timer if it has one, that sleep at a tick's end."""
    return [module for module in (*modules, sys.modules.get(TIMER)) if hasattr(module, "precise_sleep")]


def timer() -> object:
    """Return LeRobot's class of timers that pace a loop; None if it has none."""
    return getattr(sys.modules.get(TIMER), "CycleTimer", None)


def reset_options() -> dict[str, object] | None:
    """Return the options of an environment's ``reset`` when a rollout begins; None if LeRobot passes none."""
    from lerobot.envs import utils

    option = getattr(utils, "NEW_ROLLOUT_OPTION", None)
    return {option: True} if option else None


def types_with_rtc() -> list[str]:
    """Return the types of policies, LeRobot's own and installed plug-ins', that support RTC."""
    from lerobot.configs import PreTrainedConfig
    from lerobot.policies.factory import get_policy_class
    from lerobot.policies.pretrained import PreTrainedPolicy

    types = []
    for kind in sorted(PreTrainedConfig.get_known_choices()):
        with contextlib.suppress(Exception):  # a plug-in that cannot be imported, or a package that is missing
            if get_policy_class(kind).supports_rtc is not PreTrainedPolicy.supports_rtc:
                types.append(kind)
    return types


def actions_left(policy: object) -> int:
    """Return the number of actions that the policy holds for the next ticks; -1 if it does not say."""
    queue = getattr(policy, "_action_queue", None)
    if queue is None:
        queue = (getattr(policy, "_queues", None) or {}).get("action")
    return -1 if queue is None else len(queue)


def prepare_imports() -> str:
    """Make ready for the import of LeRobot. Return its name for a message, if it is installed."""
    if find_spec("lerobot") is None:
        return ""
    shorten_warnings()
    if "lerobot.policies" not in sys.modules:
        suit_transformers()
    return " and LeRobot"
