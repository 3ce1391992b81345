"""Play the episodes of `strobe evaluate`: its flags, who plays, the log of episodes, the policy and its variants."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strobe.cli import realtime
from strobe.cli.bounds import at_least, between, one_of
from strobe.cli.flags import OutputFlags, RayFlags
from strobe.cli.lazy_flags import of_lerobot, realise
from strobe.cli.live import Live, importing
from strobe.cli.realtime import RealtimeFlags
from strobe.cli.runner import as_json
from strobe.errors import NotKeptError, UserError, in_words
from strobe.policies.options import InputOptions, PolicyOptions

if TYPE_CHECKING:
    from lerobot.envs.configs import EnvConfig

    from strobe.runs.episode_log import EpisodeLog, Request
else:
    EnvConfig = of_lerobot("lerobot.envs.configs:EnvConfig")


@dataclass
class EvaluateConfig(OutputFlags, RealtimeFlags):
    """Flags of `strobe evaluate` where it plays episodes."""

    # The simulator that plays the episodes: --env.type=pusht, metaworld, aloha …, --env.task=TASK, and its other
    # fields.
    env: EnvConfig | None = None
    # Numbers of denoising steps to try besides the policy's own, separated by commas: 10,5,2.
    steps: str = ""
    # Numbers of actions to execute of each chunk, besides the policy's own, separated by commas: 10,25,50.
    n_action_steps: str = ""
    # Recipes to try, separated by commas. Each is one variant.
    recipe: str = ""
    # The most episodes of each variant on each task.
    episodes: int = field(default=50, metadata=at_least(1))
    # Loss of success rate that still counts as not worse, as a share: 0.1 is 10 points.
    margin: float = field(default=0.1, metadata=between(0, 1))
    # Seed of the first episode's start and noise; the next episodes count up from it. Also the seed of random weights.
    seed: int = field(default=0, metadata=at_least(0))
    # Make videos of each variant's episodes on this many first starts, for the report and the run's folder; 0 for none.
    videos: int = field(default=2, metadata=at_least(0))
    # Rounds that measure the latency of a chunk after the episodes, all variants in turn; 0 skips it.
    latency_iterations: int = field(default=10, metadata=at_least(0))
    # Observations to draw: needed draws those that the policy looks at, with equal actions; always draws every tick.
    render: str = field(default="needed", metadata=one_of("needed", "always"))
    # Processes that play episodes at the same time: 1, 2 … or auto, one for each core. Each holds a copy of the policy.
    # On a cluster, the number on each device: on each GPU, or on each node if the policy runs on the CPU.
    parallel: str = "1"
    # Where Strobe plays episodes: local, or ray.
    launcher: str = field(default="local", metadata=one_of("local", "ray"))
    # The Ray cluster: --ray.address=auto or HOST:PORT (default: a cluster that is found here, else this machine only).
    ray: RayFlags = field(default_factory=RayFlags)
    # Continue the episodes of this run's folder.
    resume: Path | None = None
    # Names in the simulator's observations → names that the policy knows: '{"observation.image": "observation.x"}'.
    rename_map: dict[str, str] = field(default_factory=dict)
    # Device to run on (cpu, cuda, cuda:1, mps); the same as --policy.device.
    device: str | None = None
    # torch's threads on the CPU, in each process. By default torch chooses, or the processes share the cores.
    threads: int | None = field(default=None, metadata=at_least(1))


def evaluate(flags: PolicyOptions, config: EvaluateConfig, live: Live) -> tuple[Any, Path]:
    """Load the policy, play its episodes and judge them. Return the result, and its folder.

    Raises:
        UserError: wrong input, before an episode is played; or an episode fails.
        KeyboardInterrupt: no episode has ended by then.
    """
    import torch

    from strobe.studies.evaluate.settings import parse_parallel, threads_of

    count = parse_parallel(config.parallel)
    threads = threads_of(config.threads, count, config.resume)
    if threads is not None and (count == 1 or config.threads is not None):
        torch.set_num_threads(threads)
    with _workers(config, live) as workers:
        return _evaluate(flags, config, workers, threads or torch.get_num_threads(), live)


def _workers(config: EvaluateConfig, live: Live) -> contextlib.AbstractContextManager[Any]:
    """Return who plays episodes beside this process; they end with the context. None if it plays alone.

    Raises:
        UserError: Ray is not installed, or there is no such cluster.
    """
    from strobe.studies.evaluate.crews import Players, Workers
    from strobe.studies.evaluate.settings import parse_each, parse_parallel

    if config.launcher == "ray":
        live.stage("joining the Ray cluster")
        return Players(config.ray.address, parse_each(config.parallel), live.say)
    count = parse_parallel(config.parallel)
    # Started before the policy is loaded here: they import torch and LeRobot meanwhile.
    return Workers(count) if count > 1 else contextlib.nullcontext()


def _evaluate(flags: PolicyOptions, config: EvaluateConfig, workers: Any, threads: int, live: Live) -> tuple[Any, Path]:
    from strobe.cli.subject import recipe_notes

    with importing(announced=True):
        from strobe.policies import loading
        from strobe.studies.evaluate import run as study
        from strobe.studies.evaluate.play import Plan
        from strobe.studies.evaluate.realtime import RealtimeStage, require_engine
        from strobe.studies.evaluate.settings import candidates, parse_executed, parse_recipes, parse_steps
        from strobe.studies.evaluate.stage import Stage
        from strobe.studies.evaluate.timings import timed
        from strobe.studies.evaluate.videos import Filming
        from strobe.wiring.of_run import wiring_of_run
    realise(config)
    live.stage(f"loading {flags.path or flags.type}")
    assert config.env is not None  # checked when it was read
    source = InputOptions(env=config.env, rename=config.rename_map)
    subject = loading.load_subject(flags, source, seed=config.seed)
    recipes = parse_recipes(config.recipe)
    variants = candidates(subject, parse_steps(config.steps), recipes, parse_executed(config.n_action_steps))
    timings = realtime.timings(config, config.env) if config.realtime else []
    for timing in timings:
        require_engine(subject.policy, timing.engine)
    live.stage(f"starting {config.env.type}")
    rendering: Any = config.render
    stage = (RealtimeStage if timings else Stage)(config.env, subject, rendering)
    try:
        rows = timed(variants.all, timings) if timings else variants.all
        plan = Plan(rows, stage.tasks, config.episodes, config.margin, config.seed)
        log, folder = _log(config, _settings(config, subject, plan, threads), subject.info.name)
        live.say(f"each episode is saved in {log.path}")
        films = Filming(stage, plan, config.videos, folder, config.env.fps)
        # True to time, many rows are one variant, whose chunk takes as long in all of them.
        iterations = 0 if timings else config.latency_iterations
        try:
            player = films
            if workers is not None:
                _start(workers, _Start(flags, config, subject, threads, timings, films), live)
                player = workers
            result = study.evaluate(subject, stage.environment, plan, player, log, live, iterations, config.env.fps)
            result.videos = films.videos(log.episodes)
            result.notes += films.notes
        except UserError as error:
            saved = f"; the episodes before it are saved: --resume={folder}" if log.episodes else ""
            raise UserError(f"{error}{saved}") from error
        except OSError as error:
            raise NotKeptError(f"cannot write {log.path}: {in_words(error)}; continue with --resume={folder}") from None
        finally:
            log.close()
            if not log.episodes and config.resume is None:  # nothing of a run that played nothing
                log.path.unlink(missing_ok=True)
                with contextlib.suppress(OSError):
                    folder.rmdir()
    finally:
        stage.close()
    result.notes += [*variants.notes, *(note for path in recipes for note in recipe_notes(path))]
    wiring_of_run(flags.path, rename=config.rename_map, settings=flags.overrides).add_to(result)
    if timings:
        result.notes += realtime.notes(config, config.env, timings, log.episodes.values())
    return result, folder


@dataclass(frozen=True)
class _Start:
    """The flags and the policy from which workers get ready to play; ``films``: the `Filming` of this process."""

    flags: PolicyOptions
    config: EvaluateConfig
    subject: Any
    threads: int
    timings: Sequence[Any]
    films: Any


def _start(workers: Any, start: _Start, live: Live) -> None:
    """Let the workers load the policy. Raises UserError if its copies do not fit into memory."""
    from strobe.policies.subject import fingerprint
    from strobe.studies.evaluate.crews import Workers
    from strobe.studies.evaluate.player_spec import PlayerSpec, RemotePlayerSpec, picklable, require_memory
    from strobe.studies.evaluate.settings import parse_executed, parse_recipes, parse_steps

    flags, config, subject, threads, films = start.flags, start.config, start.subject, start.threads, start.films
    each = f"{threads} thread{'s' * (threads > 1)} of torch"
    spec = PlayerSpec(
        env=config.env,
        path=flags.path,
        type=flags.type,
        size=flags.size,
        fed=picklable(subject.inputs),
        weights=fingerprint(subject.policy),
        overrides=flags.overrides,
        seed=config.seed,
        rename=config.rename_map,
        steps=parse_steps(config.steps),
        executed=parse_executed(config.n_action_steps),
        recipes=parse_recipes(config.recipe),
        rendering="always" if config.render == "always" else "needed",
        threads=threads,
        timings=tuple(start.timings),
        videos=config.videos,
        folder=films.folder,
    )
    if isinstance(workers, Workers):
        require_memory(subject, workers.free)
        live.say(f"{workers.free} processes play episodes side by side, each with its own policy, simulator and {each}")
        workers.begin(spec)
        return
    kind = subject.device.type
    # The one device that a node's player sees is its first; without a flag LeRobot would choose by the node.
    overrides = [flag for flag in flags.overrides if not flag.startswith("--device=")]
    path = str(Path(flags.path).absolute()) if flags.path and Path(flags.path).is_dir() else flags.path
    spec = replace(spec, path=path, overrides=[*overrides, f"--device={kind}"])
    live.say(f"players on the cluster's nodes load the policy, each with its own simulator and {each}")
    workers.begin(
        RemotePlayerSpec(spec, tuple(recipe.read_bytes() for recipe in spec.recipes)), kind == "cpu", films.write
    )


def _settings(config: EvaluateConfig, subject: Any, plan: Any, threads: int) -> Request:
    """Return the settings that must match for --resume."""
    from strobe.policies.subject import fingerprint
    from strobe.runs.episode_log import Request

    settings = {name: value for name, value in as_json(subject.policy.config).items() if name != "pretrained_path"}
    return Request(
        policy=f"{subject.info.name} ({subject.info.source}, {subject.info.size})",
        weights=fingerprint(subject.policy),
        settings=settings,
        environment={"type": getattr(config.env, "type", ""), **as_json(config.env)},
        tasks=list(plan.tasks),
        variants={candidate.name: candidate.written for candidate in plan.candidates},
        margin=config.margin,
        seed=config.seed,
        rename_map=config.rename_map,
        episodes=config.episodes,
        threads=threads,
    )


def _log(config: EvaluateConfig, settings: Request, about: str) -> tuple[EpisodeLog, Path]:
    """Return the log of episodes, new or reopened (--resume), and its folder. Raises UserError."""
    from strobe.runs import store
    from strobe.runs.episode_log import EpisodeLog

    if config.resume is not None:
        folder = config.resume if config.resume.is_dir() else config.resume.parent
        return EpisodeLog.resume(folder, settings), folder
    try:
        folder = store.new_run(config.output_dir, "evaluate", about)
        return EpisodeLog.begin(folder, settings), folder
    except OSError as error:
        where = f"{config.output_dir}: {in_words(error)}"
        raise NotKeptError(f"cannot save the run in {where}; name another folder with --output_dir") from None
