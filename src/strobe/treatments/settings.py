"""Another value for a setting that the policy reads on every call, such as the number of denoising steps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from lerobot.policies.pretrained import PreTrainedPolicy

from strobe.errors import UserError, nearest
from strobe.subjects.subject import Phase, Subject
from strobe.treatments.treatment import (
    ANY_PHASE,
    FOR_INFERENCE,
    FOR_TRAINING,
    SETTING,
    Effect,
    Entry,
    Spec,
    Treatment,
    Undo,
    policy_of,
)

# Read at every call, so that a change needs no second copy of the weights. Others shape the weights or are read once.
LIVE = ("num_inference_steps", "num_steps", "n_action_steps", "use_amp", "delay_training", "prefix_attention")
# The phases of those that are not read in all of them.
_PHASES = {
    "num_inference_steps": FOR_INFERENCE,
    "num_steps": FOR_INFERENCE,
    "n_action_steps": FOR_INFERENCE,
    "delay_training": FOR_TRAINING,
}


@dataclass
class Settings(Treatment):
    """``policy.<field> = value`` for fields in ``LIVE``."""

    values: dict[str, Any]
    effect: Effect = "lossy"
    _checked: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        self.key = f"policy.{next(iter(self.values), '')}"
        self.phases = frozenset[Phase]().union(*(_PHASES.get(name, ANY_PHASE) for name in self.values))

    def facts(self) -> dict[str, str | int | float | bool | None]:
        return {f"policy.{name}": value for name, value in self.values.items()}

    def apply(self, subject: Subject) -> Undo:
        policy = policy_of(subject).policy
        self._check(policy)
        # Some models copy a setting at construction (Diffusion's num_inference_steps): change the copies too.
        owners = [policy.config, *policy.modules()]
        before = [(o, name, vars(o)[name]) for o in owners for name in self.values if name in vars(o)]
        for owner, name, _ in before:
            vars(owner)[name] = self.values[name]

        def undo() -> None:
            for owner, name, value in before:
                vars(owner)[name] = value

        return undo

    def _check(self, policy: PreTrainedPolicy) -> None:
        if self._checked:
            return
        config = vars(policy.config)
        for name, value in self.values.items():
            if name not in config:
                raise UserError(f"policy type '{policy.config.type}' has no setting '{name}': {nearest(name, config)}")
            if name not in LIVE:
                raise UserError(
                    f"'policy.{name}' cannot be changed on a built policy: run `strobe breakdown` with and without "
                    "it and compare the runs with `strobe diff`"
                )
            known = config[name]
            if known is not None and not isinstance(value, type(known)):
                raise UserError(f"'policy.{name}' is a {type(known).__name__}, not '{value}'")
        try:
            replace(policy.config, **self.values)  # the config's own check of what goes together
        except ValueError as error:
            raise UserError(" ".join(str(error).split())) from None
        self._checked = True


def _make(spec: Spec) -> Settings:
    return Settings({key.removeprefix("policy."): value for key, value in spec.items()})


def _candidates(subject: Subject) -> list[Spec]:
    """Fewer denoising steps, by halves."""
    config = getattr(getattr(subject.module, "config", None), "__dict__", {})
    name = next((field for field in ("num_inference_steps", "num_steps") if field in config), None)
    if name is None:
        return []
    every = config[name] or config.get("num_train_timesteps")  # Diffusion takes them all unless told otherwise
    halves, steps = [], (every if isinstance(every, int) else 0) // 2
    while steps >= 1:
        halves.append({f"policy.{name}": steps})
        steps //= 2
    return halves


def _parts(_: Subject, spec: Spec) -> tuple[str, ...]:
    steps = {"policy.num_inference_steps", "policy.num_steps"}
    return ("denoise step", "RTC step", "scheduler step") if set(spec) <= steps else ()


ENTRY = Entry(
    "policy.",
    f"policy.FIELD=value, read on every call: {', '.join(LIVE)}",
    "lossy",
    SETTING,
    _make,
    candidates=_candidates,
    parts=_parts,
)
