"""Shared by the commands that play episodes: their flags, who plays, and the log of episodes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strobe.core.cli.bounds import at_least, between, one_of
from strobe.core.cli.flags import OutputFlags
from strobe.core.cli.live import Live
from strobe.core.cli.runner import Studied, as_json
from strobe.core.errors import NotKeptError, UserError, in_words
from strobe.core.json_text import JsonObject
from strobe.lerobot.flags.lazy_flags import of_lerobot
from strobe.lerobot.flags.run_flags import RayFlags
from strobe.lerobot.policies.options import PolicyOptions

if TYPE_CHECKING:
    from lerobot.envs.configs import EnvConfig

    from strobe.evaluate.episode_log import EpisodeLog, EvaluationRequest
    from strobe.evaluate.episodes.player_spec import PlayerSpec
else:
    EnvConfig = of_lerobot("lerobot.envs.configs:EnvConfig")


@dataclass
class EpisodeFlags(OutputFlags):
    """Flags of a command that plays episodes."""

    # The simulator that plays the episodes: --env.type=pusht, metaworld, aloha …, --env.task=TASK, and its other
    # fields.
    env: EnvConfig | None = None
    # Recipes to try, separated by commas. Each is one variant.
    recipe: str = ""
    # Loss of success rate that still counts as not worse, as a share: 0.1 is 10 points.
    margin: float = field(default=0.1, metadata=between(0, 1))
    # Seed of the first episode's start and noise; the next episodes count up from it. Also the seed of random weights.
    seed: int = field(default=0, metadata=at_least(0))
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


@contextlib.contextmanager
def crew(config: EpisodeFlags, live: Live) -> Iterator[tuple[object, int]]:
    """Yield who plays episodes beside this process, None if it plays alone, and torch's threads of who plays.

    They end with the context. The threads of this process are set.

    Raises:
        UserError: Ray is not installed, or there is no such cluster.
    """
    import torch

    from strobe.evaluate.episodes.settings import parse_parallel, threads_of

    count = parse_parallel(config.parallel)
    threads = threads_of(config.threads, count, config.resume)
    if threads is not None and (count == 1 or config.threads is not None):
        torch.set_num_threads(threads)
    with _workers(config, count, live) as workers:
        yield workers, threads or torch.get_num_threads()


def _workers(config: EpisodeFlags, count: int, live: Live) -> contextlib.AbstractContextManager[object]:
    from strobe.evaluate.episodes.crews import PoolEpisodeRunner, RayEpisodeRunner
    from strobe.evaluate.episodes.settings import parse_each

    if config.launcher == "ray":
        live.stage("joining the Ray cluster")
        return RayEpisodeRunner(config.ray.address, parse_each(config.parallel), live.say)
    # Started before the policy is loaded here: they import torch and LeRobot meanwhile.
    return PoolEpisodeRunner(count) if count > 1 else contextlib.nullcontext()


def resumable(result: Any, folder: Path, flags: PolicyOptions, config: EpisodeFlags) -> Studied:
    """Return the answer of a command that played episodes, saved in their ``folder``, with how to go on."""

    def say_how_to_go_on(_: Path | None) -> list[str]:
        return [f"continue with the same command and --resume={folder}"] * (result.status == "interrupted")

    options = {"policy": flags, **vars(config)}
    return Studied(result, options, None, config.thresholds, folder=folder, after=say_how_to_go_on)


@dataclass(frozen=True)
class CrewStart:
    """The policy, the flags and the rows that workers get ready to play.

    Args:
        rows_of: makes the rows of the policy in another process; picklable (`PlayerSpec`).
        videos: first starts of each variant that are filmed.
        films: the `Filming` of this process.
    """

    flags: PolicyOptions
    config: EpisodeFlags
    subject: Any
    threads: int
    rows_of: Any
    videos: int
    films: Any

    def spec(self, **more: Any) -> PlayerSpec:
        """Return the policy as data; ``more``: further fields of `PlayerSpec`."""
        from strobe.core.subjects.subject import fingerprint
        from strobe.evaluate.episodes.player_spec import PlayerSpec, picklable
        from strobe.evaluate.episodes.settings import parse_recipes

        flags, config, subject = self.flags, self.config, self.subject
        return PlayerSpec(
            env=config.env,
            path=flags.path,
            type=flags.type,
            size=flags.size,
            fed=picklable(subject.inputs),
            weights=fingerprint(subject.policy),
            overrides=flags.overrides,
            seed=config.seed,
            rename=config.rename_map,
            rows_of=self.rows_of,
            recipes=parse_recipes(config.recipe),
            rendering="always" if config.render == "always" else "needed",
            threads=self.threads,
            videos=self.videos,
            folder=self.films.folder,
            **more,
        )

    @property
    def each(self) -> str:
        """The threads of a process that plays, in words."""
        return f"{self.threads} thread{'s' * (self.threads > 1)} of torch"


def start_workers(workers: Any, start: CrewStart, live: Live) -> None:
    """Let the workers load the policy. Raises UserError if its copies do not fit into memory."""
    from strobe.evaluate.episodes.crews import PoolEpisodeRunner
    from strobe.evaluate.episodes.player_spec import RemotePlayerSpec, require_memory

    flags, subject, spec, each = start.flags, start.subject, start.spec(), start.each
    if isinstance(workers, PoolEpisodeRunner):
        require_memory([subject], workers.free)
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
        RemotePlayerSpec(spec, tuple(recipe.read_bytes() for recipe in spec.recipes)), kind == "cpu", start.films.write
    )


def request_of(config: EpisodeFlags, subject: Any, plan: Any, episodes: int, threads: int) -> EvaluationRequest:
    """Return the settings that must match for --resume; ``episodes``: of each variant on each task, at most."""
    from strobe.core.subjects.subject import fingerprint

    return _request(
        config,
        plan,
        episodes,
        threads,
        policy=f"{subject.info.name} ({subject.info.source}, {subject.info.size})",
        weights=fingerprint(subject.policy),
        settings=_settings_of(subject),
        variants={candidate.name: candidate.written for candidate in plan.candidates},
    )


def request_of_several(config: EpisodeFlags, subjects: Mapping[str, Any], plan: Any, threads: int) -> EvaluationRequest:
    """Return the same of several policies, by their names, with the fingerprint of each."""
    from strobe.core.subjects.subject import fingerprint

    prints = {name: fingerprint(subject.policy) for name, subject in subjects.items()}
    return _request(
        config,
        plan,
        plan.episodes,
        threads,
        policy=", ".join(subjects),
        weights=", ".join(prints.values()),
        settings={name: _settings_of(subject) for name, subject in subjects.items()},
        variants={name: f"checkpoint {digest}" for name, digest in prints.items()},
    )


def _request(config: EpisodeFlags, plan: Any, episodes: int, threads: int, **of_policies: Any) -> EvaluationRequest:
    from strobe.evaluate.episode_log import EvaluationRequest

    return EvaluationRequest(
        environment={"type": getattr(config.env, "type", ""), **as_json(config.env)},
        tasks=list(plan.tasks),
        margin=config.margin,
        seed=config.seed,
        rename_map=config.rename_map,
        episodes=episodes,
        threads=threads,
        **of_policies,
    )


def _settings_of(subject: Any) -> JsonObject:
    """Return the policy's config as JSON data, without the place that it was loaded from."""
    return {name: value for name, value in as_json(subject.policy.config).items() if name != "pretrained_path"}


