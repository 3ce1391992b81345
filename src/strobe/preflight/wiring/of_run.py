"""Read the wiring of a policy that a command is about to run. A fault in reading costs a note, and never the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from strobe.core.cli.live import Live
from strobe.core.errors import UserError, error_line
from strobe.core.results.answer import Result
from strobe.core.untrusted import JsonObject
from strobe.lerobot.datasets.fault import DatasetError
from strobe.lerobot.datasets.truth import glance
from strobe.lerobot.policies.options import PolicyOptions
from strobe.policy_cli.run_flags import InputFlags
from strobe.preflight.results.wiring import OnFrames, Wiring
from strobe.preflight.wiring.checkpoint import checkpoint_folder, find_held_out
from strobe.preflight.wiring.read import read_wiring
from strobe.preflight.wiring.robot import read_robot

FRAMES_S = 45.0  # that predictions on recorded frames may take after a run


@dataclass(frozen=True)
class WiringLook:
    """A wiring that was read before a run, or while it runs.

    Args:
        wiring: None if none was read.
        notes: what could not be read, and why.
        policy: the checkpoint that runs, with its settings; None without one.
    """

    wiring: Wiring | None = None
    notes: tuple[str, ...] = ()
    policy: PolicyOptions | None = None

    def extend_result(self, result: Result) -> None:
        """Add what was read to the answer of the run."""
        result.wiring = self.wiring
        result.notes += self.notes

    def add_frames(self, result: Result, dataset: Path, episodes: Sequence[int] | None, live: Live) -> None:
        """Run the policy once more after a run of it, on recorded frames, and add what they show to its answer.

        A failure costs this alone, and so does Ctrl-C.
        """
        from strobe.open_loop.run import Frames, open_loop

        wiring = self.wiring or Wiring(policy="", sources={"dataset": str(dataset)}, wires=[])
        live.stage("what did it learn? Predicting on recorded frames")
        try:
            if self.policy is None:
                raise UserError("the run names no checkpoint")
            folder = checkpoint_folder(self.policy.path or "")
            held = find_held_out(folder, dataset) if episodes is None else []
            frames = Frames(dataset, FRAMES_S, episodes, held, dict(wiring.rename), list(self.policy.overrides))
            loop, hypotheses, *_ = open_loop(folder, frames, live.progress)
            why, stopped, result.wiring = loop.unjudged, loop.stopped, wiring
            wiring.on_frames = OnFrames(open_loop=loop, hypotheses=hypotheses)
        except (UserError, DatasetError, KeyboardInterrupt) as error:
            why, stopped = str(error) or "Ctrl-C came first", isinstance(error, KeyboardInterrupt)
        if stopped:
            result.status = "interrupted"
        if why is not None:
            result.caveats.append(f"not judged: what the policy has learnt: {why}")


def wiring_of_run(
    policy: str | Path | None,
    dataset: str | Path | None = None,
    *,
    rename: Mapping[str, str] | None = None,
    settings: Iterable[str] = (),
    episodes: Sequence[int] | None = None,
) -> WiringLook:
    """Look at the wiring of a checkpoint's folder, and glance at the files of a data set.

    Without such a folder there is a wiring only if the data set has a fault.

    Args:
        policy: a folder, a name on the Hub, or None.
        dataset: the folder of a LeRobotDataset.
        rename: names in the inputs → names that the policy knows.
        settings: fields of the policy's config as flags, ``--n_action_steps=10``.
        episodes: of the data set, that are used; all by default.
    """
    data, given = Path(dataset) if dataset is not None else None, list(settings)
    look = WiringLook()
    if policy is not None and Path(policy).is_dir():
        set_to = parse_settings(given)
        look = _try_reading(lambda data: read_wiring(Path(policy), data, rename=rename, settings=set_to), data)
    if policy is not None:
        look = replace(look, policy=PolicyOptions(path=str(policy), overrides=given))
    if data is None or not data.is_dir():
        return look
    truth = glance(data, episodes)
    if not truth.faults:
        return look
    wiring = look.wiring or Wiring(policy="", sources={"dataset": str(data)}, wires=[])
    wiring.truth = truth
    return replace(look, wiring=wiring)


def extend_answer(result: Result, config: InputFlags) -> None:
    """Add the wiring of the policy and the data set that a study's flags name to its answer."""
    policy = config.subject
    if isinstance(policy, PolicyOptions):
        data, episodes = (config.dataset.root, config.dataset.episodes) if config.dataset is not None else (None, None)
        look = wiring_of_run(policy.path, data, rename=config.rename_map, settings=policy.overrides, episodes=episodes)
        look.extend_result(result)


def wiring_of_rollout(config: Any, arguments: Iterable[str], dataset: Path | None = None) -> WiringLook:
    """Look as `wiring_of_run` does, and at what the rollout connects.

    Args:
        config: LeRobot's ``RolloutConfig``.
        arguments: those that it was made of, ``--name=value`` each.
        dataset: the folder of a LeRobotDataset.
    """
    path, look = getattr(config.policy, "pretrained_path", None), WiringLook()
    if path is None:
        return look
    flags = policy_flags(arguments)
    if Path(path).is_dir():
        settings = parse_settings(flags)
        look = _try_reading(lambda data: read_wiring(Path(path), data, read_robot(config), settings=settings), dataset)
    return replace(look, policy=PolicyOptions(path=str(path), overrides=flags))


def _try_reading(read: Callable[[Path | None], Wiring], dataset: Path | None) -> WiringLook:
    """Read with the data set; without it if that fails, since a fault of the data hides none of the policy."""
    try:
        return WiringLook(read(dataset))
    except Exception as error:
        reason = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error_line(error, 120)}"
        note = f"not judged: whether policy, data and robot match: {reason}"
        return WiringLook(_try_reading(read, None).wiring if dataset is not None else None, (note,))


def policy_flags(arguments: Iterable[str]) -> list[str]:
    """Return the policy's own flags among LeRobot's arguments, without their prefix: ``--n_action_steps=10``."""
    flags = [f"--{flag.removeprefix('--policy.')}" for flag in arguments if flag.startswith("--policy.")]
    return [flag for flag in flags if not flag.startswith(("--path=", "--type=", "--size="))]


def parse_settings(flags: Iterable[str]) -> JsonObject:
    """Return flags as fields and their values, as LeRobot's parser reads them: ``False`` is no text.

    Fields of fields, such as ``--optimizer.lr=1``, are left out.
    """
    import yaml
    from draccus.cfgparsing import parse_string

    settings: JsonObject = {}
    for flag in flags:
        name, _, text = flag.removeprefix("--").partition("=")
        if "." in name:
            continue
        try:
            settings[name] = parse_string(text)
        except yaml.YAMLError:
            settings[name] = text  # LeRobot says what is wrong with it
    return settings
