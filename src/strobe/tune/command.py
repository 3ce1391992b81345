"""strobe tune: which settings make the task succeed at a latency, and soonest?

Plays one policy in a simulator that goes on while the policy computes, for the latency of a call (--latency). Searches
how the actions of a chunk are executed: the type of inference (sync, Real-Time Chunking, async), the number of actions
executed per chunk, temporal ensembling, the execution horizon, the queue's threshold, and what you add.

All settings play the same starts in rounds; the worse half of each round is dropped (selection phase). The winner then
plays against the default in held-out pairs, on new starts. Only these pairs give the verdict.

The answer has the flags for lerobot-rollout, their success vs the default with an interval, and the settings that
cannot work at that latency. Needs a policy and a simulator (--env.type). It takes minutes to hours.

Examples:
  strobe tune --policy.path=FOLDER --env.type=pusht --latency=100
  strobe tune --policy.path=demo --latency=100      a small trained policy that comes with Strobe

More:
Settings that cannot work at the latency are skipped, and the report shows the arithmetic: "a call lasts 24 ticks, and a
chunk has 16 actions". A setting that is shown to be worse than the leader is dropped at once. Success ranks before
time. The default is the policy as LeRobot runs it. The interval of the held-out pairs holds at any number of them.

If no setting succeeds, the command ends early and says so: settings do not teach a policy its task.

For async the flags are those of LeRobot's robot client, with its ways to join chunks. You may add RTC's guidance weight
and schedule, denoising steps and recipes.

Each episode is written to episodes.jsonl in the run's folder. After Ctrl-C Strobe answers from the episodes so far.
After a kill, --resume=RUN continues with the same flags and plays no episode twice. --parallel and --launcher=ray play
episodes side by side, as in `strobe evaluate`, with the same answer.

Further examples:
  strobe tune --policy.path=FOLDER --env.type=metaworld --env.task=push-v3 --latency=0,100,300 --parallel=auto
  strobe tune --policy.path=FOLDER --env.type=aloha --latency=runs/ROLLOUT --recipe=fast.yaml
  strobe tune --policy.path=FOLDER --env.type=pusht --latency=100 --inference.type=sync --n_action_steps=4,8,16
  strobe tune --policy.path=FOLDER --env.type=pusht --latency=200 --execution_horizon=10,20 --queue_threshold=20,40
  strobe tune --policy.path=FOLDER --env.type=pusht --latency=100 --resume=runs/RUN

Exit code: 0, 2 for wrong input, 130 after Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Sequence

from strobe.core.cli.live import Live, importing
from strobe.core.cli.runner import Command, Studied
from strobe.core.errors import UserError
from strobe.evaluate.episode_flags import check_policy, read_policy, resumable
from strobe.policy_cli.run_flags import check_launcher
from strobe.policy_cli.subject_flags import require_subject
from strobe.tune.settings import TuneConfig, latency_ticks


def read(argv: Sequence[str]) -> TuneConfig:
    """Return the policy and the command's flags, checked. Raises UserError."""
    config = read_policy("tune", TuneConfig, argv)
    require_subject(config.subject)
    env = config.simulator
    if not config.latency:
        raise UserError("name the latency of a call: --latency=100 (ms), several (0,100,300), or the folder of a run")
    check_launcher(config.launcher, config.ray)
    check_policy(config)
    from strobe.evaluate.episodes.timings import parse_latency

    for latency in parse_latency(config.latency):
        latency_ticks(latency, env.fps)
    return config


def study(config: TuneConfig, live: Live) -> Studied:
    """Search the settings, and judge the winner.

    Raises:
        UserError: wrong input, before an episode is played; or an episode fails.
        KeyboardInterrupt: no episode has ended by then.
    """
    live.stage(f"importing what {config.subject.path or config.subject.type} needs")
    from strobe.evaluate.episodes.crews import crew

    with crew(config, live) as playing:
        with importing(announced=True):
            from strobe.tune.run import tune_policy
        result, folder = tune_policy(config, playing, live)
    return resumable(result, folder, config)


run = Command(
    "tune",
    __doc__,
    TuneConfig,
    read,
    study,
    subject="policy",
    heavy="timed",
    common={
        "Policy and simulator": ("policy.path", "env", "rename_map", "device"),
        "Latency": ("latency",),
        "Settings to try": ("inference", "n_action_steps", "execution_horizon", "queue_threshold", "steps", "recipe"),
        "Episodes": ("starts", "pairs", "margin", "seed", "parallel", "resume", "output_dir"),
    },
)