@contextlib.contextmanager
def logged(
    config: EpisodeFlags, command: str, asked: EvaluationRequest, about: str, live: Live
) -> Iterator[EpisodeLog]:
    """Yield the log of episodes in the run's folder, new or reopened (--resume). Nothing stays of a run without any.

    Raises:
        UserError: the log cannot be made or reopened; an episode's own, with the folder in which the others are saved.
        NotKeptError: the log cannot be written.
    """
    log, folder = _log(config, command, asked, about)
    live.say(f"each episode is saved in {log.path}")
    try:
        yield log
    except UserError as error:
        saved = f"; the episodes before it are saved: --resume={folder}" if log.episodes else ""
        raise UserError(f"{error}{saved}") from error
    except OSError as error:
        raise NotKeptError(f"cannot write {log.path}: {in_words(error)}; continue with --resume={folder}") from None
    finally:
        log.close()
        if not log.episodes and config.resume is None:
            log.path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                folder.rmdir()


def _log(config: EpisodeFlags, command: str, settings: EvaluationRequest, about: str) -> tuple[EpisodeLog, Path]:
    """Return the log of episodes, new or reopened (--resume), and its folder. Raises UserError."""
    from strobe.core.runs import store
    from strobe.evaluate.episode_log import EpisodeLog

    if config.resume is not None:
        folder = config.resume if config.resume.is_dir() else config.resume.parent
        return EpisodeLog.resume(folder, settings), folder
    try:
        folder = store.new_run(config.output_dir, command, about)
        return EpisodeLog.begin(folder, settings), folder
    except OSError as error:
        where = f"{config.output_dir}: {in_words(error)}"
        raise NotKeptError(f"cannot save the run in {where}; name another folder with --output_dir") from None
