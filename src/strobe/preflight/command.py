"""strobe preflight: do policy, data and robot match?

Reads the checkpoint's config, its processors with their statistics, the names of its weights, the data set, and the
robot and cameras that lerobot-rollout would connect. It shows every feature in one table, and names each mismatch with
the flag or the file that fixes it. LeRobot raises no error for most of these faults. Reading takes seconds, runs no
policy and connects no robot.

With --dataset.root it also runs the policy on recorded frames, for up to --seconds (--read_only skips that). It
compares the predicted actions with the recorded ones and with three simple rules: hold still, the mean action, the last
action. Without --policy.path it checks the data set alone. With --env it compares a simulator with the data set. The
arguments after -- are those of lerobot-rollout, and may name the policy.

Examples:
  strobe preflight --policy.path=FOLDER --dataset.root=DATA
  strobe preflight -- --robot.type=so101_follower --robot.port=/dev/ttyACM0 --policy.path=FOLDER --task="pick the cube"

More:
--fix=FOLDER writes a fixed copy of the checkpoint, --fix_data=FOLDER one of the data set. Strobe reads each copy again,
and deletes it if it has a new fault or predicts the recorded frames worse. On recorded frames it also tries changes
that may predict the actions better, such as swapped cameras, another order, unit or prompt. A claim holds in pairs over
episodes, at 5 % for all of them together. --decode also finds frozen, empty and exchanged cameras, late images and a
light that goes out. --rollout=RUN adds the lags and the call times of a run. --training_log=FILE adds what
lerobot-train printed: seconds by phase, the loss, the epochs. --env starts the simulator 12 times and executes recorded
actions in it. docs/guides/before-the-robot.md explains every check.

Exit code: 0 if no check found a mismatch; 1 if one did, or if the policy predicts the recorded actions no better than
holding still ("Unclear"); 2 for wrong input.

Further examples:
  strobe preflight --policy.path=FOLDER --dataset.root=DATA --env.type=metaworld --env.task=push-v3
  strobe preflight --policy.path=FOLDER --dataset.root=DATA --dataset.episodes=[0,1,2,3] --held_out=[40,41,42,43]
  strobe preflight --policy.path=FOLDER --dataset.root=DATA --fix=fixed
  strobe preflight --dataset.root=DATA
  strobe preflight --dataset.root=DATA --fix_data=fixed-data
  strobe preflight --policy.path=FOLDER --dataset.root=DATA --rollout=runs/REHEARSAL
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from strobe.core.cli.bounds import exclusive_minimum_bound
from strobe.core.cli.flags import OutputFlags, flag_values
from strobe.core.cli.live import Live, importing
from strobe.core.cli.parse import format_argument, pairs, parse, split_lerobot
from strobe.core.cli.runner import Command, Studied
from strobe.core.errors import UserError
from strobe.lerobot.datasets.fault import format_episodes
from strobe.lerobot.flags.lazy_flags import lerobot_placeholder, realise
from strobe.lerobot.policies.options import FactoryOptions, PolicyOptions, check_dataset
from strobe.policy_cli.subject_flags import POLICY_NAMES, ModelFlags, check_overrides, split_subject

if TYPE_CHECKING:
    from lerobot.envs.configs import EnvConfig

    from strobe.contract.results import Contract
    from strobe.preflight.lag import PolicyRun
    from strobe.preflight.results.wiring import PreflightResult
else:
    EnvConfig = lerobot_placeholder("lerobot.envs.configs:EnvConfig")


@dataclass
class DataFlags:
    """The data set."""

    # A LeRobotDataset: the one that the policy was trained on, or frames of this robot.
    root: Path | None = None
    # Episodes to use, such as [0,1,2,3]; by default a part of all.
    episodes: list[int] | None = None


def check_training_set(data: DataFlags, *, of_checkpoint: bool) -> None:
    """Check the data set on which a command is to show what its trained policy has learnt. Raises UserError."""
    if data.root is None:
        if data.episodes is not None:
            raise UserError("--dataset.episodes needs a data set: add --dataset.root=DATA")
        return
    if not of_checkpoint:
        raise UserError("--dataset.root shows what one trained policy has learnt: name it with --policy.path=FOLDER")
    check_dataset(data.root)


@dataclass
class PreflightConfig(OutputFlags):
    """Flags of `strobe preflight`."""

    # A LeRobotDataset (--dataset.root=FOLDER): the training data, or frames of this robot.
    # --dataset.episodes=[0,1,2,3] chooses its episodes.
    dataset: DataFlags = field(default_factory=DataFlags)
    # A simulator to compare with the data set: --env.type=pusht, metaworld, aloha …, --env.task=TASK, other fields.
    env: EnvConfig | None = None
    # Names in the inputs → names that the policy knows, as in lerobot-train: '{"observation.image": "observation.x"}'.
    rename_map: dict[str, str] = field(default_factory=dict)
    # A run of `strobe rollout` or `strobe rehearse` with this policy. Strobe compares its lags and call times.
    rollout: Path | None = None
    # What lerobot-train printed when it made the checkpoint, in a file: seconds by phase, the loss, the epochs.
    training_log: Path | None = None
    # Write a fixed copy of the checkpoint to this folder.
    fix: Path | None = None
    # Write a copy of the data set to this folder, with statistics and frame numbers that match its frames.
    fix_data: Path | None = None
    # Also decode a part of the images, for up to 80 s: frozen, empty and exchanged cameras, images behind their rows.
    decode: bool = False
    # Only read files. Do not run the policy on the frames of --dataset.root.
    read_only: bool = False
    # Seconds for running the policy on recorded frames. A slow policy leaves time for fewer hypotheses.
    seconds: float = field(default=90.0, metadata=exclusive_minimum_bound(0))
    # Episodes that the policy was not trained on, for separate figures. Default: those that train_config.json left out.
    held_out: list[int] | None = None
    subject: PolicyOptions = field(init=False, default_factory=PolicyOptions)  # the policy
    theirs: list[str] | None = field(init=False, default=None)  # lerobot-rollout's arguments


def read(argv: Sequence[str]) -> PreflightConfig:
    """Return the command's flags, checked. Raises UserError."""
    ours, theirs = split_lerobot(argv)
    flags, rest = split_subject(ours)
    assert not isinstance(flags, FactoryOptions)  # refused before
    config = parse(PreflightConfig, rest, extra=POLICY_NAMES, behind="lerobot-rollout")
    if isinstance(flags, ModelFlags):
        raise UserError("--model has no actions: name a policy with --policy.path=FOLDER")
    config.subject = flags
    if flags.path is None and theirs is not None:
        flags.path = next((value for name, value in pairs(theirs) if name == "--policy.path"), None)
    if flags.path is None and (theirs is not None or config.fix is not None or config.dataset.root is None):
        raise UserError("name the checkpoint with --policy.path=FOLDER, or a data set with --dataset.root=DATA")
    if flags.path is not None:
        check_overrides(flags, None)
    elif config.training_log is not None:
        raise UserError("--training_log is of a checkpoint: add --policy.path=FOLDER")
    given = {"--rollout": config.rollout, "--fix_data": config.fix_data, "--env": config.env,
             "--dataset.episodes": config.dataset.episodes, "--held_out": config.held_out}  # fmt: skip
    if config.dataset.root is None and (name := next((name for name, value in given.items() if value), None)):
        raise UserError(f"{name} needs a data set: add --dataset.root=DATA")
    if theirs is not None:
        from strobe.lerobot.flags.argument_names import check

        if not {"--policy.path", "--config_path"} & {name for name, _ in pairs(theirs)}:
            theirs = [*theirs, f"--policy.path={flags.path}"]
        check(theirs, "lerobot-rollout")
    config.theirs = theirs
    return config


