r"""strobe trials: which of two settings is better on the robot?

Plans blinded pairs of trials of two settings, then judges them. The settings are the default and the winner of a tuning
(--of), or two that you spell with --setting, the default first. The arguments after -- are lerobot-rollout's own.

The plan is a folder: a table for the operator (trials.csv), two scripts that start lerobot-rollout with setting A or B
(a.sh, b.sh), and README.txt. The operator does not know which setting is which, and runs the trials in a random order.

--judge reads the table, opens the key and judges success (or progress, with --score) and time to task, with intervals
that hold at every number of pairs. With --blind the key stays closed: the answer says only whether it is decided.

Examples:
  strobe trials --of=runs/TUNE --limit_s=60 --output=trials -- --robot.type=so101_follower --robot.port=/dev/ttyACM0
  strobe trials --judge=trials

More:
The operator fills in a row of trials.csv (CSV, with commas, semicolons or tabs) for each trial: success (yes or no),
seconds, and the start that both trials of a pair share. What the scripts print goes to a file; with --watch they start
`strobe rollout`, which saves each trial as a run. Without arguments after --, give them to the scripts. key.json says
which code is which setting, and stays closed before the end.

The verdict is better, worse, or not worse by more than the margin, as in `strobe evaluate`. Time to task is judged if
the plan has --limit_s and the successes have their seconds. A row without a success was not run.

With --score=progress the table has a column for the stages that a failure reached (2 of 4), or the share of the task
that it did (0.5). A success has all of it. The mean decides, by the same intervals; success is shown. That takes fewer
trials where failures differ in how far they get: the plan says how many. In the table of another plan progress is
shown and not judged, because the score is stated before the trials.

Further examples:
  strobe trials --setting 'default: --policy.n_action_steps=50' --setting 'tuned: --policy.n_action_steps=10' \
    --pairs=30 --output=trials -- --robot.type=so101_follower --robot.port=/dev/ttyACM0 --policy.path=FOLDER
  strobe trials --judge=trials --blind           is it decided?

Exit code: 0, 2 for wrong input, 130 after Ctrl-C.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from strobe.core.cli.bounds import choice_bound, exclusive_minimum_bound, minimum_bound, open_interval_bound
from strobe.core.cli.live import Live
from strobe.core.cli.parse import parse, split_lerobot, take_repeated
from strobe.core.cli.runner import Command, Studied
from strobe.core.errors import UserError
from strobe.lerobot.flags.argument_names import check, join_flag_values

STATED = ("score", "margin", "limit_s")  # flags that the plan states
PLANNING = ("of", "latency", "pairs", *STATED, "output", "seed", "watch")  # flags that --judge has no use for


@dataclass
class TrialsConfig:
    """Flags of `strobe trials`."""

    # The run of `strobe tune` whose default and winner are compared.
    of: Path | None = None
    # Of a tuning at several latencies, the one to take: 100, or the run that it was drawn from.
    latency: str = ""
    # A setting, as 'NAME: --flag=value --flag=value'. Give it twice, the default first. --recipe=FILE is one of its
    # flags, for a recipe of Strobe.
    setting: list[str] = field(default_factory=list)
    # How many pairs to plan. You may stop earlier.
    pairs: int = field(default=20, metadata=minimum_bound(1))
    # What decides: success, or progress, the share of the task that was done. It is stated in the plan.
    score: str = field(default="success", metadata=choice_bound("success", "progress"))
    # Loss of the score, 0 to 1, that counts as not worse. It is stated in the plan.
    margin: float = field(default=0.1, metadata=open_interval_bound(0, 1))
    # Seconds that a trial may last. lerobot-rollout then gets it as its --duration. Needed to judge times.
    limit_s: float | None = field(default=None, metadata=exclusive_minimum_bound(0, finite=True))
    # The folder to write the plan to.
    output: Path | None = None
    # Seed of the codes and the orders. Random by default. Anyone who knows the seed can reconstruct the key.
    seed: int | None = None
    # The scripts start `strobe rollout`, which saves each trial as a run.
    watch: bool = False
    # The folder of a plan, or its table (.csv), to judge.
    judge: Path | None = None
    # Keep the key closed: say only whether it is decided.
    blind: bool = False
    # Folder for run folders.
    output_dir: Path = Path("runs")
    shared: list[str] = field(init=False, default_factory=list)  # lerobot-rollout's arguments of both settings


def read(argv: Sequence[str]) -> TrialsConfig:
    """Return the command's flags, checked. Raises UserError."""
    ours, theirs = split_lerobot(argv)
    texts, rest = take_repeated(ours, "--setting")
    config = parse(TrialsConfig, rest, extra=["--setting"], behind="lerobot-rollout")
    config.setting = texts
    if config.judge is not None:
        _check_judge(config, rest, theirs)
        return config
    if config.blind:
        raise UserError("--blind is for a look at trials that were run: --judge=FOLDER --blind")
    if config.output is None:
        raise UserError("name the folder of the plan: --output=FOLDER; or the one to judge: --judge=FOLDER")
    if bool(config.of) == bool(texts):
        raise UserError("name the two settings: --of=RUN of strobe tune, or --setting twice, and not both")
    if config.latency and config.of is None:
        raise UserError("--latency chooses one of a tuning's latencies: it needs --of=RUN")
    config.shared = _rollout_arguments(config, theirs or [])
    return config


