"""Play the episodes of `strobe evaluate`: its own flags, the policy and its variants."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strobe.core.cli.bounds import at_least
from strobe.core.cli.live import Live, importing
from strobe.evaluate import realtime_flags as realtime
from strobe.evaluate.episode_flags import CrewStart, EpisodeFlags, crew, logged, request_of, start_workers
from strobe.evaluate.realtime_flags import RealtimeFlags
from strobe.lerobot.flags.lazy_flags import realise
from strobe.lerobot.policies.options import InputOptions, PolicyOptions


@dataclass
class EvaluateConfig(EpisodeFlags, RealtimeFlags):
    """Flags of `strobe evaluate` where it plays episodes."""

    # Checkpoints to choose the best of: folders, separated by commas or spaces. They take the place of --policy.path.
    policies: str = ""
    # Numbers of denoising steps to try besides the policy's own, separated by commas: 10,5,2.
    steps: str = ""
    # Numbers of actions to execute of each chunk, besides the policy's own, separated by commas: 10,25,50.
    n_action_steps: str = ""
    # The most episodes of each variant on each task.
    episodes: int = field(default=50, metadata=at_least(1))
    # Make videos of each variant's episodes on this many first starts, for the report and the run's folder; 0 for none.
    videos: int = field(default=2, metadata=at_least(0))
    # Rounds that measure the latency of a chunk after the episodes, all variants in turn; 0 skips it.
    latency_iterations: int = field(default=10, metadata=at_least(0))


def evaluate(flags: PolicyOptions, config: EvaluateConfig, live: Live) -> tuple[object, Path]:
    """Load the policy, play its episodes and judge them. Return the result, and its folder.

    Raises:
        UserError: wrong input, before an episode is played; or an episode fails.
        KeyboardInterrupt: no episode has ended by then.
    """
    with crew(config, live) as (workers, threads):
        return _evaluate(flags, config, workers, threads, live)


def _evaluate(
    flags: PolicyOptions, config: EvaluateConfig, workers: Any, threads: int, live: Live
) -> tuple[object, Path]:
    from strobe.lerobot.flags.subject import recipe_notes

    with importing(announced=True):
        from strobe.evaluate import run as study
        from strobe.evaluate.episodes.play import Plan
        from strobe.evaluate.episodes.realtime import RealtimeEpisodeRunner, require_engine
        from strobe.evaluate.episodes.settings import parse_recipes, parse_steps
        from strobe.evaluate.episodes.stage import LocalEpisodeRunner
        from strobe.evaluate.episodes.videos import Filming
        from strobe.evaluate.settings import EvaluatedRows, parse_executed
        from strobe.lerobot.policies import loading
        from strobe.preflight.wiring.of_run import wiring_of_run
    realise(config)
    live.stage(f"loading {flags.path or flags.type}")
    assert config.env is not None  # checked when it was read
    source = InputOptions(env=config.env, rename=config.rename_map)
    subject = loading.load_subject(flags, source, seed=config.seed)
    recipes = parse_recipes(config.recipe)
    timings = realtime.timings(config, config.env) if config.realtime else []
    rows_of = EvaluatedRows(parse_steps(config.steps), parse_executed(config.n_action_steps), tuple(timings))
    variants = rows_of.candidates(subject, recipes)
    for timing in timings:
        require_engine(subject.policy, timing.engine)
    live.stage(f"starting {config.env.type}")
    rendering: Any = config.render
    stage = (RealtimeEpisodeRunner if timings else LocalEpisodeRunner)(config.env, subject, rendering)
    try:
        plan = Plan(variants.all, stage.tasks, config.episodes, config.margin, config.seed)
        asked = request_of(config, subject, plan, config.episodes, threads)
        # True to time, many rows are one variant, whose chunk takes as long in all of them.
        iterations = 0 if timings else config.latency_iterations
        with logged(config, "evaluate", asked, subject.info.name, live) as log:
            folder = log.path.parent
            films = Filming(stage, plan, config.videos, folder, config.env.fps)
            player = films
            if workers is not None:
                start_workers(workers, CrewStart(flags, config, subject, threads, rows_of, config.videos, films), live)
                player = workers
            result = study.evaluate(subject, stage.environment, plan, player, log, live, iterations, config.env.fps)
            result.videos = films.videos(log.episodes)
            result.notes += films.notes
    finally:
        stage.close()
    result.notes += [*variants.notes, *(note for path in recipes for note in recipe_notes(path))]
    wiring_of_run(flags.path, rename=config.rename_map, settings=flags.overrides).add_to(result)
    if timings:
        result.notes += realtime.notes(config, config.env, timings, log.episodes.values())
    return result, folder
