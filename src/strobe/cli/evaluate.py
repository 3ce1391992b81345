"""strobe evaluate: does it still do the task, and how fast is it there? Success against latency in a simulator.

Plays the policy as it is and variants of it: other numbers of denoising steps (--steps), recipes (--recipe). All of
them from the same starts with the same noise, each episode by lerobot-eval's own rollout, so that a difference is the
variant's. The first observation of each episode is checked to be the same.

Each variant is judged against the policy as it is after every start: worse, better, or not worse by more than
--margin, which is stated beforehand. A decided variant is played no further; the run ends when all are decided or the
episodes are used up. Looking so often costs no honesty: the interval of the difference holds at every number of
episodes at once, so a verdict is wrong with a chance of at most 5 %, for each variant. Before it starts, the command
says what the planned number can decide.

Afterwards the latency of a chunk is measured apart from the episodes, at batch 1, all variants in turn, as `strobe
compare` does: its parts, and the line a + b × steps (--latency_iterations, 0 to leave it out). The calls within the
episodes are timed too, and the simulator's own time, its rendering and its reset are told apart from them.

The first starts of each variant are filmed (--videos), for the report.
--parallel=4 plays four episodes at a time, each in a process of its own, by the same code: the table is that of one
process, as long as --threads is the same (by default the cores are shared out). Decisions are taken in the order of
starts; an episode that was played ahead of a verdict on its variant is kept and does not count. Each process holds a
copy of the policy, in the device's memory too: a policy of 8 GB takes 32 GB in four processes, and what this one holds.
Calls are then timed beside the others, and slower than undisturbed ones.

With --launcher=ray they are played on the nodes of a Ray cluster, as those of a sweep are: one at a time on each GPU,
or on each node where the policy runs on the CPU; with --parallel=4 four at a time on each. The table is the same again.
A node that is lost costs the episode that it played, which is played again elsewhere. Each node needs this machine's
environment, and the checkpoint at the same path; recipes are sent there, and episodes and videos come back.

Drawing is most of an episode's time where there is no GPU. Where it is known which observations the policy looks at,
and that the simulator draws nothing else, only those are drawn (--render=needed): actions and outcomes are the same to
the bit, and the answer tells the share of ticks that were drawn.

Each episode is written to episodes.jsonl in the run's folder as soon as it has ended. Ctrl-C keeps and judges what was
played; after a kill --resume=RUN goes on, with the same flags, and plays no episode twice. More --episodes than before
may be asked for then: what was undecided can be decided later.

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

import contextlib
import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strobe.cli import crews, launcher, realtime
from strobe.cli.bounds import at_least, between
from strobe.cli.flags import check_overrides, check_recipe_file
from strobe.cli.late import of_lerobot, realise
from strobe.cli.launcher import RayFlags
from strobe.cli.live import Live, importing
from strobe.cli.parse import (
    MODEL_NAMES,
    POLICY_NAMES,
    ModelFlags,
    PolicyFlags,
    help_text,
    parse,
    policy_help,
    require_subject,
    split_subject,
)
from strobe.cli.realtime import InferenceFlags
from strobe.cli.subject import recipe_notes
from strobe.errors import NotKeptError, UserError, in_words
from strobe.findings.thresholds import Thresholds

if TYPE_CHECKING:
    from lerobot.envs.configs import EnvConfig
else:
    EnvConfig = of_lerobot("lerobot.envs.configs:EnvConfig")


@dataclass
class EvaluateConfig:
    # Where episodes are played: --env.type=pusht, metaworld, aloha …, --env.task=TASK, and other fields of it.
    env: EnvConfig | None = None
    # Numbers of denoising steps to try beside the policy's own, separated by commas: 10,5,2.
    steps: str = ""
    # Recipes to try, separated by commas; each is one variant.
    recipe: str = ""
    # Episodes of each variant on each task, at most.
    episodes: int = field(default=50, metadata=at_least(1))
    # Loss of success rate that counts as not worse, in shares of 1: 0.1 is 10 points.
    margin: float = field(default=0.1, metadata=between(0, 1))
    # Seed of the first episode's start and noise; the next ones follow it. Also of random weights.
    seed: int = field(default=0, metadata=at_least(0))
    # True to time: while the policy thinks, the simulator goes on, on a virtual clock.
    realtime: bool = False
    # With --realtime: of each call, in ms; live, as it takes here (the default); or drawn from the calls of a rollout,
    # rehearsal or evaluation (its folder). Several, separated by commas, are a row each: 0,100,live,runs/RUN.
    latency: str = ""
    # With --realtime: the same in control ticks of the simulator: 0,2,5,20.
    delay_ticks: str = ""
    # With --realtime: as lerobot-rollout's --inference.type=sync, rtc, or both: sync,rtc;
    # --inference.queue_threshold=30, --inference.rtc.execution_horizon=10 and other fields of it.
    inference: InferenceFlags = field(default_factory=InferenceFlags)
    # With --realtime, a tick without an action: last repeats the last one, zero moves nothing. By default as fits the
    # simulator: zero where actions are movements (metaworld, libero), else last.
    hold: str = ""
    # Videos: each variant's episodes on this many first starts, in the report and in the run's folder; 0 for none.
    videos: int = field(default=2, metadata=at_least(0))
    # Rounds in which the latency of a chunk is measured after the episodes, all variants in turn; 0: it is not.
    latency_iterations: int = field(default=10, metadata=at_least(0))
    # Observations to draw: needed, those that the policy looks at, at equal actions; or always, at every tick.
    render: str = "needed"
    # Processes that play episodes side by side: 1, 2 … or auto, one for each core. Each holds a copy of the policy.
    # On a cluster as many on each device: on each GPU, or on each node where the policy runs on the CPU.
    parallel: str = "1"
    # Where episodes are played: local, or ray.
    launcher: str = "local"
    ray: RayFlags = field(default_factory=RayFlags)
    # Go on with the episodes of this run's folder.
    resume: Path | None = None
    # Names in the simulator's observations → names that the policy knows: '{"observation.image": "observation.x"}'.
    rename_map: dict[str, str] = field(default_factory=dict)
    # Device to run on (cpu, cuda, cuda:1, mps); the same as --policy.device.
    device: str | None = None
    # torch's threads on the CPU, in each process; by default as torch chooses, or the cores shared out among processes.
    threads: int | None = field(default=None, metadata=at_least(1))
    # Where run folders go.
    output_dir: Path = Path("runs")
    # Limits at which findings fire.
    thresholds: Thresholds = field(default_factory=Thresholds)


def run(argv: Sequence[str]) -> int:
    """Run the command; see the module's docstring."""
    from strobe.cli import judge_results

    if {"-h", "--help"} & set(argv):
        print(help_text(__doc__ or "", EvaluateConfig, skip=["ray"]))
        print(launcher.HELP)
        print(f"\n{judge_results.help()}")
        print(f"\n{policy_help()}")
        return 0
    if judge_results.asked(argv):
        return judge_results.run(argv)
    flags, config = read(argv)
    started = time.monotonic()
    with Live() as live:
        result, folder, notes = study(flags, config, live)
    from strobe.cli.keep import complete, keep_in, plain

    result.notes += notes
    asked = {"policy": dataclasses.asdict(flags), **plain(config)}
    complete(result, ["evaluate", *argv], started, asked, config.thresholds)
    keep_in(result, folder)
    if result.status == "interrupted":
        print(f"go on    the same command with --resume={folder}")
    return 0 if result.status == "complete" else 130


