"""strobe evaluate: does it still do the task, and how fast is it there? Success against latency in a simulator.

Plays the policy as it is and variants of it: other numbers of denoising steps (--steps), recipes (--recipe). All of
them from the same starts with the same noise, each episode by lerobot-eval's own rollout, so that a difference is the
variant's. The first observation of each episode is checked to be the same.

Each variant is judged against the policy as it is after every start: worse, better, or not worse by more than
--margin, which is stated beforehand. A decided variant is played no further; the run ends when all are decided or the
episodes are used up. Looking so often costs no honesty: the interval of the difference holds at every number of
episodes at once, so a verdict is wrong with a chance of at most 5 %, for each variant. Before it starts, the command
says what the planned number can decide.

Afterwards the latency of a chunk is measured without episodes, at batch 1, all variants in turn, as `strobe compare`
does: its parts, and the line a + b × steps (--latency_iterations, 0 to leave it out). The calls within the episodes are
timed too, separately from the simulator's own time, its rendering and its reset.

The first starts of each variant are filmed (--videos), for the report.
--parallel=4 plays four episodes at a time, each in a process of its own, by the same code: the table is that of one
process, as long as --threads is the same (by default the cores are shared out). Decisions are taken in the order of
starts; an episode that was played ahead of a verdict on its variant is saved and does not count. Each process holds a
copy of the policy, in the device's memory too: a policy of 8 GB takes 32 GB in four processes, and what this one holds.
Calls are then timed while others run, and are slower than undisturbed ones.

With --launcher=ray they are played on the nodes of a Ray cluster, as those of a sweep are: one at a time on each GPU,
or on each node where the policy runs on the CPU; with --parallel=4 four at a time on each. The table is the same again.
A node that is lost costs the episode that it played, which is played again elsewhere. Each node needs this machine's
environment, and the checkpoint at the same path; recipes are sent there, and episodes and videos come back.

Without a GPU, drawing is most of an episode's time. If it is known which observations the policy looks at, and that the
simulator draws nothing else, only those are drawn (--render=needed): actions and outcomes are the same to the bit, and
the answer has the share of ticks that were drawn.

Each episode is written to episodes.jsonl in the run's folder as soon as it has ended. Ctrl-C saves and judges what was
played; after a kill --resume=RUN goes on, with the same flags, and plays no episode twice. --episodes may be higher
then: what was undecided can be decided later.

With --realtime episodes are true to time. A simulator otherwise waits for the policy; a robot does not. The control
loop is then lerobot-rollout's, on a virtual clock: while the policy thinks, the simulator goes on by the latency, with
the last action held, or with what Real-Time Chunking has in its queue. The latency is the call's own here (live), a
number of ms or control ticks, or that of a run: a robot's, another machine's, without it. Each variant is played with
each engine at each latency, and judged against the policy as it is at the first one.

Examples:
  strobe evaluate --policy.path=FOLDER --env.type=pusht --steps=10,5,2
  strobe evaluate --policy.path=FOLDER --env.type=metaworld --env.task=push-v3 --steps=5,2 --episodes=100 --margin=0.05
  strobe evaluate --policy.path=FOLDER --env.type=pusht --steps=10,5,2 --parallel=auto
  strobe evaluate --policy.path=FOLDER --env.type=pusht --steps=10,5,2 --launcher=ray --ray.address=10.0.0.1:6379
  strobe evaluate --policy.path=FOLDER --env.type=pusht --recipe=fast.yaml,faster.yaml
  strobe evaluate --policy.path=FOLDER --env.type=pusht --steps=10,5,2 --episodes=200 --resume=runs/RUN
  strobe evaluate --policy.path=FOLDER --env.type=pusht --realtime --latency=0,100,300
  strobe evaluate --policy.path=FOLDER --env.type=aloha --realtime --inference.type=sync,rtc --delay_ticks=0,5,15
  strobe evaluate --policy.path=FOLDER --env.type=pusht --realtime --latency=runs/ROLLOUT --recipe=fast.yaml
  strobe evaluate --policy.path=FOLDER --env.type=pusht                      the policy alone: its success rate
  strobe evaluate --results=A/eval_info.json,B/eval_info.json      judges runs of lerobot-eval, and plays nothing
  strobe evaluate --policy.type=diffusion --policy.size=tiny --env.type=pusht --steps=2    random weights, for a look

Exit code: 0, 2 for wrong input, 130 when it was interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from strobe.cli import realtime
from strobe.cli.bounds import between
from strobe.cli.evaluation import EvaluateConfig, evaluate
from strobe.cli.flags import OutputFlags, check_launcher, check_recipe_file
from strobe.cli.help import help_text
from strobe.cli.live import Live
from strobe.cli.parse import parse
from strobe.cli.runner import Command, Studied
from strobe.cli.subject_flags import (
    MODEL_NAMES,
    POLICY_NAMES,
    ModelFlags,
    SubjectFlags,
    check_overrides,
    require_subject,
    split_subject,
)
from strobe.errors import UserError
from strobe.policies.options import PolicyOptions


@dataclass
class JudgeConfig(OutputFlags):
    """Arguments and flags of `strobe evaluate` where it judges episodes that were played before."""

    # lerobot-eval's eval_info.json, or folders of its runs, separated by commas; the first is judged against.
    results: str = ""
    # All runs had the same --seed and --env, so that episode i of each task began alike in all: judge in pairs.
    same_seeds: bool = False
    # Loss of success rate that counts as not worse, in shares of 1: 0.1 is 10 points.
    margin: float = field(default=0.1, metadata=between(0, 1))


def read(argv: Sequence[str]) -> tuple[SubjectFlags, EvaluateConfig | JudgeConfig]:
    """Return the policy and the command's flags, checked; with --results no policy. Raises UserError."""
    if any(argument.partition("=")[0] == "--results" for argument in argv):
        flags, rest = split_subject(argv)
        if flags.path or flags.type:
            raise UserError("--results judges what was played already: leave out --policy.*")
        return flags, parse(JudgeConfig, rest)
    from strobe.studies.evaluate.settings import parse_parallel, parse_recipes, parse_steps

    # --inference=sync,rtc as LeRobot spells it.
    argv = [f"--inference.type{flag[11:]}" if flag.partition("=")[0] == "--inference" else flag for flag in argv]
    flags, rest = split_subject(argv)
    config = parse(EvaluateConfig, rest, extra=[*POLICY_NAMES, *MODEL_NAMES, "--results", "--same_seeds"])
    require_subject(flags)
    if isinstance(flags, ModelFlags):
        raise UserError("strobe evaluate is for policies: a model does not act")
    if config.env is None:
        raise UserError("where are episodes played? --env.type=pusht, metaworld, aloha …")
    check_launcher(config.launcher, config.ray)
    if realtime.timed_live(config):
        if config.launcher == "ray":
            raise UserError("--latency=live times the calls as they come, and nodes may differ: say how long, or a run")
        if parse_parallel(config.parallel) > 1:
            raise UserError("--latency=live times the calls as they come: play them one at a time, without --parallel")
    check_overrides(flags, config.device)
    realtime.check(config, config.env)
    parse_steps(config.steps)
    for path in parse_recipes(config.recipe):
        check_recipe_file(flags, path)
    return flags, config


