"""Chunks of a run's policy on its recorded observations, as they are and with the arm where its commands sent it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from lerobot.policies.utils import prepare_observation_for_inference
from lerobot.utils.feature_utils import build_dataset_frame

from strobe.core.measure.statistics import Array
from strobe.core.subjects.subject import Batch
from strobe.lerobot.families import answers
from strobe.loops.virtual_rollout import EngineInputs


@dataclass
class Asker:
    """Calls a policy for whole chunks, as an engine of LeRobot calls it for a first chunk.

    Args:
        inputs: the policy and its processors.
        threaded: whether the engine has a thread of its own: its frames and actions are in the robot's order, others in
            the data set's.
        draws: calls on each observation, the noise seeded by 0, 1, ….
        on_call: called after each call with the number of calls so far.
    """

    inputs: EngineInputs
    threaded: bool
    draws: int = 3
    on_call: Callable[[int], None] = lambda _: None
    calls: int = 0
    _known: dict[tuple[int, bool], Array] = field(default_factory=dict)

    @property
    def ticks(self) -> int:
        """The number of observations that the policy looks at."""
        return int(getattr(self.inputs.policy.config, "n_obs_steps", 1) or 1)

    def chunks(self, moments: list[int], commands: list[Mapping[str, float]] | None = None) -> Array:
        """Return (draws, chunk, joints) for the observations of ``moments``, nanoseconds, oldest first.

        Args:
            commands: for each moment positions in place of the arm's, by joint.
        """
        key = (moments[-1], commands is not None)
        if key not in self._known:
            batches = []
            for place, moment in enumerate(moments):
                seen = dict(self.inputs.world.observe(moment)())
                told = commands[place] if commands is not None else {}
                batches.append(self._batch(seen | {name: told[name] for name in told if name in seen}))
            self._known[key] = np.stack([self._call(batches, seed) for seed in range(self.draws)])
        return self._known[key]

    def find_noise(self, moments: list[int]) -> bool | None:
        """Return whether calls on one observation differ by their noise; None if they differ with the same noise too.

        If they do not differ, one draw is enough from then on.
        """
        chunks = self.chunks(moments)
        if not _alike(chunks[0], self._call([self._batch(self.inputs.world.observe(at)()) for at in moments], 0)):
            return None
        differs = len(chunks) > 1 and not _alike(chunks[0], chunks[1])
        if not differs:
            self.draws = 1
            self._known = {key: known[:1] for key, known in self._known.items()}
        return differs

    def _batch(self, observation: Mapping[str, Any]) -> Batch:
        inputs = self.inputs
        features = inputs.hw_features if self.threaded else inputs.dataset_features
        frame = build_dataset_frame(features, dict(observation), prefix="observation")
        device = torch.device(inputs.device or "cpu")
        return prepare_observation_for_inference(frame, device, inputs.task, inputs.robot.robot_type)

    def _call(self, batches: list[Batch], seed: int) -> Array:
        inputs = self.inputs
        with torch.inference_mode():
            # The last one last: a processor that makes actions relative keeps the state that it saw last.
            ready = [inputs.preprocessor(dict(batch)) for batch in batches]
            inputs.policy.reset()  # a queue of earlier observations would take the place of these
            torch.manual_seed(seed)
            made = answers.predict(inputs.policy, _stack(ready) if self.ticks > 1 else ready[-1])
            chunk = inputs.postprocessor(made).squeeze(0)
        self.calls += 1
        self.on_call(self.calls)
        made_for = inputs.dataset_features["action"]["names"]
        order = slice(None) if self.threaded else [made_for.index(name) for name in inputs.keys]
        return chunk.float().cpu().numpy().astype(float)[:, order]


def _alike(one: Array, other: Array) -> bool:
    return np.allclose(one, other, rtol=1e-4, atol=1e-6)


def _stack(batches: list[Batch]) -> Batch:
    """Return one batch, whose observations have a dimension of ticks, (1, ticks, …)."""
    newest = batches[-1]
    return {
        name: torch.stack([batch[name] for batch in batches], dim=1)
        if name.startswith("observation.") and isinstance(value, torch.Tensor)
        else value
        for name, value in newest.items()
    }
