"""strobe tune: the settings that make the task succeed, and soonest.

Plays one policy in a simulator, true to time: while the policy computes, the simulator goes on for the latency of a
call (--latency). It searches how the actions of a chunk are executed: the type of inference (sync, Real-Time Chunking,
or LeRobot's async inference with its ways to join chunks), the number of actions that are executed before the next
call, ACT's average of chunks (temporal ensembling), the execution horizon, the threshold of the queue, and what you
add: RTC's guidance weight and schedule, denoising steps, recipes.

Arithmetic comes first. Settings that cannot work at that latency are skipped; the report shows the arithmetic: "a
call lasts 24 ticks, and a chunk has 16 actions". The others play in rounds, all from the same starts. A setting that
is shown to be worse than the leader goes, and so does the lower half of each round. Success ranks before time. Strobe
then plays the winner against the default, the policy as LeRobot runs it, from fresh starts in pairs. Only these pairs
claim something: the best of many settings looks better than it is.

The answer has the flags for lerobot-rollout (of async: for LeRobot's robot client), what they bring over the default
with an interval that holds at any number of pairs, the settings that cannot work, and success against time to task of
all others.

If no setting succeeds, the command ends early and says so: settings do not teach a policy its task.

Each episode is written to episodes.jsonl in the run's folder. After Ctrl-C Strobe answers from the episodes so far.
After a kill, --resume=RUN continues with the same flags and plays no episode twice. --parallel and --launcher=ray play
episodes side by side, as in `strobe evaluate`, with the same answer.

Examples:
  strobe tune --policy.path=FOLDER --env.type=pusht --latency=100
  strobe tune --policy.path=FOLDER --env.type=metaworld --env.task=push-v3 --latency=0,100,300 --parallel=auto
  strobe tune --policy.path=FOLDER --env.type=aloha --latency=runs/ROLLOUT --recipe=fast.yaml
  strobe tune --policy.path=FOLDER --env.type=pusht --latency=100 --inference.type=sync --n_action_steps=4,8,16
  strobe tune --policy.path=FOLDER --env.type=pusht --latency=200 --execution_horizon=10,20 --queue_threshold=20,40
  strobe tune --policy.path=FOLDER --env.type=pusht --latency=100 --resume=runs/RUN
  strobe tune --policy.path=demo --latency=100      the trained policy that comes along, in its simulator

Exit code: 0, 2 for wrong input, 130 when it was interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from strobe.core.cli.bounds import at_least
from strobe.core.cli.live import Live, importing
from strobe.core.cli.parse import parse
from strobe.core.cli.runner import Command, Studied
from strobe.core.errors import UserError
from strobe.evaluate.episode_flags import CrewStart, EpisodeFlags, crew, logged, request_of, resumable, start_workers
from strobe.lerobot.flags.lazy_flags import realise
from strobe.lerobot.flags.run_flags import check_launcher, check_recipe_file
from strobe.lerobot.flags.subject_flags import (
    MODEL_NAMES,
    POLICY_NAMES,
    ModelFlags,
    SubjectFlags,
    check_overrides,
    require_subject,
    split_subject,
    subject_fields,
)
from strobe.lerobot.policies.options import FactoryOptions, InputOptions, PolicyOptions

if TYPE_CHECKING:
    from strobe.tune.results import TuneResult
    from strobe.tune.rows import TuneRows
    from strobe.tune.run import AtLatency
    from strobe.tune.settings import Ranges


@dataclass
class EngineFlag:
    """LeRobot's types of inference."""

    # Types of inference to try, separated by commas: sync, rtc, async. By default all that LeRobot has for the policy.
    type: str = ""


