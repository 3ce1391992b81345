"""strobe evaluate: does the policy still do the task, and what does latency cost?

Plays episodes in a simulator and counts successes: the baseline and its variants, such as fewer denoising steps
(--steps), other numbers of executed actions (--n_action_steps) or recipes (--recipe). All variants play the same starts
with the same noise. After every start each variant is judged against the baseline: worse, better, or not worse by more
than --margin. A decided variant stops; the run ends when all are decided or --episodes are used up.

With --realtime the simulator goes on while the policy computes, for each --latency. --policies compares checkpoints.
--results judges finished runs of lerobot-eval. The answer has success rates, the differences with intervals, the time
to task, the latency of a chunk, and videos.

Needs a policy and a simulator (--env.type). 50 episodes take minutes to an hour, depending on policy and simulator.

Examples:
  strobe evaluate --policy.path=FOLDER --env.type=pusht --steps=10,5,2
  strobe evaluate --policy.path=demo --realtime --latency=0,100    a small trained policy that comes with Strobe

More:
You may look after every pair: the interval of the difference holds at every number of pairs at once, so a verdict is
wrong with a chance of at most 5 %, for each variant. Before it starts, the command says what the planned number of
episodes can decide. lerobot-eval's own rollout plays each episode, and Strobe checks that the first observation of each
episode is the same in all variants.

Success comes first, then the time to task: in pairs, does the variant do the task sooner? Its interval, too, holds at
every number of pairs. An episode that fails never does the task. The report has the survival curves.

After the episodes Strobe measures the latency of a chunk, at batch 1, all variants in turn, as `strobe compare` does:
its parts, and the line a + b × steps (--latency_iterations; 0 skips this). It also times the calls within the episodes,
separately from the simulator's own time, its rendering and its reset.

--parallel=4 plays four episodes at a time, each in a process with its own copy of the policy, by the same code. The
table is the same as with one process, if --threads is the same (by default the processes share the cores). Calls then
run while other episodes are played, and are slower. With --launcher=ray the nodes of a Ray cluster play: one episode at
a time on each GPU, or on each node if the policy runs on the CPU. Each node needs this machine's environment, and the
checkpoint at the same path.

With --score=progress it is not success that decides, but how much of the task an episode did: 1 for a success, else its
best reward of a control tick ÷ the reward of the whole task. Strobe knows that for PushT (the share of the goal that is
covered) and ALOHA (stages 1 to 4). Rewards that are shaped for training, as MetaWorld's, say little of it: name theirs
with --full_reward if you know better. Success, time and latency are shown as before. A run says which score decides
before its first episode.

Without a GPU, drawing takes most of an episode's time. Strobe draws only the observations that the policy looks at
(--render=needed), if it knows them and knows that the simulator draws nothing else: actions and outcomes are the same.

Each episode is written to episodes.jsonl in the run's folder as soon as it has ended. After Ctrl-C Strobe judges and
saves the episodes so far. After a kill, --resume=RUN continues with the same flags and plays no episode twice. You may
raise --episodes then, which can decide what was undecided.

With --policies several checkpoints play the same starts, and Strobe looks for the best one. After every start it
eliminates each checkpoint that is shown to succeed less than another one. The run ends when one remains, or when the
episodes are used up: the answer then names those that remain. The best checkpoint is eliminated with a
chance of at most 5 %, no matter how many there are. Time to task eliminates none, and is shown. The checkpoints may be
of different types. All are in memory at the same time, in each process of --parallel. The latency of a chunk is not
measured outside the episodes then. --realtime, --steps, --recipe and --launcher=ray are for one policy.

With --realtime the control loop is LeRobot's, on a virtual clock. Without it the simulator waits for the policy, and a
robot does not wait. While the policy computes, the simulator goes on for the
latency: it holds the last action, or executes the actions in Real-Time Chunking's queue. The latency is the call's own
on this machine (live), or a number of ms or control ticks, or the latency of a saved run: you need not have that run's
robot or machine. Strobe plays each variant with each engine at each latency, and judges it against the baseline
at the first latency.

Further examples:
  strobe evaluate --policy.path=FOLDER --env.type=metaworld --env.task=push-v3 --steps=5,2 --episodes=100 --margin=0.05
  strobe evaluate --policy.path=FOLDER --env.type=aloha --n_action_steps=10,25,50
  strobe evaluate --policy.path=FOLDER --env.type=pusht --steps=10,5,2 --parallel=auto
  strobe evaluate --policy.path=FOLDER --env.type=pusht --steps=10,5,2 --launcher=ray --ray.address=10.0.0.1:6379
  strobe evaluate --policy.path=FOLDER --env.type=pusht --recipe=fast.yaml,faster.yaml
  strobe evaluate --policy.path=FOLDER --env.type=pusht --steps=10,5,2 --episodes=200 --resume=runs/RUN
  strobe evaluate --policy.path=FOLDER --env.type=pusht --steps=10,5,2 --score=progress
  strobe evaluate --policy.path=FOLDER --env.type=pusht --realtime --latency=0,100,300
  strobe evaluate --policy.path=FOLDER --env.type=aloha --realtime --inference.type=sync,rtc,async --delay_ticks=0,5,15
  strobe evaluate --policy.path=FOLDER --env.type=pusht --realtime --latency=runs/ROLLOUT --recipe=fast.yaml
  strobe evaluate --policies outputs/train/checkpoints/*/pretrained_model --env.type=pusht --episodes=200
  strobe evaluate --policy.path=FOLDER --env.type=pusht                      the policy alone: its success rate
  strobe evaluate --policy.path=FOLDER --env.type=pusht --dataset.root=DATA  and what it has learnt of its training set
  strobe evaluate --results=A/eval_info.json,B/eval_info.json      judges runs of lerobot-eval, and plays nothing

Exit code: 0, 2 for wrong input, 130 after Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from strobe.core.cli.bounds import open_interval_bound
from strobe.core.cli.flags import OutputFlags, flag_values
from strobe.core.cli.help import help_text
from strobe.core.cli.live import Live, importing
from strobe.core.cli.parse import parse
from strobe.core.cli.runner import Command, Studied
from strobe.core.errors import UserError
from strobe.evaluate.episode_flags import check_policy, parse_parallel, read_policy, resumable
from strobe.evaluate.flags import EvaluateConfig, check_several, check_timing, full_reward, take_policies, timed_live
from strobe.policy_cli.run_flags import check_launcher
from strobe.policy_cli.subject_flags import require_subject, split_subject
from strobe.preflight.command import check_training_set


@dataclass
class JudgeConfig(OutputFlags):
    """Arguments and flags of `strobe evaluate` where it judges episodes that were played before."""

    # lerobot-eval's eval_info.json, or folders of its runs, separated by commas. The first run is the baseline.
    results: tuple[Path, ...] = ()
    # All runs had the same --seed and --env, so episode i of each task began the same in all of them. Judges in pairs.
    same_seeds: bool = False
    # Loss of success rate that still counts as not worse, as a share: 0.1 is 10 points.
    margin: float = field(default=0.1, metadata=open_interval_bound(0, 1))


def read(argv: Sequence[str]) -> EvaluateConfig | JudgeConfig:
    """Return the command's flags, checked; those of a judgement with --results. Raises UserError."""
    if any(argument.partition("=")[0] == "--results" for argument in argv):
        flags, rest = split_subject(argv)
        if flags.path or flags.type:
            raise UserError("--results judges episodes that were already played: leave out --policy.*")
        return parse(JudgeConfig, rest)
    argv = take_policies(argv)
    # --inference=sync,rtc as LeRobot spells it.
    argv = [f"--inference.type{flag[11:]}" if flag.partition("=")[0] == "--inference" else flag for flag in argv]
    config = read_policy("evaluate", EvaluateConfig, argv, ["--results", "--same_seeds"])
    if not config.policies:
        require_subject(config.subject)
    env = config.simulator
    check_launcher(config.launcher, config.ray)
    check_training_set(config.dataset, of_checkpoint=config.subject.path is not None)
    if config.policies:
        check_several(config)
    elif timed_live(config):
        alone = "--latency=live uses the times of the calls here"
        if config.launcher == "ray":
            raise UserError(f"{alone}, and nodes may differ: give a number of ms, or a run")
        if parse_parallel(config.parallel) > 1:
            raise UserError(f"{alone}: play one episode at a time, without --parallel")
    check_timing(config, env)
    full_reward(config)
    if not config.policies:
        check_policy(config)
    return config


