"""Check the names of arguments of LeRobot's commands before LeRobot is imported, which takes seconds.

LeRobot's own parser reads them all again afterwards, with the values (`lerobot_flags`).
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence

from strobe.core.cli.parse import Hint, MissingFlagError, UnknownFlagError
from strobe.core.errors import UserError, nearest, same_words
from strobe.lerobot.flags.former_flags import RTC, THEIRS
from strobe.lerobot.flags.former_flags import hint as former_flag
from strobe.lerobot.policies.options import check_dataset
from strobe.lerobot.schema import registries, shapes
from strobe.lerobot.schema.source import UnreadableSourceError, find

# Command whose flags are checked here → its config.
CONFIGS = {
    "lerobot-train": "lerobot.configs.train:TrainPipelineConfig",
    "lerobot-rollout": "lerobot.rollout:RolloutConfig",
}
DISCOVER = "discover_packages_path"  # ends the name of a flag that brings a plug-in, which may register types

_POLICY = {
    "lerobot-train": "name the policy: --policy.type=act (or another) for a new one, or --policy.path=FOLDER_OR_HUB_ID",
    "lerobot-rollout": "name the policy: --policy.path=FOLDER_OR_HUB_ID",
}
ROBOT = "name the robot: --robot.type=so101_follower --robot.port=… (or another)"


def join_flag_values(argv: Sequence[str], command: str = "lerobot-train") -> list[str]:
    """Return ``--a 1 --b`` as ``--a=1``, ``--b=true``. Raises UserError for text that belongs to no flag."""
    joined: list[str] = []
    open_flag = False
    for argument in argv:
        if argument.startswith("--"):
            joined.append(argument)
            open_flag = "=" not in argument
        elif open_flag:
            joined[-1] += f"={argument}"
            open_flag = False
        else:
            raise UserError(f"'{argument}' is not a flag; {command}'s flags start with --")
    return [argument if "=" in argument else f"{argument}=true" for argument in joined]


def has_flag(command: str, flag: str) -> bool:
    """Whether ``command``, one of `CONFIGS`, takes ``flag`` (``--num_workers``) for some policy or robot."""
    try:
        return _fits(flag.removeprefix("--"), _known_flags(command))
    except UnreadableSourceError:
        return False


def find_former_flag(name: str, ours: Collection[str], behind: str) -> Hint | None:
    """Name the flag that does what ``name`` of another tool does: one of ``ours``, or of the program ``behind``."""

    def has(flag: str) -> bool:
        theirs = flag.removeprefix(THEIRS)
        return theirs in ours if theirs == flag else bool(behind) and has_flag(behind, theirs)

    return former_flag(name, has)


def _known_flags(command: str) -> set[str]:
    known = {"config_path", "policy.path", "reward_model.path", *shapes.options(find(CONFIGS[command]))}
    return known | {"policy.type"} if command == "lerobot-train" else known


def _fits(name: str, known: Collection[str]) -> bool:
    return name in known or name.startswith(tuple(flag[:-1] for flag in known if flag.endswith(".*")))


def check(argv: Sequence[str], command: str, *, new_policy: bool = False, ours: Collection[str] = ()) -> None:
    """Check the names of the arguments of ``command``, one of `CONFIGS`, and that the required ones are there.

    Args:
        ours: Strobe's own flags, which come before the ``--``.
        new_policy: whether ``--policy.type`` and ``--policy.size`` are accepted by a command that itself accepts
            checkpoints only.

    Raises:
        UserError: an unknown flag or type of policy, no robot, no policy, no dataset, or none at its root.
    """
    arguments = dict(argument.removeprefix("--").split("=", 1) for argument in join_flag_values(argv, command))
    if "help" in arguments:
        raise UserError(f"`{command} --help` lists its flags; Strobe's own flags come before the --")
    _check_names(arguments, command, new_policy, ours)
    if command == "lerobot-train" and "dataset.root" in arguments and "dataset.streaming" not in arguments:
        check_dataset(arguments["dataset.root"])
    if "config_path" in arguments:
        return
    if command == "lerobot-rollout" and "robot.type" not in arguments:
        raise MissingFlagError(ROBOT, "--robot.type=so101_follower")
    trained = new_policy or command == "lerobot-train"
    trains_reward_model = command == "lerobot-train" and any(name.startswith("reward_model.") for name in arguments)
    if not ("policy.path" in arguments or (trained and "policy.type" in arguments) or trains_reward_model):
        raise MissingFlagError(_POLICY[command], "--policy.type=act" if trained else "--policy.path=FOLDER_OR_HUB_ID")
    if command == "lerobot-train" and "dataset.repo_id" not in arguments:
        example = "local/mine, whatever its name" if "dataset.root" in arguments else "OWNER/NAME"
        flag = f"--dataset.repo_id={example}"
        raise MissingFlagError(f"name the dataset: lerobot-train needs {flag}", flag.partition(",")[0])


def _check_names(arguments: dict[str, str], command: str, new_policy: bool, ours: Collection[str]) -> None:
    brings_plugin = any(name.endswith(DISCOVER) for name in arguments)
    try:
        known = _known_flags(command)
        if new_policy:
            known.add("policy.type")
        kind = arguments.get("policy.type")
        if kind is not None and not brings_plugin:
            registries.require_one_package(registries.POLICY, kind)
            kinds = registries.choices(registries.POLICY)
            if kind not in kinds:
                raise UserError(f"no policy type '{kind}': {nearest(kind, kinds)}")
            known.discard("policy.*")
            known |= {"policy.type", *(f"policy.{name}" for name in shapes.options(kinds[kind]))}
    except UnreadableSourceError:  # LeRobot's own parser reports it later
        return
    if new_policy:
        known.add("policy.size")
    for name in arguments:
        if _fits(name, known) or name.endswith(DISCOVER):
            continue
        rtc = name.removeprefix("rtc.")
        if f"--{name}" in ours:
            hint = Hint("it is Strobe's, put it before the --", (f"--{name}",), after=False)
        elif name in ("rtc", "rtc.enabled"):
            hint = Hint(f"RTC is {RTC} here", (RTC,), stays=True)
        elif rtc != name and _fits("inference.rtc", known):
            hint = Hint(f"it is --inference.rtc.{rtc} here, with {RTC}", (f"--inference.rtc.{rtc}", RTC))
        elif said := former_flag(f"--{name}", lambda flag: flag[:2] == "--" and _fits(flag[2:], known)):
            hint = said
        else:
            offered = [f"--{flag}" for flag in known if not flag.endswith(".*")]
            close = same_words(f"--{name}", offered) or difflib.get_close_matches(f"--{name}", offered, 1)
            hint = Hint(nearest(f"--{name}", offered, many=0), tuple(close[:1]))
        raise UnknownFlagError(f"--{name}", hint, command)
