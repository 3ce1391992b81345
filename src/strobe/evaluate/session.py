"""The life of a command that plays episodes: policies, their simulator, who plays, the log, and the answer.

It is imported once the flags are checked: it brings torch and LeRobot.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar

from strobe.core.cli.live import Live
from strobe.core.cli.runner import to_json
from strobe.core.errors import NotKeptError, UserError, os_error_reason
from strobe.core.results.answer import Result
from strobe.core.runs import store
from strobe.core.subjects.subject import fingerprint
from strobe.evaluate.episode_flags import EpisodeFlags
from strobe.evaluate.episode_log import EpisodeLog, EvaluationRequest
from strobe.evaluate.episodes.crews import Crew, PoolEpisodeRunner, RayEpisodeRunner
from strobe.evaluate.episodes.play import Candidate, Plan, Session
from strobe.evaluate.episodes.player_spec import (
    PlayerSpec,
    PolicySpec,
    RemotePlayerSpec,
    RowsOf,
    make_runner,
    require_memory,
    require_room,
)
from strobe.evaluate.episodes.videos import Filming
from strobe.lerobot.envs.environments import MUJOCO
from strobe.lerobot.flags.lazy_flags import realise
from strobe.lerobot.policies import loading
from strobe.lerobot.policies.options import InputOptions, PolicyOptions
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.policy_cli.subject import recipe_notes
from strobe.preflight.findings.wiring import dangerous
from strobe.preflight.wiring.of_run import wiring_of_run

R = TypeVar("R", bound=Result)
Policies = Mapping[str, PolicyOptions]  # by their names; '' is that of the only one
Subjects = Mapping[str, PolicySubject]


@dataclass(frozen=True)
class Request(Generic[R]):
    """What a command plays, and what it makes of it.

    Args:
        rows_of: makes the rows, here and in other processes.
        rows: those that it made here.
        episodes: of each row on each task, at most.
        study: plays and judges.
        videos: first starts of each row that are filmed.
        notes: on rows that were asked for and are not among them.
        full_reward: as of `Plan`.
    """

    rows_of: RowsOf
    rows: Sequence[Candidate]
    episodes: int
    study: Callable[[Session, Filming], R]
    videos: int = 0
    notes: list[str] = field(default_factory=list)
    full_reward: float | None = None


def play(
    command: str,
    policies: Policies,
    config: EpisodeFlags,
    crew: Crew,
    live: Live,
    request_of: Callable[[Subjects], Request[R]],
) -> tuple[R, Path]:
    """Load the policies, play their episodes and judge them. Return the answer, and its folder.

    Raises:
        UserError: wrong input, before an episode is played; or an episode fails.
        KeyboardInterrupt: no episode has ended by then.
    """
    realise(config)
    env = config.simulator
    subjects = _load_policies(policies, config, live)
    request = request_of(subjects)
    live.stage(f"starting {env.type}")
    runner = make_runner(env, subjects, request.rows, config.rendering)
    try:
        plan = Plan(request.rows, runner.tasks, request.episodes, config.margin, config.seed, request.full_reward)
        asked = _evaluation_request(config, subjects, plan, crew.threads)
        about = subjects[""].info.name if "" in subjects else f"{len(subjects)} checkpoints"
        with _open_log(config, command, asked, about, live) as log:
            folder = log.path.parent
            films = Filming(runner, plan, request.videos, folder, env.fps)
            if crew.workers is not None:
                specs = {name: PolicySpec.from_subject(policies[name], subject) for name, subject in subjects.items()}
                spec = PlayerSpec(config, specs, request.rows_of, crew.threads, request.videos, folder)
                _start(crew.workers, spec, subjects, films, live)
            player = crew.workers if crew.workers is not None else films
            result = request.study(Session(runner.environment, plan, player, log, live, env.fps), films)
            result.notes += films.notes
    finally:
        runner.close()
    result.notes += [*request.notes, *(note for path in config.recipe for note in recipe_notes(path))]
    _look_at_wiring(result, policies, config)
    return result, folder


def _load_policies(policies: Policies, config: EpisodeFlags, live: Live) -> dict[str, PolicySubject]:
    """Return all policies, in memory at once. Raises UserError if they do not fit."""
    subjects: dict[str, PolicySubject] = {}
    source = InputOptions(env=config.env, rename=config.rename_map)
    for name, options in policies.items():
        if subjects:
            waiting = [str(other.path) for key, other in policies.items() if key not in subjects]
            require_room("--policies", waiting, next(iter(subjects.values())).device)
        which = f"{name} ({len(subjects) + 1} of {len(policies)})" if name else options.path or options.type
        live.stage(f"loading {which}")
        try:
            subjects[name] = loading.load_subject(options, source, seed=config.seed)
        except UserError as error:
            raise UserError(f"--policies: {name}: {error}" if name else str(error)) from None
    return subjects


def _start(
    workers: PoolEpisodeRunner | RayEpisodeRunner, spec: PlayerSpec, subjects: Subjects, films: Filming, live: Live
) -> None:
    """Let the workers load the policies. Raises UserError if their copies do not fit into memory."""
    each = f"{spec.threads} thread{'s' * (spec.threads > 1)} of torch"
    if isinstance(workers, PoolEpisodeRunner):
        require_memory(subjects.values(), workers.free)
        own = "its own policy, simulator" if "" in subjects else f"all {len(subjects)} checkpoints"
        live.say(f"{workers.free} processes play episodes side by side, each with {own} and {each}")
        workers.begin(spec)
        return
    kind, policy = subjects[""].device.type, spec.policies[""]
    path = policy.options.path
    # The one device that a node's player sees is its first; without a flag LeRobot would choose by the node.
    overrides = [flag for flag in policy.options.overrides if not flag.startswith("--device=")]
    options = replace(
        policy.options,
        path=str(Path(path).absolute()) if path and Path(path).is_dir() else path,
        overrides=[*overrides, f"--device={kind}"],
    )
    live.say(f"players on the cluster's nodes load the policy, each with its own simulator and {each}")
    spec = replace(spec, policies={"": replace(policy, options=options)})
    recipes = tuple(recipe.read_bytes() for recipe in spec.config.recipe)
    workers.begin(RemotePlayerSpec(spec, recipes), kind == "cpu", films.write)


def _evaluation_request(config: EpisodeFlags, subjects: Subjects, plan: Plan, threads: int) -> EvaluationRequest:
    """Return the settings that must match for --resume; of several policies all, with the fingerprint of each."""
    prints = {name: fingerprint(subject.policy) for name, subject in subjects.items()}
    settings = {name: to_json(subject.policy.config) for name, subject in subjects.items()}
    for fields in settings.values():
        fields.pop("pretrained_path", None)
    several, kind = "" not in subjects, config.simulator.type
    renderer = {"MUJOCO_GL": os.environ.get("MUJOCO_GL", "unset")} if kind in MUJOCO else {}
    info = next(iter(subjects.values())).info
    return EvaluationRequest(
        policy=", ".join(subjects) if several else f"{info.name} ({info.source}, {info.size})",
        weights=", ".join(prints.values()),
        settings=dict(settings) if several else settings[""],
        variants={row.name: f"checkpoint {prints[row.policy]}" if several else row.written for row in plan.candidates},
        environment={"type": kind, **to_json(config.env), **renderer},
        tasks=list(plan.tasks),
        margin=config.margin,
        score="success" if plan.full_reward is None else f"progress of {plan.full_reward:g}",
        seed=config.seed,
        rename_map=config.rename_map,
        episodes=plan.episodes,
        threads=threads,
    )


@contextlib.contextmanager
def _open_log(
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
        raise NotKeptError(
            f"cannot write {log.path}: {os_error_reason(error)}; continue with --resume={folder}"
        ) from None
    finally:
        log.close()
        if not log.episodes and config.resume is None:
            log.path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                folder.rmdir()


def _log(config: EpisodeFlags, command: str, asked: EvaluationRequest, about: str) -> tuple[EpisodeLog, Path]:
    """Return the log of episodes, new or reopened (--resume), and its folder. Raises UserError."""
    if config.resume is not None:
        folder = config.resume if config.resume.is_dir() else config.resume.parent
        return EpisodeLog.resume(folder, asked), folder
    try:
        folder = store.new_run(config.output_dir, command, about)
        return EpisodeLog.begin(folder, asked), folder
    except OSError as error:
        where = f"{config.output_dir}: {os_error_reason(error)}"
        raise NotKeptError(f"cannot save the run in {where}; name another folder with --output_dir") from None


def _look_at_wiring(result: Result, policies: Policies, config: EpisodeFlags) -> None:
    for name, options in policies.items():
        look = wiring_of_run(options.path, rename=config.rename_map, settings=options.overrides)
        if not name:
            look.extend_result(result)
            continue
        wrong = [] if look.wiring is None else dangerous(look.wiring)
        result.notes += [f"{name}: {each.title}; see strobe preflight --policy.path={options.path}" for each in wrong]
        result.notes += [f"{name}: {note}" for note in look.notes]