def study(config: PreflightConfig, live: Live) -> Studied:
    """Read the wiring. Raises UserError."""
    from strobe.preflight.lag import read_run
    from strobe.preflight.run import Preflight, preflight, preflight_of_data
    from strobe.preflight.wiring import checkpoint, of_run

    contract = _compare_simulator(config, live)  # first, so that a simulator that cannot be started costs nothing
    policy, theirs, robot = config.subject, config.theirs, None
    given = [format_argument(*pair) for pair in pairs(theirs or [])]
    if theirs is not None:
        live.stage("reading lerobot-rollout's arguments")
        with importing():
            from strobe.loops.rollout import rollout_config
            from strobe.preflight.wiring.robot import read_robot

        robot = read_robot(rollout_config(theirs))
    live.stage("reading the files")
    if policy.path is None:
        assert config.dataset.root is not None
        result = preflight_of_data(
            config.dataset.root, config.fix_data, config.dataset.episodes, decode=config.decode, progress=live.progress
        )
        return _make_study(result, config, contract)
    settings = of_run.parse_settings([*policy.overrides, *of_run.policy_flags(given)])
    folder = checkpoint.checkpoint_folder(policy.path)
    run = read_run(config.rollout) if config.rollout is not None else None
    look = Preflight(
        folder, config.dataset.root, robot, config.rename_map, config.fix, run, settings, config.fix_data,
        config.dataset.episodes, config.decode or not config.read_only, live.progress, config.training_log,
    )  # fmt: skip
    result = preflight(look)
    if config.dataset.root is not None and not config.read_only:
        if config.held_out is None and config.dataset.episodes is None:
            config.held_out = held = checkpoint.find_held_out(folder, config.dataset.root)
            result.notes += [f"held out: {format_episodes(held)} (train_config.json)"] if held else []
        differing = contract.select("differs") if contract is not None else []
        task = next((check.of for check in differing if check.kind == "task in words"), None)
        _look_at_frames(result, config, run, live, task)
    return _make_study(result, config, contract)


def _compare_simulator(config: PreflightConfig, live: Live) -> Contract | None:
    if config.env is None or config.dataset.root is None:
        return None
    with importing(announced=True):
        realise(config)
        from strobe.contract.compare import compare

    live.stage(f"comparing {config.env.type} with the data set")
    return compare(config.env, config.dataset.root, config.rename_map, config.dataset.episodes)


def _make_study(result: PreflightResult, config: PreflightConfig, contract: Contract | None) -> Studied:
    result.contract = contract
    options = {"policy": config.subject, **flag_values(config), "lerobot-rollout": config.theirs}
    return Studied(
        result,
        options,
        config.output_dir,
        config.thresholds,
        code=lambda result: int(result.serious > 0),
    )


def _look_at_frames(
    result: PreflightResult, config: PreflightConfig, run: PolicyRun | None, live: Live, task: str | None
) -> None:
    from strobe.preflight.run import look_at_frames

    live.stage("importing what the policy needs")
    with importing(announced=True):
        from strobe.open_loop.run import Frames

    assert config.dataset.root is not None
    frames = Frames(
        config.dataset.root, config.seconds, config.dataset.episodes, config.held_out or (), dict(result.wiring.rename),
        list(config.subject.overrides), task=task,
    )  # fmt: skip
    live.stage("predicting on recorded frames")
    look_at_frames(result, Path(result.wiring.sources["policy"]), frames, live.progress, run, config.fix)


run = Command("preflight", __doc__, PreflightConfig, read, study)
