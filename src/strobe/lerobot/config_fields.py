"""Another value for a setting that the policy reads on every call, such as the number of denoising steps."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from lerobot.policies.pretrained import PreTrainedPolicy
from lerobot.utils.constants import ACTION

from strobe.core.errors import UserError, error_line, nearest
from strobe.core.families.capabilities import LiveFields
from strobe.core.families.registry import find_family, known_families
from strobe.core.results.traits import TreatmentTraits
from strobe.core.subjects.subject import Phase, Subject
from strobe.core.treatments import treatment
from strobe.core.treatments.switch import entry
from strobe.core.treatments.treatment import ANY_PHASE, FOR_INFERENCE, FOR_TRAINING, Spec, Treatment, Undo
from strobe.core.treatments.words import LIVE
from strobe.lerobot.sampling import denoising_steps, steps_field

if TYPE_CHECKING:
    from strobe.lerobot.policies.policy_subject import PolicySubject

# What a policy sizes its queue of actions by, in `reset`.
QUEUED = "n_action_steps"
# ACT's average of all chunks that have an action for the tick (Zhao et al. 2023, algorithm 2); None for no average.
ENSEMBLED = "temporal_ensemble_coeff"


def require_policy(subject: Subject) -> PolicySubject:
    """Return ``subject`` if it is a policy; raises UserError if not."""
    return cast("PolicySubject", treatment.require_policy(subject))  # the only acting subjects that Strobe makes


@dataclass
class Settings(Treatment):
    """``policy.<field> = value`` for fields in ``LIVE``."""

    values: dict[str, Any]
    _checked: bool = field(default=False, init=False, repr=False)
    effect = "lossy"

    def __post_init__(self) -> None:
        self.key = f"policy.{next(iter(self.values), '')}"
        self.phases = frozenset[Phase]().union(*map(_phases, self.values))
        self.changes_execution = not {QUEUED, ENSEMBLED}.isdisjoint(self.values)

    def traits(self) -> TreatmentTraits:
        return TreatmentTraits(key="policy", settings=self.values)

    def apply(self, subject: Subject) -> Undo:
        policy: Any = require_policy(subject).policy
        self._check(policy)
        # Some models copy a setting at construction (Diffusion's num_inference_steps): change the copies too.
        owners = [policy.config, *policy.modules()]
        before = [(o, name, vars(o)[name]) for o in owners for name in self.values if name in vars(o)]
        for owner, name, _ in before:
            vars(owner)[name] = self.values[name]
        # A queue made for another number would hand out the last actions of a chunk and never its first.
        executed = self.values.get(QUEUED)
        queued = executed is not None and (
            any(name == QUEUED and value != executed for _, name, value in before) or _shortest(policy) < executed
        )
        ensembler = vars(policy).get("temporal_ensembler")
        if averaging := ENSEMBLED in self.values:
            _average(policy)
        if queued or averaging:
            _new_queues(policy)

        def undo() -> None:
            for owner, name, value in before:
                vars(owner)[name] = value
            if averaging:
                policy.temporal_ensembler = ensembler
            if queued or averaging:
                _new_queues(policy)

        if queued and executed is not None and (held := _shortest(policy)) < executed:
            undo()
            raise UserError(
                f"the queue of the policy type '{policy.config.type}' holds {held:g} actions, fewer than "
                f"{QUEUED}={executed}"
            )
        return undo

    def _check(self, policy: PreTrainedPolicy) -> None:
        if self._checked:
            return
        config = vars(policy.config)
        for name, value in self.values.items():
            if name not in config:
                raise UserError(f"policy type '{policy.config.type}' has no setting '{name}': {nearest(name, config)}")
            if name not in (*LIVE, steps_field(policy.config), *_live(policy.config)):
                raise UserError(
                    f"'policy.{name}' cannot be changed on a built policy: run `strobe breakdown` with and without "
                    "it and compare the runs with `strobe diff`"
                )
            known = config[name]
            off = name == ENSEMBLED and value is None
            if known is not None and not off and not isinstance(value, type(known)):
                raise UserError(f"'policy.{name}' is a {type(known).__name__}, not '{value}'")
        try:
            replace(policy.config, **self.values)  # the config's own check of what goes together
        except (ValueError, NotImplementedError) as error:
            raise UserError(error_line(error)) from None
        self._checked = True


def _shortest(policy: PreTrainedPolicy) -> float:
    named = [getattr(policy, "_action_queue", None)]
    if isinstance(queues := getattr(policy, "_queues", None), dict):
        named.append(queues.get(ACTION))
    return min((q.maxlen for q in named if isinstance(q, deque) and q.maxlen is not None), default=math.inf)


def _new_queues(policy: Any) -> None:
    # GR00T keeps the length from its construction, which `reset` takes.
    if (length := getattr(policy, "_resolve_action_queue_steps", None)) is not None:
        policy._action_queue_steps = length()
    policy.reset()


def _average(policy: Any) -> None:
    from lerobot.policies.act.modeling_act import ACTTemporalEnsembler

    if (coefficient := policy.config.temporal_ensemble_coeff) is not None:
        policy.temporal_ensembler = ACTTemporalEnsembler(coefficient, policy.config.chunk_size)


def _make(spec: Spec) -> Settings:
    return Settings({key.removeprefix("policy."): value for key, value in spec.items()})


def _candidates(subject: Subject) -> list[Spec]:
    config = getattr(subject.module, "config", None)
    name = steps_field(config)
    halves, steps = [], (denoising_steps(config) or 0) // 2 if name else 0
    while steps >= 1:
        halves.append({f"policy.{name}": steps})
        steps //= 2
    return halves


def _parts(subject: Subject, spec: Spec) -> tuple[str, ...]:
    steps = f"policy.{steps_field(getattr(subject.module, 'config', None))}"
    return ("denoise step", "RTC step", "scheduler step") if set(spec) == {steps} else ()


def _live(config: Any) -> tuple[str, ...]:
    fields = LiveFields.from_family(find_family(config.type))
    return (*fields.live, *fields.live_in_training)


def _phases(name: str) -> frozenset[Phase]:
    if name in (QUEUED, ENSEMBLED) or any(
        name in (fields.steps, *fields.objectives.values()) for fields in _live_fields()
    ):
        return FOR_INFERENCE
    return FOR_TRAINING if any(name in fields.live_in_training for fields in _live_fields()) else ANY_PHASE


def _live_fields() -> Iterator[LiveFields]:
    return map(LiveFields.from_family, known_families())


ENTRY = entry("policy.", _make, candidates=_candidates, parts=_parts)
