"""`strobe evaluate --policies`: load several checkpoints, play all of them on the same starts, and eliminate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strobe.core.cli.live import Live, importing
from strobe.core.errors import UserError
from strobe.evaluate.episode_flags import CrewStart, crew, logged, request_of_several
from strobe.evaluate.flags import EvaluateConfig
from strobe.lerobot.flags.lazy_flags import realise
from strobe.lerobot.flags.subject_flags import check_overrides
from strobe.lerobot.policies.options import InputOptions, PolicyOptions

if TYPE_CHECKING:
    from strobe.evaluate.checkpoints import NamedCheckpoint
    from strobe.lerobot.policies.policy_subject import PolicySubject

FLAG = "--policies"


def take_policies(argv: Sequence[str]) -> list[str]:
    """Return ``argv`` with ``--policies A B C``, as a shell expands ``*``, as ``--policies=A,B,C``.

    Raises:
        UserError: the flag names nothing.
    """
    rest, folders, taking = [], list[str](), False
    for argument in argv:
        name, equals, value = argument.partition("=")
        if name == FLAG:
            folders += [value] * bool(equals)
            taking = not equals
        elif taking and not argument.startswith("--"):
            folders.append(argument)
        else:
            taking = False
            rest.append(argument)
    if any(argument.partition("=")[0] == FLAG for argument in argv):
        if not any(folders):
            raise UserError(f"{FLAG} names no checkpoint: {FLAG}=FOLDER_A,FOLDER_B")
        rest.append(f"{FLAG}={','.join(folders)}")
    return rest


def check(flags: PolicyOptions, config: EvaluateConfig) -> None:
    """Check the flags of several checkpoints. Raises UserError."""
    from strobe.evaluate.checkpoints import parse_policies

    if flags.path or flags.type:
        raise UserError(f"{FLAG} names the checkpoints: leave out --policy.path and --policy.type")
    refused = {"--realtime": config.realtime, "--steps": config.steps, "--recipe": config.recipe}
    refused["--n_action_steps"] = config.n_action_steps
    if given := next((name for name, value in refused.items() if value), None):
        raise UserError(f"{given} is for variants of one policy, and {FLAG} plays several as they are: leave one out")
    if config.launcher == "ray":
        raise UserError(f"{FLAG} plays on this machine: leave out --launcher=ray, and give --parallel=auto")
    for checkpoint in parse_policies(config.policies).all:
        check_overrides(options_of(flags, checkpoint), config.device)


def options_of(flags: PolicyOptions, checkpoint: NamedCheckpoint) -> PolicyOptions:
    """Return the checkpoint with the settings that ``--policy.*`` gives to all."""
    return PolicyOptions(path=checkpoint.path, overrides=list(flags.overrides))


def evaluate_checkpoints(flags: PolicyOptions, config: EvaluateConfig, live: Live) -> tuple[object, Path]:
    """Load the checkpoints, play their episodes and judge them. Return the result, and its folder.

    Raises:
        UserError: wrong input, before an episode is played; or an episode fails.
        KeyboardInterrupt: no episode has ended by then.
    """
    with crew(config, live) as (workers, threads):
        return _evaluate(flags, config, workers, threads, live)


def _evaluate(
    flags: PolicyOptions, config: EvaluateConfig, workers: object, threads: int, live: Live
) -> tuple[object, Path]:
    with importing(announced=True):
        from strobe.evaluate.checkpoints import CheckpointRows, parse_policies
        from strobe.evaluate.eliminate import eliminate
        from strobe.evaluate.episodes.play import Plan
        from strobe.evaluate.episodes.stage import EpisodeRunnerByVariant, LocalEpisodeRunner
        from strobe.evaluate.episodes.videos import Filming
    realise(config)
    assert config.env is not None  # checked when it was read
    named = parse_policies(config.policies)
    options = {each.name: options_of(flags, each) for each in named.all}
    for each in options.values():
        check_overrides(each, config.device)
    subjects = _loaded(options, config, live)
    live.stage(f"starting {config.env.type}")
    rendering: Any = config.render
    stages: dict[str, LocalEpisodeRunner] = {}
    try:
        for name, subject in subjects.items():
            stages[name] = LocalEpisodeRunner(config.env, subject, rendering, name)
        stage = EpisodeRunnerByVariant(stages)
        rows_of = CheckpointRows(tuple(subjects))
        plan = Plan(rows_of(), stage.tasks, config.episodes, config.margin, config.seed)
        asked = request_of_several(config, subjects, plan, threads)
        with logged(config, "evaluate", asked, f"{len(subjects)} checkpoints", live) as log:
            folder = log.path.parent
            films = Filming(stage, plan, config.videos, folder, config.env.fps)
            player: Any = films
            if workers is not None:
                starts = {
                    name: CrewStart(options[name], config, subject, threads, rows_of, config.videos, films)
                    for name, subject in subjects.items()
                }
                _start_workers(workers, starts, live)
                player = workers
            result = eliminate(named.all, subjects, stage.environment, plan, player, log, live, config.env.fps)
            result.videos = films.videos(log.episodes)
            result.notes += films.notes
    finally:
        for stage_of_one in stages.values():
            stage_of_one.close()
    result.notes += [*named.notes, *_wiring_notes(options, config)]
    return result, folder


def _loaded(options: Mapping[str, PolicyOptions], config: EvaluateConfig, live: Live) -> dict[str, PolicySubject]:
    """Return all checkpoints, in memory at once. Raises UserError if they do not fit."""
    from strobe.evaluate.episodes.player_spec import require_room
    from strobe.lerobot.policies import loading

    subjects: dict[str, PolicySubject] = {}
    for name, each in options.items():
        if subjects:
            waiting = [str(other.path) for key, other in options.items() if key not in subjects]
            require_room(FLAG, waiting, next(iter(subjects.values())).device)
        live.stage(f"loading {name} ({len(subjects) + 1} of {len(options)})")
        source = InputOptions(env=config.env, rename=config.rename_map)
        try:
            subjects[name] = loading.load_subject(each, source, seed=config.seed)
        except UserError as error:
            raise UserError(f"{FLAG}: {name}: {error}") from None
    return subjects


def _start_workers(workers: Any, starts: Mapping[str, CrewStart], live: Live) -> None:
    """Let the workers load all checkpoints. Raises UserError if their copies do not fit into memory."""
    from strobe.evaluate.episodes.player_spec import SeveralSpecs, require_memory

    require_memory([start.subject for start in starts.values()], workers.free)
    each = next(iter(starts.values())).each
    live.say(f"{workers.free} processes play episodes side by side, each with all {len(starts)} checkpoints and {each}")
    workers.begin(SeveralSpecs({name: start.spec(first=name) for name, start in starts.items()}))


def _wiring_notes(options: Mapping[str, PolicyOptions], config: EvaluateConfig) -> list[str]:
    """Return what is seriously wrong in how a checkpoint is wired, and what could not be looked at."""
    from strobe.preflight.findings.wiring import dangerous
    from strobe.preflight.wiring.of_run import wiring_of_run

    notes = []
    for name, each in options.items():
        look = wiring_of_run(each.path, rename=config.rename_map, settings=each.overrides)
        wrong = [] if look.wiring is None else dangerous(look.wiring)
        notes += [f"{name}: {finding.title}; see strobe preflight --policy.path={each.path}" for finding in wrong]
        notes += [f"{name}: {note}" for note in look.notes]
    return notes