def study(config: EvaluateConfig | JudgeConfig, live: Live) -> Studied:
    """Play episodes of the policy and its variants and judge them, or judge what was played already.

    Raises:
        UserError: wrong input, before an episode is played; or an episode fails.
        KeyboardInterrupt: no episode has ended by then.
    """
    if isinstance(config, JudgeConfig):
        return judge_results(config)
    policy = config.subject
    live.stage(f"importing what {'the checkpoints need' if config.policies else f'{policy.path or policy.type} needs'}")
    from strobe.evaluate.episodes.crews import crew

    with crew(config, live) as playing:
        with importing(announced=True):
            from strobe.evaluate.eliminate import evaluate_checkpoints
            from strobe.evaluate.run import evaluate_policy
        result, folder = (evaluate_checkpoints if config.policies else evaluate_policy)(config, playing, live)
    return resumable(result, folder, config)


def judge_results(config: JudgeConfig) -> Studied:
    """Judge runs of lerobot-eval; nothing is played, and no policy is loaded. Raises UserError."""
    from strobe.evaluate.judge import find_runs, judge

    result = judge(find_runs(config.results), config.margin, config.same_seeds)
    return Studied(result, flag_values(config), config.output_dir, config.thresholds)


def judge_help() -> str:
    """Return the help on the flags that only --results has."""
    skipped = ["margin", "output_dir", "thresholds"]
    return help_text("Runs of lerobot-eval, judged as they are:", JudgeConfig, skipped)


run = Command(
    "evaluate",
    __doc__,
    EvaluateConfig,
    read,
    study,
    subject="policy",
    more_help=judge_help,
    heavy="timed",
    common={
        "Policy and simulator": ("policy.path", "policies", "env", "dataset", "rename_map", "device"),
        "Variants": ("steps", "n_action_steps", "recipe"),
        "Latency": ("realtime", "latency", "inference"),
        "Episodes": ("episodes", "score", "margin", "seed", "parallel", "resume", "videos", "output_dir"),
    },
)
