"""Real-Time Chunking (Black et al. 2025; LeRobot's RTCProcessor): the chunk is guided to continue the previous one.

Measured as ``lerobot-rollout`` calls it in the middle of an episode: with what is left of a previous chunk, cut to the
execution horizon, and an inference delay. (The very first chunk of an episode has nothing to continue and costs the
same as one without RTC.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import torch
from lerobot.policies.rtc.configuration_rtc import RTCConfig
from torch import Tensor

from strobe.core.errors import UserError
from strobe.core.results import traits as records
from strobe.core.results.traits import TreatmentTraits
from strobe.core.subjects.subject import ActingSubject, Subject
from strobe.core.timeline import section
from strobe.core.treatments.patch import Patches, replaced_method
from strobe.core.treatments.switch import Switch
from strobe.core.treatments.treatment import FOR_INFERENCE, Treatment, Undo
from strobe.lerobot.config_fields import require_policy
from strobe.lerobot.families.flow_parts import RTC_STEP
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
        owner = require_policy(subject)
        policy: Any = owner.policy
        if self._left_over is None:
            self._left_over = self._previous_chunk(owner)
        before, options = rtc_config(policy), owner.chunk_options
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
        before = rtc_config(subject.policy)
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
        policy: Any = require_policy(subject).policy
        before = rtc_config(policy)
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
            "use --compile or --variant for another comparison"
        )


def rtc_config(policy: Any) -> RTCConfig | None:
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


def make_guidance(subject: ActingSubject, horizon: int, delay: int) -> RealTimeChunking | None:
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


# Real-Time Chunking's guidance without autograd, where its gradient is known beforehand.
#
# LeRobot 0.6.1 computes the correction as the gradient of ``x1 = x_t - time * v_t`` with respect to ``x_t``, weighted
# by the error (`RTCProcessor.denoise_step`; the guidance of Black et al. 2025). It marks ``x_t`` as requiring a
# gradient only after the denoiser has run, so ``v_t`` does not depend on it as far as autograd can see: the Jacobian is
# the identity, and the correction is the weighted error itself. Taking it directly gives the same bits, and keeps no
# graph of the denoiser. Whether that holds for the LeRobot that is installed is tried before it is relied upon.


@dataclass
class ClosedFormGuidance(Switch, key="guidance"):
    """RTC's correction in closed form; applies where RTC is on.

    Args:
        awaited: RTC may be turned on later, as ``lerobot-rollout`` does with a policy that it has loaded: whatever
            processor the policy makes gets the closed form, and a policy that has none yet is no error.
    """

    awaited: bool = False
    _tried: bool = field(default=False, init=False, repr=False)

    def join_recipe(self) -> None:  # a robot's program turns RTC on once it has loaded the policy
        self.awaited = True

    @classmethod
    def fits(cls, subject: Subject) -> bool:
        return getattr(subject.module, "rtc_processor", None) is not None

    def apply(self, subject: Subject) -> Undo:
        policy: Any = require_policy(subject).policy
        if not self.awaited and getattr(policy, "rtc_processor", None) is None:
            raise UserError("the closed form of RTC's guidance needs RTC: add --rtc.execution_horizon")
        if self.awaited and not hasattr(policy, "init_rtc_processor"):
            raise UserError(f"policy type '{subject.info.kind}' has no Real-Time Chunking with guidance")
        patches, guided = Patches(), []

        def release() -> None:
            while guided:
                guided.pop()()

        def guide() -> None:
            release()  # the processor before
            processor = getattr(policy, "rtc_processor", None)
            if processor is None:
                return
            if not self._tried:
                require_identity(processor)
                self._tried = True
            guided.append(replaced_method(processor, "denoise_step", Guidance(processor)))

        guide()
        if self.awaited:
            patches.wrap(policy, "init_rtc_processor", lambda make: lambda: (make(), guide()))

        def undo() -> None:
            patches.undo()
            release()

        return undo


@dataclass
class Guidance:
    """Takes the place of a processor's ``denoise_step``, with its arguments and its result."""

    processor: Any

    def __call__(
        self,
        x_t: Tensor,
        prev_chunk_left_over: Tensor | None,
        inference_delay: int,
        time: float | Tensor,
        original_denoise_step_partial: Callable[[Tensor], Tensor],
        execution_horizon: int | None = None,
    ) -> Tensor:
        """Return the guided velocity, of the shape of ``x_t``: (B, T, A) or (T, A); ``time`` falls from 1 to 0.

        Raises ValueError if the previous chunk is longer or wider than the latent.
        """
        if prev_chunk_left_over is None:
            return original_denoise_step_partial(x_t)
        with section(RTC_STEP), torch.no_grad():
            return self._guided_velocity(
                x_t, prev_chunk_left_over, inference_delay, time, original_denoise_step_partial, execution_horizon
            )

    def _guided_velocity(
        self,
        x_t: Tensor,
        left_over: Tensor,
        delay: int,
        time: float | Tensor,
        denoise: Callable[[Tensor], Tensor],
        execution_horizon: int | None,
    ) -> Tensor:
        config = self.processor.rtc_config
        latent = x_t if x_t.dim() == 3 else x_t[None]
        previous = left_over if left_over.dim() == 3 else left_over[None]
        horizon = min(config.execution_horizon if execution_horizon is None else execution_horizon, previous.shape[1])
        if previous.shape != latent.shape:
            if previous.shape[1] > latent.shape[1] or previous.shape[2] > latent.shape[2]:
                shapes = f"the previous chunk {tuple(previous.shape)}", f"the latent {tuple(latent.shape)}"
                raise ValueError(" does not fit into ".join(shapes))
            filled = torch.zeros(latent.shape, device=latent.device)
            filled[:, : previous.shape[1], : previous.shape[2]] = previous
            previous = filled
        weights = self.processor.get_prefix_weights(delay, horizon, latent.shape[1]).to(latent.device)[None, :, None]
        velocity = denoise(latent)
        clean = latent - time * velocity
        error = (previous - clean) * weights
        if velocity is latent:  # the latent itself, whose gradient is wanted: the only case of another Jacobian
            error = error - time * error
        strength = _strength(time, config.max_guidance_weight)
        guided = velocity - strength * error
        if x_t.dim() == 2:
            guided, clean, error = guided[0], clean[0], error[0]
        self.processor.track(
            time=time,
            x1_t=clean,
            correction=error,
            err=error,
            weights=weights,
            guidance_weight=strength,
            inference_delay=delay,
            execution_horizon=horizon,
        )
        return guided