@dataclass
class TuneConfig(EpisodeFlags):
    """Flags of `strobe tune`."""

    # The latency of each call: a number of ms, or the folder of a rollout, rehearsal or evaluation, from whose calls it
    # is drawn. Several, separated by commas, are tuned one after the other: 0,100,runs/RUN.
    latency: str = ""
    # LeRobot's types of inference to try.
    inference: EngineFlag = field(default_factory=EngineFlag)
    # Numbers of actions that sync executes before the next call: 5,10,25. By default a chunk, its halves, and its own.
    n_action_steps: str = ""
    # Execution horizons of rtc to try, in actions: 10,20.
    execution_horizon: str = ""
    # Thresholds of rtc's queue to try, in actions: a call begins when the queue has so many or fewer.
    queue_threshold: str = ""
    # Largest guidance weights of rtc to try: 5,10.
    max_guidance_weight: str = ""
    # Schedules of rtc's prefix weights to try, as LeRobot writes them: LINEAR,EXP.
    prefix_attention_schedule: str = ""
    # Coefficients of ACT's temporal ensembling to try: 0.01,0.1. By default the paper's 0.01, where a call lasts a tick
    # at most.
    temporal_ensemble_coeff: str = ""
    # Ways of async to join two chunks: weighted_average,latest_only,average,conservative. By default all.
    aggregate_fn_name: str = ""
    # Shares of a chunk at which async sends the next observation: 0.5,0.8. By default LeRobot's own, 0.5.
    chunk_size_threshold: str = ""
    # Numbers of denoising steps to try besides the policy's own: 10,5. The simulated latency stays the same for all
    # of them, unless it comes from a run.
    steps: str = ""
    # The most starts of each setting in the rounds, on each task: what an exhaustive search would play.
    starts: int = field(default=100, metadata=at_least(8))
    # The most fresh starts for the winner and the default, on each task.
    pairs: int = field(default=200, metadata=at_least(8))
    # What happens in a tick without an action: last repeats the last action, zero moves nothing. By default the one
    # that fits the simulator.
    hold: str = ""


def read(argv: Sequence[str]) -> tuple[SubjectFlags, TuneConfig]:
    """Return the policy and the command's flags, checked. Raises UserError."""
    from strobe.evaluate.episodes.settings import parse_recipes
    from strobe.simulators.held_action import HOLDS

    flags, rest = split_subject(argv)
    config = parse(TuneConfig, rest, extra=[*POLICY_NAMES, *MODEL_NAMES], exact=subject_fields(flags))
    require_subject(flags)
    assert not isinstance(flags, FactoryOptions)  # refused before
    if isinstance(flags, ModelFlags):
        raise UserError("strobe tune is for policies: a model has no actions")
    if config.env is None:
        raise UserError("name the simulator that plays the episodes: --env.type=pusht, metaworld, aloha …")
    if not config.latency:
        raise UserError("name the latency of a call: --latency=100 (ms), several (0,100,300), or the folder of a run")
    if config.hold not in ("", *HOLDS):
        raise UserError(f"--hold={config.hold}: {' or '.join(HOLDS)}")
    check_launcher(config.launcher, config.ray)
    check_overrides(flags, config.device)
    for path in parse_recipes(config.recipe):
        check_recipe_file(flags, path)
    ranges_of(config)
    _latencies(config)
    return flags, config


def ranges_of(config: TuneConfig) -> Ranges:
    """Return the values that are tried. Raises UserError."""
    from strobe.evaluate.episodes.settings import parse_recipes, parse_steps
    from strobe.evaluate.episodes.timings import parse_engines, parse_joins, parse_shares
    from strobe.tune.settings import Ranges

    return Ranges(
        engines=tuple(parse_engines(config.inference.type)) if config.inference.type else (),
        executed=_numbers("n_action_steps", config.n_action_steps),
        horizons=_numbers("execution_horizon", config.execution_horizon),
        thresholds=_numbers("queue_threshold", config.queue_threshold),
        weights=_numbers("max_guidance_weight", config.max_guidance_weight, float),
        schedules=tuple(filter(None, (part.strip() for part in config.prefix_attention_schedule.split(",")))),
        coefficients=_numbers("temporal_ensemble_coeff", config.temporal_ensemble_coeff, float),
        joins=tuple(parse_joins(config.aggregate_fn_name)),
        shares=tuple(parse_shares(config.chunk_size_threshold)),
        steps=parse_steps(config.steps),
        recipes=tuple(path.name for path in parse_recipes(config.recipe)),
    )


def _numbers(flag: str, text: str, kind: Any = int) -> tuple[Any, ...]:
    """Return ``'5,10'`` as numbers above zero. Raises UserError."""
    from strobe.evaluate.episodes.settings import parse_numbers

    def read(part: str) -> Any:
        try:
            number = kind(part)
        except ValueError:
            return None
        return number if 0 < number < 1e6 else None

    return parse_numbers(f"--{flag}", text, read, "must be a number above zero")


def _latencies(config: TuneConfig) -> list[Any]:
    from strobe.evaluate.episodes.timings import parse_latency
    from strobe.tune.settings import ticks_of

    assert config.env is not None
    latencies = parse_latency(config.latency)
    for latency in latencies:
        ticks_of(latency, config.env.fps)
    return latencies