def read(argv: Sequence[str]) -> tuple[PolicyFlags, EvaluateConfig]:
    """The command's flags, checked. Raises UserError."""
    from strobe.studies.evaluate.sharing import parse_parallel
    from strobe.studies.evaluate.variants import parse_recipes, parse_steps

    flags, rest = split_subject(realtime.spelt_out(argv))
    config = parse(EvaluateConfig, rest, extra=[*POLICY_NAMES, *MODEL_NAMES, "--results", "--same_seeds"])
    require_subject(flags)
    if isinstance(flags, ModelFlags):
        raise UserError("strobe evaluate is for policies: a model does not act")
    if config.env is None:
        raise UserError("where are episodes played? --env.type=pusht, metaworld, aloha …")
    timed_live = realtime.timed_live(config)
    launcher.check(config.launcher, config.ray)
    if config.launcher == "ray" and timed_live:
        raise UserError("--latency=live times the calls as they come, and nodes may differ: say how long, or a run")
    if parse_parallel(config.parallel) > 1 and timed_live:
        raise UserError("--latency=live times the calls as they come: play them one at a time, without --parallel")
    if config.render not in ("needed", "always"):
        raise UserError(f"--render={config.render}: write needed or always")
    check_overrides(flags, config.device)
    realtime.check(config)
    parse_steps(config.steps)
    for path in parse_recipes(config.recipe):
        check_recipe_file(flags, path)
    return flags, config


def study(flags: PolicyFlags, config: EvaluateConfig, live: Live) -> tuple[Any, Path, list[str]]:
    """Load the policy, play and judge. Returns the result, its folder, and notes for it.

    Raises:
        UserError: wrong input, before an episode is played; or an episode fails.
        KeyboardInterrupt: no episode has ended by then.
    """
    live.stage(f"importing what {flags.path or flags.type} needs")
    import torch

    from strobe.studies.evaluate.sharing import parse_parallel, threads_of

    count = parse_parallel(config.parallel)
    threads = threads_of(config.threads, count, config.resume)
    if threads is not None and (count == 1 or config.threads is not None):
        torch.set_num_threads(threads)
    with crews.crew(config, live) as crew:
        return _study(flags, config, crew, threads or torch.get_num_threads(), live)


