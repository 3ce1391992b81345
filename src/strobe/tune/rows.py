"""From a setting to what is played: treatments of the policy, and the timing of its calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strobe.core.errors import UserError
from strobe.core.families.capabilities import LiveFields
from strobe.core.families.registry import registered, steps_field, steps_of
from strobe.core.treatments.recipe import rungs_of
from strobe.core.treatments.treatment import Treatment, Variant
from strobe.evaluate.episodes.settings import FIRST
from strobe.evaluate.episodes.timings import RequestedTiming, TimedCandidate
from strobe.lerobot.config_fields import ENSEMBLED, QUEUED, Settings
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.tune.settings import THRESHOLD, PolicyFacts, TunedSetting

if TYPE_CHECKING:
    from strobe.evaluate.episodes.timings import Latency
    from strobe.simulators.held_action import Hold


@dataclass(frozen=True)
class TunedCandidate(TimedCandidate):
    """A setting at one latency; ``flags``: those of its program that make it."""

    setting: TunedSetting | None = None
    flags: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The setting and the latency: 'rtc, horizon 10, queue 30, at 100 ms'."""
        assert self.setting is not None
        assert self.timing is not None
        return f"{self.setting.name}, at {self.timing.latency.name}"


@dataclass(frozen=True)
class TuneRows:
    """The settings of a tuning as data, from which another process makes the same candidates; picklable.

    Args:
        settings: of each latency, in the order of the latencies.
        fps: control ticks per second.
    """

    latencies: tuple[Latency, ...]
    settings: tuple[tuple[TunedSetting, ...], ...]
    hold: Hold
    fps: float

    def __call__(self, subject: PolicySubject, recipes: Sequence[Path]) -> list[TunedCandidate]:
        """Make the candidates, each put on ``subject`` once to see that it applies. Raises UserError."""
        by_name = {path.name: path for path in recipes}
        made = [
            self._candidate(subject, setting, latency, by_name)
            for latency, settings in zip(self.latencies, self.settings, strict=True)
            for setting in settings
        ]
        for candidate in made:
            try:
                candidate.variant.apply(subject)()
            except UserError as error:
                raise UserError(f"'{candidate.name}' does not apply: {error}") from None
        return made

    def _candidate(
        self, subject: PolicySubject, setting: TunedSetting, latency: Latency, recipes: Mapping[str, Path]
    ) -> TunedCandidate:
        config: Any = subject.policy.config
        values: dict[str, object] = {}
        if setting.executed is not None and setting.executed != config.n_action_steps:
            values[QUEUED] = setting.executed
        if setting.steps is not None:
            values[steps_field(config)] = setting.steps
        flags = setting.flags(steps_field(config))
        treatments: list[Treatment] = []
        if setting.coefficient != getattr(config, ENSEMBLED, None):
            # LeRobot's config takes an average with one executed action alone: both change together.
            joint = {QUEUED: values.pop(QUEUED)} if QUEUED in values else {}
            treatments.append(Settings({ENSEMBLED: setting.coefficient, **joint}))
            coefficient = "null" if setting.coefficient is None else f"{setting.coefficient:g}"
            flags.append(f"--policy.{ENSEMBLED}={coefficient}")
        treatments += [Settings({name: value}) for name, value in values.items()]
        treatments += rungs_of(subject, recipes.get(setting.recipe))
        rtc = {
            "execution_horizon": setting.horizon,
            "max_guidance_weight": setting.weight,
            "prefix_attention_schedule": setting.schedule,
        }
        timing = RequestedTiming(
            setting.engine,
            latency,
            self.hold,
            self.fps,
            {name: value for name, value in rtc.items() if value is not None} if setting.engine == "rtc" else {},
            THRESHOLD if setting.threshold is None else setting.threshold,
            client=setting.client,
        )
        # A recorded run has latencies by the name of its variant: those of a recipe are the recipe's.
        variant = Variant(setting.recipe or FIRST, tuple(treatments))
        written = f"{' '.join(flags)} {setting.recipe} | {timing.written}"
        return TunedCandidate(
            variant, written, setting.steps or steps_of(config), setting.recipe, timing, setting, tuple(flags)
        )


def facts_of(subject: PolicySubject) -> PolicyFacts:
    """Return what the policy can be set to. Raises UserError for one without a chunk."""
    from lerobot.rollout.inference.rtc import supports_rtc_inference

    from strobe.rollout.loops.virtual_client import why_not_served

    config: Any = subject.policy.config
    executed = getattr(config, QUEUED, None)
    chunk = subject.traits("inference", 1).chunk_size
    if not executed or not chunk:
        raise UserError(f"strobe tune needs a policy that acts in chunks: '{config.type}' has no {QUEUED}")
    field = steps_field(config)
    return PolicyFacts(
        chunk,
        most_executed(config, chunk),
        executed,
        steps_of(config) if field else None,
        field,
        supports_rtc_inference(subject.policy),
        why_not_served(subject.policy),
        ENSEMBLED in LiveFields.of(registered(config.type)).live,
        getattr(config, ENSEMBLED, None),
    )


def most_executed(config: Any, chunk: int) -> int:
    """Return how many actions the policy can execute before its next call, by its config.

    Diffusion and its kind begin a chunk at the oldest observation, whose actions are past
    (LeRobot's ``DiffusionConfig``: horizon − n_obs_steps + 1).
    """
    past = config.n_obs_steps - 1 if getattr(config, "horizon", None) == chunk else 0
    return max(1, chunk - past)
