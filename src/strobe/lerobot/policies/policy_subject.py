"""A policy with its inputs, and the calls that a study runs and times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil
import torch
from lerobot.policies.pretrained import PreTrainedPolicy
from torch import Tensor

from strobe.core.devices.accelerators import find_device_memory
from strobe.core.errors import UserError
from strobe.core.families.capabilities import Calls, InputFacts
from strobe.core.families.family import Family
from strobe.core.families.registry import policy_family
from strobe.core.results.agreement import ActionScale
from strobe.core.results.subject import SubjectInfo
from strobe.core.results.traits import DelayTraining, PolicyTraits, Traits
from strobe.core.subjects.check_inputs import COUNT, Checks
from strobe.core.subjects.subject import ITERATION, ActingSubject, Batch, InputSource, Observation, Phase
from strobe.core.timeline.clock import synchronise
from strobe.core.timeline.probe import Hook
from strobe.core.timeline.sections import section
from strobe.lerobot.families import answers
from strobe.lerobot.families.answers import predict
from strobe.lerobot.policies.action_scale import measure_action_scale
from strobe.lerobot.policies.inputs import Inputs
from strobe.lerobot.policies.lerobot_policies import Loaded
from strobe.lerobot.policies.training_step import Training, micro_batches
from strobe.lerobot.policies.varied_checks import vary_checks
from strobe.lerobot.sampling import denoising_steps

_LENGTHS = ("chunk_size", "horizon", "action_chunk_size")  # what configs call the length of a chunk


@dataclass
class PolicySubject(ActingSubject):
    """A loaded policy and its inputs.

    ``chunk_options`` are passed to ``predict_action_chunk`` (RTC's ``inference_delay``, ``prev_chunk_left_over``).
    """

    loaded: Loaded
    inputs: Inputs
    seed: int = 0
    chunk_options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._family = policy_family(self.policy)
        self.loaded.info.anatomy = self.family.name
        self.loaded.info.inputs = self.inputs.description
        self.training = Training(self.policy)
        self._length: int | None = None  # of the last chunk

    @property
    def family(self) -> Family:
        return self._family

    @property
    def policy(self) -> PreTrainedPolicy:
        """LeRobot's own object."""
        return self.loaded.policy

    @property
    def module(self) -> torch.nn.Module:
        return self.loaded.policy

    @property
    def info(self) -> SubjectInfo:
        return self.loaded.info

    @property
    def notes(self) -> list[str]:
        return self.loaded.notes

    @property
    def compiled_methods(self) -> Sequence[tuple[str, str]]:
        return self.family.compiled or (("", "predict_action_chunk"), ("", "forward"))

    @property
    def device(self) -> torch.device:
        return torch.device(self.policy.config.device or "cpu")

    @property
    def preprocessor(self) -> Any:
        """LeRobot's steps from an observation to the policy's batch."""
        return self.loaded.preprocessor

    @property
    def postprocessor(self) -> Any:
        """LeRobot's steps from the policy's actions to the robot's."""
        return self.loaded.postprocessor

    @property
    def input_source(self) -> InputSource:
        """The kind and digest of its inputs."""
        return self.inputs.input_source

    def observation(self, index: int) -> Observation:
        """Return a raw observation; the indices wrap around."""
        observations = self.inputs.observations
        return dict(observations[index % len(observations)])

    def chunk(self, index: int = 0) -> Tensor:
        """Return a chunk for observation ``index``, in the action's own units, (1, chunk, action dim) on the CPU.

        The noise is the same whenever the index is. Sections: preprocessing, policy, postprocessing.
        """
        return self.act(self.observation(index), self.seed + index)

    def prepare(self, observation: Observation) -> Batch:
        """Return the batch of a raw observation that the policy is called with, on its device."""
        return self.training.laid_out(self.loaded.preprocessor(observation))

    def act(self, observation: Observation, seed: int) -> Tensor:
        """Return a chunk like `chunk`, for a raw observation and the seed of its noise."""
        with section(ITERATION):
            return self.answer(observation, seed)

    def answer(self, observation: Observation, seed: int) -> Tensor:
        """Return what `act` does, as a part of somebody else's iteration."""
        if self.policy.training:  # else a walk through all modules, 2 ms of a large policy's call that no robot pays
            self.policy.eval()
        torch.manual_seed(seed)
        with torch.no_grad():
            with section("preprocessing"):
                batch = self.prepare(observation)
            with section("policy"):
                actions = predict(self.policy, batch, self.chunk_options)
            with section("postprocessing"):
                actions = self.loaded.postprocessor(actions)
            synchronise(self.device)
        self._length = actions.shape[1]
        return actions

    def checks(self, count: int = COUNT) -> Checks:
        """Return observations to compare this policy's actions on: they differ in all of its inputs."""
        steps = self.loaded.preprocessor.steps
        facts = InputFacts.from_family(self.family)
        words = facts.reads_words or any("tokenizer" in type(step).__name__.lower() for step in steps)
        return vary_checks(self.inputs.checks(count), reads_words=words, may_miss=facts.fills_cameras)

    @property
    def executed_actions(self) -> int | None:
        """Actions of a chunk that the robot executes before the next one; None if the config does not say."""
        return getattr(self.policy.config, "n_action_steps", None)

    def scale(self, chunks: Sequence[Tensor] = ()) -> ActionScale | None:
        """Return the spread of its action's dimensions; without statistics, from ``chunks`` of its own."""
        fed = self.inputs
        # Made-up statistics fit these actions only if the policy was built on them, as its own.
        stats = fed.stats if fed.kind == "data" else {}
        return measure_action_scale(self.loaded.postprocessor, stats, fed.action_names, fed.description, chunks)

    def model_chunk(self, index: int = 0) -> Tensor:
        """Return a chunk like `chunk`, but normalised, as the policy gives it and RTC stores the previous chunk."""
        self.policy.eval()
        torch.manual_seed(self.seed + index)
        with torch.no_grad():
            return predict(self.policy, self.loaded.preprocessor(self.observation(index)))

    def call(self, phase: Phase, batch_size: int = 1) -> Callable[[int], Any]:
        """Return one iteration of ``phase``, as a function of its index.

        A training phase runs the policy in training mode on one raw batch of ``batch_size`` samples, as
        ``lerobot-train`` does: preprocessing, forward; for a step also backward, clipping, optimizer. `training` says
        how, and treatments change it. The learning rate is 0, so that every step is the same step: the
        arithmetic is all there, and the weights stay as they are.

        Raises:
            UserError: the policy has no training forward pass, or there is too little memory for a training step.
        """
        if phase == "inference":
            return self.chunk
        if why := Calls.from_family(self.family).untrained:
            raise UserError(f"{self.info.name} has no training forward pass here: {why}")
        if phase == "training step":
            self._require_memory()
        raw = self.inputs.batch(batch_size)
        return lambda index: self._train(raw, index, step=phase == "training step")

    def gradient(self, raw: Observation, index: int = 0, scale: float = 1.0) -> Tensor:
        """Compute the loss of ``raw`` and its gradient in the parameters' ``grad``; for inspection, not for timing.

        The backward pass starts from the loss times ``scale``, and the gradient is divided by it again. The noise is
        the same whenever the index is.
        """
        self.policy.train()
        self.policy.zero_grad()
        torch.manual_seed(self.seed + index)
        with self.training.hold_train_settings():
            loss = self._passes(raw, lambda part: part * scale)
        for parameter in self.policy.parameters():
            if parameter.grad is not None and scale != 1:
                parameter.grad /= scale
        return loss

    def traits(self, phase: Phase, batch_size: int) -> Traits:
        """Return what one call works on, most of it from the policy's config.

        A chunk's size is that of the last chunk, if any: a policy of single actions may name its own otherwise.
        """
        config: Any = self.policy.config
        length = next((value for name in _LENGTHS if (value := getattr(config, name, None))), None)
        work = PolicyTraits(
            chunk_size=(self._length or length) if phase == "inference" else length,
            trainable_tensors=sum(1 for parameter in self.policy.parameters() if parameter.requires_grad),
        )
        if phase != "inference" and self.training.sets_process:
            work.tensor_float, work.cudnn_benchmark = self.training.tensor_float, self.training.benchmark
        if phase != "inference" and getattr(config, "use_rtc", False):  # training-time RTC
            work.delay_training = DelayTraining(
                way=getattr(config, "delay_training", None),
                prefix_attention=getattr(config, "prefix_attention", None),
                delays=getattr(config, "rtc_max_delay", 0) + 1,
            )
        if phase == "inference":
            work.denoising_steps = denoising_steps(config)
            work.max_tokens = getattr(config, "max_decoding_steps", None)
            work.executed_actions = getattr(config, "n_action_steps", None)
        return Traits(batch_size=1 if phase == "inference" else batch_size, policy=work)

    def hooks(self, phase: Phase, depth: int) -> list[Hook]:
        """Return the hooks of the family's probes for ``phase``, and below the first level the processors' steps."""
        hooks = self.family.hooks(self.policy, training=phase != "inference", depth=depth)
        if depth > 1:
            steps = [*self.loaded.preprocessor.steps, *self.loaded.postprocessor.steps]
            kinds = {type(step): None for step in steps}
            hooks += [Hook(kind, "__call__", _step_name(kind)) for kind in kinds]
        return hooks

    def _require_memory(self) -> None:
        trained = sum(p.numel() * p.element_size() for p in self.policy.parameters() if p.requires_grad)
        needed = 3 * trained
        memory = None if self.device.type == "mps" else find_device_memory(self.device)  # MPS takes the machine's
        free = psutil.virtual_memory().available if memory is None else memory.free()
        if not self.training.has_begun and free is not None and needed > free:
            raise UserError(
                f"a training step of this policy needs about {needed / 2**30:.0f} GiB beyond its weights for gradients "
                f"and Adam's moments, and {free / 2**30:.0f} GiB are free: freeze parts of it, or --policy.size=tiny"
            )

    def _train(self, raw: Observation, index: int, *, step: bool) -> Tensor:
        policy, training = self.policy, self.training
        policy.train()
        torch.manual_seed(self.seed + index)
        optimizer = training.optimizer if step else None
        scaler = training.scaler if step else None
        with section(ITERATION), training.hold_train_settings():
            scaled = (scaler.scale if scaler is not None else lambda loss: loss) if step else None
            loss = self._passes(raw, scaled)
            if optimizer is not None:
                with section("gradient clipping"):
                    if scaler is not None:
                        scaler.unscale_(optimizer)
                    torch.nn.utils.clip_grad_norm_(policy.parameters(), training.clip)
                with section("optimizer"):
                    if scaler is not None:
                        scaler.step(optimizer)
                        scaler.update()
                    else:
                        optimizer.step()
                    optimizer.zero_grad()
            synchronise(self.device)
        return loss

    def _passes(self, raw: Observation, scaled: Callable[[Tensor], Tensor] | None) -> Tensor:
        parts = micro_batches(raw, self.training.micro_batches)
        losses = []
        for part in parts:
            with section("preprocessing"):
                batch = self.training.laid_out(self.loaded.preprocessor(dict(part)))
            with section("forward"), self.training.autocasting():
                loss = answers.loss(self.policy, batch, back=scaled is not None)
            if self.training.dtype is not None:  # as accelerate does after autocast
                loss = loss.float()
            if len(parts) > 1:
                loss = loss / len(parts)
            if scaled is not None:
                with section("backward"):
                    scaled(loss).backward()
            losses.append(loss.detach())
        return losses[0] if len(losses) == 1 else torch.stack(losses).sum()


def _step_name(kind: type) -> str:
    # NormalizerProcessorStep → 'normalizer', AddBatchDimensionProcessorStep → 'add batch dimension'
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in kind.__name__)
    return words.removesuffix(" processor step").strip()