def _study(
    flags: PolicyFlags, config: EvaluateConfig, crew: Any, threads: int, live: Live
) -> tuple[Any, Path, list[str]]:
    with importing(told=True):
        from strobe.policies import loading
        from strobe.studies.evaluate.evaluate import evaluate
        from strobe.studies.evaluate.plan import Plan
        from strobe.studies.evaluate.realtime import RealtimeStage, require_engine
        from strobe.studies.evaluate.stage import Stage
        from strobe.studies.evaluate.timings import timed
        from strobe.studies.evaluate.variants import candidates, parse_recipes, parse_steps
        from strobe.studies.evaluate.videos import Filming
    realise(config)
    live.stage(f"loading {flags.path or flags.type}")
    subject = loading.load_subject(
        path=flags.path,
        policy_type=flags.type,
        size=flags.size,
        overrides=flags.overrides,
        env=config.env,
        seed=config.seed,
        rename=config.rename_map or None,
    )
    recipes = parse_recipes(config.recipe)
    found = candidates(subject, parse_steps(config.steps), recipes)
    timings = realtime.timings(config) if config.realtime else []
    for one in timings:
        require_engine(subject.policy, one.engine)
    live.stage(f"starting {config.env.type if config.env is not None else ''}")
    rendering: Any = config.render
    stage = (RealtimeStage if timings else Stage)(config.env, subject, rendering)
    try:
        rows = timed(found.all, timings) if timings else found.all
        plan = Plan(rows, stage.tasks, config.episodes, config.margin, config.seed)
        log, folder = _log(config, _asked(config, subject, plan, threads), subject.info.name)
        live.said(f"each episode is kept in {log.path}")
        assert config.env is not None  # `read` saw to it
        films = Filming(stage, plan, config.videos, folder, config.env.fps)
        # True to time, many rows are one variant, whose chunk takes as long in all of them.
        iterations = 0 if timings else config.latency_iterations
        try:
            player = films
            if crew is not None:
                crews.begin(crew, flags, config, subject, threads, timings, films, live)
                player = crew
            result = evaluate(subject, stage.environment, plan, player, log, live, iterations)
            result.videos = films.videos(log.episodes)
            result.notes += films.notes
        except UserError as error:
            kept = f"; the episodes before it are kept: --resume={folder}" if log.episodes else ""
            raise UserError(f"{error}{kept}") from error
        except OSError as error:
            raise NotKeptError(f"cannot write {log.path}: {in_words(error)}; go on with --resume={folder}") from None
        finally:
            log.close()
            if not log.episodes and config.resume is None:  # nothing of a run that played nothing
                log.path.unlink(missing_ok=True)
                with contextlib.suppress(OSError):
                    folder.rmdir()
    finally:
        stage.close()
    notes = [*found.notes, *(note for path in recipes for note in recipe_notes(path))]
    if timings:
        notes += realtime.notes(config, timings, log.episodes.values())
    return result, folder, notes


def _asked(config: EvaluateConfig, subject: Any, plan: Any, threads: int) -> Any:
    """Everything that a run must have asked for alike, to be gone on with."""
    from strobe.cli.keep import plain
    from strobe.policies.fingerprint import fingerprint
    from strobe.runs.episode_log import Asked

    settings = {name: value for name, value in plain(subject.policy.config).items() if name != "pretrained_path"}
    return Asked(
        policy=f"{subject.info.name} ({subject.info.source}, {subject.info.size})",
        weights=fingerprint(subject.policy),
        settings=settings,
        environment={"type": getattr(config.env, "type", ""), **plain(config.env)},
        tasks=list(plan.tasks),
        variants={one.name: one.written for one in plan.candidates},
        margin=config.margin,
        seed=config.seed,
        rename_map=config.rename_map,
        episodes=config.episodes,
        threads=threads,
    )


def _log(config: EvaluateConfig, asked: Any, about: str) -> tuple[Any, Path]:
    from strobe.runs import store
    from strobe.runs.episode_log import EpisodeLog

    if config.resume is not None:
        folder = config.resume if config.resume.is_dir() else config.resume.parent
        return EpisodeLog.resume(folder, asked), folder
    try:
        folder = store.new_run(config.output_dir, "evaluate", about)
        return EpisodeLog.begin(folder, asked), folder
    except OSError as error:
        where = f"{config.output_dir}: {in_words(error)}"
        raise NotKeptError(f"cannot keep the run in {where}; name another folder with --output_dir") from None
