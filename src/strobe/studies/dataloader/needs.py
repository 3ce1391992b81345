"""How many samples per second does a policy's training step take?"""

from __future__ import annotations

import copy
import time
from typing import Any

from lerobot.configs.train import TrainPipelineConfig

from strobe.errors import UserError
from strobe.measure.sampling import SamplingBudget, collect
from strobe.results.dataloader import StepNeed
from strobe.studies.measuring import Reporter

BUDGET = SamplingBudget(seconds=20.0, min_iterations=5, precision=0.03)


def device_of(config: TrainPipelineConfig) -> str:
    """The device that the training would run on."""
    return str(config.trainable_config.device or "cpu")


class StepNeeds:
    """Measures the step at any batch size, on one copy of the policy; built when first asked."""

    def __init__(self, config: TrainPipelineConfig, live: Reporter) -> None:
        self.notes: list[str] = []
        self._config, self._live = config, live
        self._subject: Any = None

    def __call__(self, batch_size: int) -> StepNeed:
        """The step with a batch of ``batch_size``: preprocessing, forward, backward, clipping, optimizer.

        Raises:
            UserError: the policy cannot be built for this dataset, or does not fit into memory.
        """
        if self._subject is None:
            self._subject = self._built()
        self._live.stage(f"the training step with {batch_size} samples")
        call = self._subject.call("training step", batch_size)
        count = 0

        def once() -> float:
            nonlocal count
            began = time.perf_counter()
            call(count)
            count += 1
            return 1000 * (time.perf_counter() - began)

        samples = collect({"step": once}, BUDGET, self._live.progress).samples["step"]
        rate = 1000 * batch_size / samples.summary.median
        return StepNeed(batch_size=batch_size, samples_per_s=rate, source="measured", step_ms=samples)

    def _built(self) -> Any:
        from strobe.policies import inputs, lerobot_policies
        from strobe.policies.policy_subject import PolicySubject

        policy = copy.deepcopy(self._config.policy)
        if policy is None:
            raise UserError("a reward model's step is not measured here: give its rate with --needed=RATE or max")
        self._live.stage(f"building {policy.type}")
        fed = inputs.from_dataset(policy, self._config.dataset.root, self._config.dataset.repo_id)
        loaded = lerobot_policies.load(policy, fed, rename=self._config.rename_map or None)
        self.notes += loaded.notes
        if self._config.peft is not None:
            self.notes.append("the step was measured without PEFT: all weights were trained")
        if device_of(self._config) == "cpu":
            self.notes.append(
                "on the CPU the step and the workers share the cores, so together they are slower than either alone"
            )
        subject = PolicySubject(loaded, fed)
        if (cast := subject.training.dtype) is not None:
            name = str(cast).removeprefix("torch.")
            self.notes.append(f"the step was measured under autocast to {name}, as lerobot-train runs it")
        return subject
