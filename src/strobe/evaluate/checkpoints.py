"""Which checkpoints `strobe evaluate --policies` plays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from strobe.core.errors import UserError
from strobe.evaluate.flags import EvaluateConfig
from strobe.lerobot.flags.subject_flags import check_overrides
from strobe.lerobot.policies.options import PolicyOptions, check_checkpoint

FLAG = "--policies"


def take_policies(argv: Sequence[str]) -> list[str]:
    """Return ``argv`` with ``--policies A B C``, as a shell expands ``*``, as ``--policies=A,B,C``.

    Raises:
        UserError: the flag names nothing.
    """
    rest, folders, taking = [], list[str](), False
    for argument in argv:
        name, equals, value = argument.partition("=")
        if name == FLAG:
            folders += [value] * bool(equals)
            taking = not equals
        elif taking and not argument.startswith("--"):
            folders.append(argument)
        else:
            taking = False
            rest.append(argument)
    if any(argument.partition("=")[0] == FLAG for argument in argv):
        if not any(folders):
            raise UserError(f"{FLAG} names no checkpoint: {FLAG}=FOLDER_A,FOLDER_B")
        rest.append(f"{FLAG}={','.join(folders)}")
    return rest


def check(flags: PolicyOptions, config: EvaluateConfig) -> None:
    """Check the flags of several checkpoints. Raises UserError."""
    if flags.path or flags.type:
        raise UserError(f"{FLAG} names the checkpoints: leave out --policy.path and --policy.type")
    refused = {"--realtime": config.realtime, "--steps": config.steps, "--recipe": config.recipe}
    refused["--n_action_steps"] = config.n_action_steps
    if given := next((name for name, value in refused.items() if value), None):
        raise UserError(f"{given} is for variants of one policy, and {FLAG} plays several as they are: leave one out")
    if config.launcher == "ray":
        raise UserError(f"{FLAG} plays on this machine: leave out --launcher=ray, and give --parallel=auto")
    options_of(parse_policies(config.policies), flags, config)


@dataclass(frozen=True)
class NamedCheckpoint:
    """A checkpoint: the part of its path that tells it from the others, and its folder or Hub id."""

    name: str
    path: str


@dataclass(frozen=True)
class NamedCheckpoints:
    """The checkpoints that are played, and notes on links that name one of them again."""

    all: list[NamedCheckpoint]
    notes: list[str]


def parse_policies(text: str) -> NamedCheckpoints:
    """Return the checkpoints of ``'FOLDER_A,FOLDER_B'``.

    LeRobot's folder of checkpoints has a link ``last`` to the last one. A folder that two names lead to is played once,
    and a note says so.

    Raises:
        UserError: a folder that is no checkpoint, the same one twice, or fewer than two.
    """
    paths = [part.strip() for part in text.split(",") if part.strip()]
    for path in paths:
        try:
            check_checkpoint(path)
        except UserError as error:
            raise UserError(f"--policies: {error}") from None
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        raise UserError(f"--policies: {twice} is named twice: give each checkpoint once")
    folders = [Path(path).resolve() if Path(path).is_dir() else Path(path) for path in paths]
    chosen: dict[Path, str] = {}
    for path, folder in zip(paths, folders, strict=True):
        # The folder's own name is shown, not that of a link to it.
        if folder not in chosen or folder.parts[-2:] == Path(path).parts[-2:]:
            chosen[folder] = path
    if len(chosen) < 2:
        raise UserError(
            f"--policies={text}: name two checkpoints or more, as FOLDER_A,FOLDER_B; for one, --policy.path"
        )
    kept = [path for path, folder in zip(paths, folders, strict=True) if chosen[folder] == path]
    again = [(path, chosen[folder]) for path, folder in zip(paths, folders, strict=True) if chosen[folder] != path]
    notes = [f"{path} is the folder {other} by another name: it is played once" for path, other in again]
    return NamedCheckpoints([NamedCheckpoint(*each) for each in zip(_names(kept), kept, strict=True)], notes)


def _names(paths: Sequence[str]) -> list[str]:
    """Return the parts of each path in which the paths differ: '010000' of 'outputs/a/checkpoints/010000/…'."""
    parts = [Path(path).parts for path in paths]
    if len({len(each) for each in parts}) == 1:
        differing = [place for place, column in enumerate(zip(*parts, strict=True)) if len(set(column)) > 1]
        return ["/".join(each[place] for place in differing) for each in parts]
    shortest = min(map(len, parts))
    before = next((n for n in range(shortest) if len({each[n] for each in parts}) > 1), shortest - 1)
    before = min(before, shortest - 1)
    after = next((n for n in range(shortest - before) if len({each[-1 - n] for each in parts}) > 1), 0)
    return [str(Path(*each[before : len(each) - after])) for each in parts]


def options_of(named: NamedCheckpoints, flags: PolicyOptions, config: EvaluateConfig) -> dict[str, PolicyOptions]:
    """Return the checkpoints by name, each with the settings that ``--policy.*`` gives to all. Raises UserError."""
    options = {each.name: PolicyOptions(path=each.path, overrides=list(flags.overrides)) for each in named.all}
    for each in options.values():
        check_overrides(each, config.device)
    return options