def _strength(time: float | Tensor, largest: float) -> Tensor:
    """Return the guidance weight of Black et al. 2025, at most ``largest``; time runs from 1 to 0, as in LeRobot.

    Step by step as LeRobot rounds it, so that the result has the same bits.
    """
    most = torch.as_tensor(largest)
    done = torch.as_tensor(1 - time)
    remaining = (1 - done) ** 2
    ratio = torch.nan_to_num((1 - done) / done, posinf=largest)
    return torch.minimum(torch.nan_to_num(ratio * ((remaining + done**2) / remaining), posinf=largest), most)


def require_identity(processor: Any) -> None:
    """Try both on a denoiser that depends on the latent; raises UserError unless all bits are equal.

    If LeRobot begins to differentiate through the denoiser, this is where it shows.
    """
    generator = torch.Generator().manual_seed(0)
    latent, previous = (torch.randn(1, 12, 3, generator=generator) for _ in range(2))
    slope = torch.randn(3, 3, generator=generator, requires_grad=True)
    tracker, processor.tracker = getattr(processor, "tracker", None), None
    try:
        for time in (1.0, 0.7, 0.1):
            given = {
                "prev_chunk_left_over": previous,
                "inference_delay": 2,
                "time": time,
                "original_denoise_step_partial": lambda x: torch.tanh(x @ slope),
                "execution_horizon": 8,
            }
            theirs, ours = processor.denoise_step(latent, **given), Guidance(processor)(latent, **given)
            if not torch.equal(theirs.detach(), ours):
                raise UserError(
                    "this LeRobot computes RTC's guidance differently from 0.6.1, so the closed form is not exact"
                )
    finally:
        processor.tracker = tracker


CLOSED_FORM = ClosedFormGuidance.entry(parts=(RTC_STEP,))