def _check_judge(config: TrialsConfig, rest: Sequence[str], theirs: Sequence[str] | None) -> None:
    """Raises UserError for flags of a plan together with --judge."""
    named = [argument.partition("=")[0].lstrip("-").replace("-", "_") for argument in rest]
    if given := ["setting"] * bool(config.setting) + [name for name in PLANNING if name in named]:
        raise UserError(f"--judge reads a plan that was written before: leave out --{given[0]}")
    if theirs is not None:
        raise UserError("--judge runs nothing: leave out the arguments after --")


def _rollout_arguments(config: TrialsConfig, theirs: Sequence[str]) -> list[str]:
    """Return lerobot-rollout's arguments, with the limit of a trial as its duration. Raises UserError."""
    arguments = join_flag_values(theirs, "lerobot-rollout")
    duration = next((a.partition("=")[2] for a in arguments if a.startswith("--duration=")), None)
    if config.limit_s is None:
        return arguments
    limit = f"{config.limit_s:g}"
    if duration is not None and duration not in (limit, f"{config.limit_s}"):
        raise UserError(f"--limit_s={limit} and --duration={duration} disagree: a trial has one limit")
    return arguments if duration is not None else [*arguments, f"--duration={limit}"]


def study(config: TrialsConfig, live: Live) -> Studied | int:
    """Write a plan, or judge one. Raises UserError."""
    if config.judge is not None:
        from strobe.trials.judge import judge_trials

        answer = judge_trials(config.judge, blind=config.blind)
        return Studied(answer, {"judge": config.judge, "blind": config.blind}, config.output_dir)
    return write_plan(config)


def write_plan(config: TrialsConfig) -> int:
    """Write the folder of a plan, and print what to do with it. Return the exit code. Raises UserError."""
    from strobe.trials.plan import PROGRAM, draw, load_tuning, spelt_settings, tuned_policy, tuned_settings, write

    assert config.output is not None  # checked when it was read
    if config.of is not None:
        result = load_tuning(config.of)
        settings = tuned_settings(result, config.latency)
        if (policy := tuned_policy(result)) and not any(each.startswith("--policy.path=") for each in config.shared):
            print(f"policy   the tuning's was {policy}: give --policy.path={policy} after the --, if you trust that")
    else:
        settings = spelt_settings(config.setting)
    for setting in settings:
        _check_flags(setting.flags, config.shared)
    seed = secrets.randbelow(2**32) if config.seed is None else config.seed
    plan, key = draw(settings, config.pairs, seed, {name: getattr(config, name) for name in STATED})
    command = [*(["strobe", "rollout", "--"] if config.watch else [PROGRAM]), *config.shared]
    write(plan, key, command, config.output)
    _say(config)
    return 0


def _check_flags(flags: Sequence[str], shared: Sequence[str]) -> None:
    """Check the names of a setting's flags as lerobot-rollout's. Raises UserError.

    What a script gets when it is started is not known yet, so a robot and a policy stand in for it.
    """
    given = [*shared, *flags]
    names = {argument.partition("=")[0] for argument in given}
    later = {"--robot.type": "so101_follower", "--policy.path": "."}
    check([*given, *(f"{name}={value}" for name, value in later.items() if name not in names)], "lerobot-rollout")
    if both := {argument.partition("=")[0] for argument in shared} & {flag.partition("=")[0] for flag in flags}:
        raise UserError(f"{min(both)} stands in a setting and after the --: give it in one of the two places")


def _say(config: TrialsConfig) -> None:
    from strobe.evaluate.measure.planning import foresight

    folder = config.output
    print(f"plan     {folder}: {config.pairs} pairs; read {folder}/README.txt first")
    print(f"decides  {foresight(config.pairs, config.margin, score=config.score)}")
    names = {argument.partition("=")[0] for argument in config.shared}
    if missing := [name for name in ("--robot.type", "--policy.path") if name not in names]:
        print(f"missing  {', '.join(missing)}: give them to the scripts, as sh a.sh {missing[0]}=…")
    if config.limit_s is None:
        print("missing  --limit_s: without the limit of a trial, times are not judged")
    print(f"judge    {shlex.join(['strobe', 'trials', f'--judge={folder}'])}")


run = Command("trials", __doc__, TrialsConfig, read, study, bar=False, bare=True)