def study(flags: PolicyOptions, config: EvaluateConfig | JudgeConfig, live: Live) -> Studied:
    """Play episodes of the policy and its variants and judge them, or judge what was played already.

    Raises:
        UserError: wrong input, before an episode is played; or an episode fails.
        KeyboardInterrupt: no episode has ended by then.
    """
    if isinstance(config, JudgeConfig):
        return judge_results(config)
    live.stage(f"importing what {flags.path or flags.type} needs")
    result, folder = evaluate(flags, config, live)

    def say_how_to_go_on(_: Path | None) -> list[str]:
        return [f"go on    the same command with --resume={folder}"] * (result.status == "interrupted")

    options = {"policy": flags, **vars(config)}
    return Studied(result, options, None, config.thresholds, folder=folder, after=say_how_to_go_on)


def judge_results(config: JudgeConfig) -> Studied:
    """Judge runs of lerobot-eval; nothing is played, and no policy is loaded. Raises UserError."""
    from strobe.studies.evaluate.judge import find_runs, judge

    result = judge(find_runs(config.results), config.margin, config.same_seeds)
    return Studied(result, vars(config), config.output_dir, config.thresholds)


def judge_help() -> str:
    """Return the help on the flags that only --results has."""
    skipped = ["margin", "output_dir", "thresholds"]
    return help_text("Runs of lerobot-eval, judged as they are:", JudgeConfig, skipped)


run = Command("evaluate", __doc__, EvaluateConfig, read, study, subject="policy", more_help=judge_help, heavy="timed")