def study(flags: PolicyOptions, config: TuneConfig, live: Live) -> Studied:
    """Search the settings, and judge the winner.

    Raises:
        UserError: wrong input, before an episode is played; or an episode fails.
        KeyboardInterrupt: no episode has ended by then.
    """
    live.stage(f"importing what {flags.path or flags.type} needs")
    with crew(config, live) as (workers, threads):
        result, folder = _tuned(flags, config, workers, threads, live)
    return resumable(result, folder, flags, config)


def _tuned(
    flags: PolicyOptions, config: TuneConfig, workers: object, threads: int, live: Live
) -> tuple[TuneResult, Any]:
    from strobe.lerobot.flags.subject import recipe_notes

    with importing(announced=True):
        from strobe.evaluate.episodes.play import Plan
        from strobe.evaluate.episodes.realtime import RealtimeEpisodeRunner
        from strobe.evaluate.episodes.settings import parse_recipes
        from strobe.evaluate.episodes.videos import Filming
        from strobe.lerobot.policies import loading
        from strobe.preflight.wiring.of_run import wiring_of_run
        from strobe.tune.run import tune
    realise(config)
    live.stage(f"loading {flags.path or flags.type}")
    assert config.env is not None  # checked when it was read
    source = InputOptions(env=config.env, rename=config.rename_map)
    subject = loading.load_subject(flags, source, seed=config.seed)
    recipes = parse_recipes(config.recipe)
    rows_of, tunings = _planned(subject, config, recipes)
    live.stage(f"starting {config.env.type}")
    rendering: Any = config.render
    stage = RealtimeEpisodeRunner(config.env, subject, rendering)
    try:
        plans = [at(stage.tasks) for at in tunings]
        everything = [candidate for at in plans for candidate in at.plan.candidates]
        plan = Plan(everything, stage.tasks, config.starts, config.margin, config.seed)
        asked = request_of(config, subject, plan, config.starts, threads)
        with logged(config, "tune", asked, subject.info.name, live) as log:
            folder = log.path.parent
            player: Any = stage
            if workers is not None:
                films = Filming(stage, plan, 0, folder, config.env.fps)
                start_workers(workers, CrewStart(flags, config, subject, threads, rows_of, 0, films), live)
                player = workers
            result = tune(subject, stage.environment, plans, player, log, live, config.env.fps)
    finally:
        stage.close()
    result.notes += [note for path in recipes for note in recipe_notes(path)]
    wiring_of_run(flags.path, rename=config.rename_map, settings=flags.overrides).add_to(result)
    return result, folder


def _planned(subject: Any, config: TuneConfig, recipes: Sequence[Any]) -> tuple[TuneRows, list[Any]]:
    """Return the rows of all latencies, and for each latency what makes its plan of the simulator's tasks."""
    from strobe.simulators.held_action import hold_for
    from strobe.tune.rows import TuneRows, facts_of
    from strobe.tune.run import AtLatency
    from strobe.tune.search import SearchPlan
    from strobe.tune.settings import grid, ticks_of

    assert config.env is not None
    latencies, fps = _latencies(config), config.env.fps
    facts, ranges = facts_of(subject), ranges_of(config)
    ticks = [ticks_of(latency, fps) for latency in latencies]
    grids = [grid(facts, ranges, each) for each in ticks]
    if (nothing := next((number for number, each in enumerate(grids) if len(each.settings) < 2), None)) is not None:
        why = next(iter(grids[nothing].left_out.values()), "the default is the only one")
        raise UserError(f"--latency={latencies[nothing].name}: there is no second setting to try: {why}")
    settings = tuple(tuple(each.settings) for each in grids)
    rows_of = TuneRows(tuple(latencies), settings, hold_for(config.env, config.hold), fps)
    candidates = iter(rows_of(subject, recipes))
    played = [[next(candidates) for _ in each] for each in settings]

    def at(number: int) -> Any:
        def planned(tasks: Sequence[str]) -> AtLatency:
            plan = SearchPlan(played[number], tasks, config.starts, config.pairs, config.margin, config.seed)
            return AtLatency(latencies[number].name, ticks[number], plan, grids[number].left_out)

        return planned

    return rows_of, [at(number) for number in range(len(latencies))]


run = Command("tune", __doc__, TuneConfig, read, study, subject="policy", heavy="timed")
