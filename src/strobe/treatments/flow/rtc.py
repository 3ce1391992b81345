"""Real-Time Chunking on: the chunk is guided to continue the previous one (Black et al. 2025; LeRobot's RTCProcessor).

Measured as ``lerobot-rollout`` calls it in the middle of an episode: with what is left of a previous chunk, cut to the
execution horizon, and an inference delay. (The very first chunk of an episode has nothing to continue and costs the
same as one without RTC.)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from lerobot.policies.rtc.configuration_rtc import RTCConfig
from torch import Tensor

from strobe.core.errors import UserError
from strobe.core.results import traits as records
from strobe.core.results.traits import TreatmentTraits
from strobe.core.subjects.subject import ActingSubject, Subject
from strobe.core.treatments.treatment import FOR_INFERENCE, Treatment, Undo
from strobe.lerobot.policies.policy_of import policy_of
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.lerobot.versions import types_with_rtc

_PREVIOUS_SEED = 1_000_003  # the previous chunk has noise of its own


@dataclass
class RealTimeChunking(Treatment):
    """RTC with ``config``; ``inference_delay`` in control ticks."""

    config: RTCConfig
    inference_delay: int
    _left_over: Tensor | None = field(default=None, init=False, repr=False)
    effect = "lossy"
    key = "rtc"
    phases = FOR_INFERENCE
    guided = True

    def traits(self) -> TreatmentTraits:
        guidance = records.RealTimeChunking(
            execution_horizon=self.config.execution_horizon,
            inference_delay=self.inference_delay,
            max_guidance_weight=self.config.max_guidance_weight,
            prefix_attention_schedule=str(self.config.prefix_attention_schedule.value),
        )
        return TreatmentTraits(key=self.key, value=True, rtc=guidance)

    def apply(self, subject: Subject) -> Undo:
        require(subject)
        owner = policy_of(subject)
        policy: Any = owner.policy
        if self._left_over is None:
            self._left_over = self._previous_chunk(owner)
        before, options = configured(policy), owner.chunk_options
        switch(policy, self.config)
        owner.chunk_options = {
            **options,
            "inference_delay": self.inference_delay,
            "prev_chunk_left_over": self._left_over,
        }

        def undo() -> None:
            owner.chunk_options = options
            switch(policy, before)

        return undo

    def _previous_chunk(self, subject: PolicySubject) -> Tensor:
        # rollout/inference/rtc.py: left over = the chunk from the actions executed so far, cut to the horizon.
        before = configured(subject.policy)
        switch(subject.policy, None)
        chunk = subject.model_chunk(_PREVIOUS_SEED)[0]
        switch(subject.policy, before)
        executed = min(max(self.inference_delay, 1), chunk.shape[0] - 1)
        left_over = chunk[executed : executed + self.config.execution_horizon].clone()
        if left_over.shape[0] < self.config.execution_horizon:
            padded = left_over.new_zeros(self.config.execution_horizon, left_over.shape[1])
            padded[: left_over.shape[0]] = left_over
            return padded
        return left_over


@dataclass
class WithoutRealTimeChunking(Treatment):
    """RTC off, also where the checkpoint's own config has it on."""

    effect = "lossy"
    key = "rtc"
    phases = FOR_INFERENCE

    def traits(self) -> TreatmentTraits:
        return TreatmentTraits(key=self.key, value=False)

    def apply(self, subject: Subject) -> Undo:
        policy: Any = policy_of(subject).policy
        before = configured(policy)
        if before is None:
            return lambda: None
        switch(policy, None)
        return lambda: switch(policy, before)


def supports(subject: Subject) -> bool:
    """Return whether the policy says that it can be guided."""
    return bool(getattr(subject.module, "supports_rtc", lambda: False)())


def require(subject: Subject) -> None:
    """Raise UserError if the policy has no RTC."""
    if not supports(subject):
        known = f"LeRobot {version('lerobot')} guides {', '.join(types_with_rtc())}"
        raise UserError(
            f"policy type '{subject.info.kind}' has no Real-Time Chunking ({known}); "
            "compare something else with --compile or --variant"
        )


def configured(policy: Any) -> RTCConfig | None:
    """Return the RTC config that the policy has; None if it has none."""
    return getattr(policy.config, "rtc_config", None)


def switch(policy: Any, config: RTCConfig | None) -> None:
    """Give the policy another RTC config; LeRobot's own method makes the processor, but leaves the old one at None.

    A policy that guides itself, such as GR00T, has no such method, and its config no such field: lerobot-rollout puts
    it there.
    """
    makes = hasattr(policy, "init_rtc_processor")
    if config is None and not makes and not hasattr(type(policy.config), "rtc_config"):
        vars(policy.config).pop("rtc_config", None)
    else:
        policy.config.rtc_config = config
    if makes:
        policy.init_rtc_processor()
    if config is None and getattr(policy, "model", None) is not None:
        policy.model.rtc_processor = None


def guidance_of(subject: ActingSubject, horizon: int, delay: int) -> RealTimeChunking | None:
    """Return Real-Time Chunking for ``subject``, at most that long, as its chunks have room; None if it has none.

    Args:
        horizon: the execution horizon, in control ticks.
        delay: the inference delay, in control ticks.
    """
    if not supports(subject):
        return None
    chunk = getattr(subject.policy.config, "chunk_size", None) or 2
    horizon = max(min(horizon, chunk - 1), 1)
    return RealTimeChunking(RTCConfig(enabled=True, execution_horizon=horizon), min(delay, horizon))
