"""Tune: play the settings of each latency in rounds, then the winner against the default in held-out pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lerobot.configs import PreTrainedConfig
from lerobot.rollout.inference.rtc import supports_rtc_inference

from strobe.core.cli.live import Live
from strobe.core.errors import UserError
from strobe.core.families.capabilities import LiveFields
from strobe.core.families.registry import find_family
from strobe.core.measure.statistics import bonferroni
from strobe.core.treatments.recipe import load_rungs
from strobe.core.treatments.treatment import Treatment, Variant
from strobe.evaluate import session as playing
from strobe.evaluate.episodes.crews import Crew
from strobe.evaluate.episodes.play import FIRST, Candidate, Session
from strobe.evaluate.episodes.timings import Latency, RequestedTiming, parse_latency
from strobe.evaluate.measure.best_arm import mean_s
from strobe.evaluate.measure.success_rates import LEVEL, success_rate
from strobe.evaluate.measure.time_to_task import judge_pairs
from strobe.evaluate.run import begin, require_applies
from strobe.lerobot.config_fields import ENSEMBLED, QUEUED, Settings
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.lerobot.sampling import denoising_steps, steps_field
from strobe.loops.virtual_client import unserved_reason
from strobe.simulators.held_action import Hold, choose_hold
from strobe.tune.results import Closing, SettingRow, TuneResult, Tuning
from strobe.tune.search import Search, SearchPlan
from strobe.tune.settings import THRESHOLD, Grid, PolicyFacts, TuneConfig, TunedSetting, grid, latency_ticks

NOT_TRIED = (
    "interpolation between actions (--interpolation_multiplier) and another control rate (--fps): a simulator steps at "
    "a rate of its own"
)


def tune_policy(config: TuneConfig, crew: Crew, live: Live) -> tuple[TuneResult, Path]:
    """Load the policy, search its settings and judge the winner, as `session.play` does."""

    def make_request(subjects: playing.Subjects) -> playing.Request[TuneResult]:
        (subject,) = subjects.values()
        env, facts = config.simulator, policy_facts(subject)
        grids = list(_grids(facts, config))
        settings = [(latency, setting) for latency, each in grids for setting in each.settings]
        rows_of = partial(tuned_rows, settings=settings, hold=choose_hold(env, config.hold), fps=env.fps)
        rows = rows_of(subject, config.recipe)

        def study(session: Session, _films: object) -> TuneResult:
            remaining, tunings = iter(session.plan.candidates), []
            for latency, each in grids:
                candidates = [next(remaining) for _ in each.settings]
                plan = SearchPlan(
                    candidates, session.plan.tasks, config.starts, config.margin, config.seed, config.pairs
                )
                tunings.append(AtLatency(latency.name, each, facts, plan))
            return tune(subject, session, tunings)

        return playing.Request(rows_of, rows, config.starts, study)

    return playing.play("tune", {"": config.subject}, config, crew, live, make_request)


def _grids(facts: PolicyFacts, config: TuneConfig) -> Iterator[tuple[Latency, Grid]]:
    """Yield each latency with its settings. Raises UserError where there is no second one."""
    for latency in parse_latency(config.latency):
        made = grid(facts, config, latency_ticks(latency, config.simulator.fps))
        if len(made.settings) < 2:
            why = next(iter(made.left_out.values()), "the default is the only one")
            raise UserError(f"--latency={latency.name}: there is no second setting to try: {why}")
        yield latency, made


def tuned_rows(
    subject: PolicySubject,
    recipes: Sequence[Path] = (),
    *,
    settings: Sequence[tuple[Latency, TunedSetting]],
    hold: Hold,
    fps: float,
) -> list[Candidate]:
    """Return a candidate of each setting at its latency, applied to ``subject`` once as a check.

    Args:
        fps: control ticks per second.

    Raises:
        UserError: one does not apply.
    """
    by_name, facts = {path.name: path for path in recipes}, policy_facts(subject)
    made = []
    for latency, setting in settings:
        rtc = {
            "execution_horizon": setting.horizon,
            "max_guidance_weight": setting.weight,
            "prefix_attention_schedule": setting.schedule,
        }
        timing = RequestedTiming(
            setting.engine,
            latency,
            hold,
            fps,
            {name: value for name, value in rtc.items() if value is not None} if setting.engine == "rtc" else {},
            THRESHOLD if setting.threshold is None else setting.threshold,
            client=setting.client,
        )
        # A recorded run has latencies by the name of its variant: those of a recipe are the recipe's.
        treatments = [*_treatments(setting, facts), *load_rungs(subject, by_name.get(setting.recipe))]
        candidate = Candidate(
            Variant(setting.recipe or FIRST, tuple(treatments)),
            f"{' '.join(setting.flags(facts))} {setting.recipe} | {timing.settings_text}",
            setting.steps or facts.steps,
            setting.recipe,
            timing,
            title=f"{setting.name}, at {latency.name}",
        )
        require_applies(candidate, subject)
        made.append(candidate)
    return made


def _treatments(setting: TunedSetting, facts: PolicyFacts) -> list[Treatment]:
    values: dict[str, object] = {}
    if setting.executed is not None and setting.executed != facts.executed:
        values[QUEUED] = setting.executed
    if setting.steps is not None:
        values[facts.steps_field] = setting.steps
    treatments: list[Treatment] = []
    if setting.coefficient != facts.coefficient:
        # LeRobot's config takes an average with one executed action alone: both change together.
        joint = {QUEUED: values.pop(QUEUED)} if QUEUED in values else {}
        treatments.append(Settings({ENSEMBLED: setting.coefficient, **joint}))
    return [*treatments, *(Settings({name: value}) for name, value in values.items())]


def policy_facts(subject: PolicySubject) -> PolicyFacts:
    """Return what the policy can be set to. Raises UserError for one without a chunk."""
    config = subject.policy.config
    executed = getattr(config, QUEUED, None)
    chunk = subject.traits("inference", 1).chunk_size
    if not executed or not chunk:
        raise UserError(f"strobe tune needs a policy that acts in chunks: '{config.type}' has no {QUEUED}")
    field = steps_field(config)
    return PolicyFacts(
        chunk,
        most_executed(config, chunk),
        executed,
        denoising_steps(config) if field else None,
        field,
        supports_rtc_inference(subject.policy),
        unserved_reason(subject.policy),
        ENSEMBLED in LiveFields.from_family(find_family(config.type)).live,
        getattr(config, ENSEMBLED, None),
    )


def most_executed(config: PreTrainedConfig, chunk: int) -> int:
    """Return how many actions the policy can execute before its next call, by its config.

    Diffusion and its kind begin a chunk at the oldest observation, whose actions are past
    (LeRobot's ``DiffusionConfig``: horizon − n_obs_steps + 1).
    """
    past = config.n_obs_steps - 1 if getattr(config, "horizon", None) == chunk else 0
    return max(1, chunk - past)


@dataclass(frozen=True)
class AtLatency:
    """The tuning at one latency: its settings, and the search that plays them."""

    latency: str
    grid: Grid
    facts: PolicyFacts
    plan: SearchPlan


def tune(subject: PolicySubject, session: Session, tunings: Sequence[AtLatency]) -> TuneResult:
    """Play each latency's search, one after the other, and judge its winner. Ctrl-C keeps what was played.

    Raises:
        UserError: an episode fails; those before it are in the log.
        KeyboardInterrupt: before the first episode has ended.
    """
    result = begin(TuneResult, subject, f"{subject.info.name}: settings for {session.environment}", session)
    result.not_tried = [f"Not tried: {NOT_TRIED}."]
    for tuning in tunings:
        search = Search(tuning.plan)
        count, most = len(tuning.plan.candidates), tuning.plan.episodes
        session.watching.stage(f"{count} settings at {tuning.latency}, up to {most} starts of each")
        interrupted = session.play(search)
        result.tunings.append(_tuning(tuning, search))
        if interrupted:
            result.status = "interrupted"
            break
    if not any(each.played for each in result.tunings):
        raise KeyboardInterrupt
    return result


def _tuning(tuning: AtLatency, search: Search) -> Tuning:
    plan, rounds = search.plan, search.played_in_rounds()
    rows, names = [], dict[str | None, str]({None: ""})
    for candidate, setting in zip(plan.candidates, tuning.grid.settings, strict=True):
        played = rounds[candidate.name]
        names[candidate.name] = setting.name
        rows.append(
            SettingRow(
                name=setting.name,
                flags=setting.flags(tuning.facts),
                program=setting.program,
                recipe=setting.recipe,
                success=success_rate([each.success for each in played]) if played else None,
                mean_s=mean_s(played) if played else None,
                left=search.left.get(candidate.name, ""),
            )
        )
    return Tuning(
        latency=tuning.latency,
        ticks=tuning.grid.ticks,
        settings=rows,
        left_out=tuning.grid.left_out,
        starts=plan.planned_episodes,
        exhaustive=len(rows) * plan.planned_episodes,
        played=sum(map(len, rounds.values())),
        hopeless=search.hopeless,
        winner=names[search.winner],
        closing=_closing(search),
    )


def _closing(search: Search) -> Closing | None:
    plan, pairs = search.plan, search.pairs()
    if not pairs:
        return None
    default, winner = (success_rate([pair[side].success for pair in pairs]) for side in (0, 1))
    judgement = judge_pairs(pairs, plan.margin, bonferroni(2, LEVEL), len(plan.tasks))
    return Closing(default=default, winner=winner, **judgement._asdict())
