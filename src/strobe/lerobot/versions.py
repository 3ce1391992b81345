"""Differences between versions of LeRobot, and between its policies, for all of Strobe.

LeRobot after 0.6.1 (its main calls itself 0.6.2) paces its loops with a timer of its own, answers questions to the
policy while it rolls out, and notifies environments when a rollout begins. The code here looks for these features, not
at the version's number, so that it also fits a build in between.

The names of LeRobot that Strobe uses are held against the LeRobot that is installed, by the source of both. So `strobe
doctor` names what a newer LeRobot lacks before a command meets it. Private names, which LeRobot may drop without a
word, are listed with the versions that had them.
"""

from __future__ import annotations

import ast
import contextlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.version import Version

from strobe.lerobot.schema.source import file_of

TRIED = ("0.6.1", "0.6.2")  # the test suite runs on the first in full, `make test-next` on the other
QUERY = "pump_query"  # method of a rollout engine that answers questions, after 0.6.1
_TIMER = "lerobot.utils.cycle_timer"  # after 0.6.1

# Private attribute → LeRobot's module that has it, and the versions that it was seen in.
PRIVATE: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "_action_queue": ("lerobot.policies.act.modeling_act", TRIED),
    "_queues": ("lerobot.policies.diffusion.modeling_diffusion", TRIED),
    "_frozen": ("lerobot.policies.lingbot_va.modeling_lingbot_va", TRIED),
    "_ensure_frozen_modules": ("lerobot.policies.lingbot_va.modeling_lingbot_va", TRIED),
    "_groot_model": ("lerobot.policies.groot.modeling_groot", TRIED),
    "_action_queue_steps": ("lerobot.policies.groot.modeling_groot", TRIED),
    "_backbone": ("lerobot.policies.molmoact2.modeling_molmoact2", TRIED),
    "_Qs": ("lerobot.policies.tdmpc.modeling_tdmpc", TRIED),
    "_reward": ("lerobot.policies.tdmpc.modeling_tdmpc", TRIED),
    "_env": ("lerobot.envs.metaworld", TRIED),
    "_ensure_env": ("lerobot.envs.metaworld", TRIED),
    "_transformers_available": ("lerobot.utils.import_utils", TRIED),
    "_aggregate_action_queues": ("lerobot.async_inference.robot_client", TRIED),
    "_ready_to_send_observation": ("lerobot.async_inference.robot_client", TRIED),
    "_action_tensor_to_action_dict": ("lerobot.async_inference.robot_client", TRIED),
    "_enqueue_observation": ("lerobot.async_inference.policy_server", TRIED),
}
# Names that only some versions have; Strobe looks for them first, and does without.
OPTIONAL = (_TIMER,)

_USES = re.compile(r"(?:from |\")lerobot\.")
_PLACE = re.compile(r"^(lerobot(?:\.\w+)+):([A-Za-z_]\w*)")


def untried() -> str:
    """Return a line about a version of LeRobot that Strobe was never run on; '' for one of `TRIED`."""
    installed = metadata.version("lerobot")
    if Version(installed).base_version in TRIED:
        return ""
    return (
        f"Strobe was never run on LeRobot {installed}, only on {' and '.join(TRIED)}: it refuses a part that no "
        "longer fits, by name, and every other number is valid"
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


def sleeping(modules: Iterable[Any]) -> list[Any]:
    """Return those of ``modules``, and LeRobot's timer if it has one, that sleep at a tick's end."""
    return [module for module in (*modules, sys.modules.get(_TIMER)) if hasattr(module, "precise_sleep")]


def timer() -> Any:
    """Return LeRobot's class of timers that pace a loop; None if it has none."""
    return getattr(sys.modules.get(_TIMER), "CycleTimer", None)


def reset_options() -> dict[str, Any] | None:
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


def actions_left(policy: Any) -> int:
    """Return the number of actions that the policy holds for the next ticks; -1 if it does not say."""
    queue = getattr(policy, "_action_queue", None)
    if queue is None:
        queue = (getattr(policy, "_queues", None) or {}).get("action")
    return -1 if queue is None else len(queue)


@dataclass(frozen=True)
class MissingName:
    """A name that the installed LeRobot lacks.

    Args:
        name: as ``module:name``, or the module alone.
        used_in: the file of Strobe that uses it, relative to the package.
        seen_in: versions of LeRobot that had it.
    """

    name: str
    used_in: str
    seen_in: tuple[str, ...] = TRIED


def used_names() -> Iterator[tuple[str, str, str]]:
    """Yield each public name of LeRobot that Strobe's source uses: its module, the name, and Strobe's file."""
    root = Path(__file__).parents[1]
    for file in sorted(root.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if not _USES.search(text):  # most files only speak of it, and parsing all takes seconds
            continue
        where = str(file.relative_to(root))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] == "lerobot":
                yield from ((node.module or "", alias.name, where) for alias in node.names)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and (at := _PLACE.match(node.value)):
                yield at[1], at[2], where


def missing_names() -> list[MissingName]:
    """Return the names that the installed LeRobot lacks, public ones first; each once."""
    found: dict[str, MissingName] = {}
    for module, name, where in used_names():
        if module not in OPTIONAL and not has_name(module, name):
            found.setdefault(f"{module}:{name}", MissingName(f"{module}:{name}", where))
    for name, (module, seen) in PRIVATE.items():
        file = file_of(module)
        if file is None or not re.search(rf"\b{name}\b", file.read_text(encoding="utf-8")):
            found.setdefault(f"{module}:{name}", MissingName(f"{module}:{name}", "", seen))
    return list(found.values())


def has_name(module: str, name: str) -> bool:
    """Return whether the installed package has ``name`` in ``module``, as its source shows."""
    if file_of(f"{module}.{name}") is not None:
        return True
    file = file_of(module)
    return file is not None and re.search(rf"\b{name}\b", file.read_text(encoding="utf-8")) is not None
