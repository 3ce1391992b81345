"""All cameras through the vision tower at once, where LeRobot's flow policies run it once a camera.

One pass over twice the tokens reads the weights once, and has half as many operators to launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from strobe.policies.subject import Subject
from strobe.treatments.flow.places import deriving, flow_of, only
from strobe.treatments.parts import VISION, is_flow
from strobe.treatments.patch import Patches
from strobe.treatments.treatment import FOR_INFERENCE, STRUCTURE, Effect, Entry, Spec, Treatment, Undo


@dataclass
class BatchedCameras(Treatment):
    """Images of one shape are embedded together, before the prefix is put together from them."""

    effect: Effect = "exact"
    _ready: list[Tensor] = field(default_factory=list, init=False, repr=False)
    key = "cameras"
    phases = FOR_INFERENCE

    def facts(self) -> dict[str, str | int | float | bool | None]:
        return {"cameras": "batched"}

    def apply(self, subject: Subject) -> Undo:
        flow = flow_of(subject)
        patches, ready = Patches(), self._ready
        embed_image = flow.joint.embed_image

        def embedded(image: Tensor) -> Tensor:
            return ready.pop(0) if ready else embed_image(image)

        def around(embed_prefix: Any) -> Any:
            def call(images: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
                alike = len({(image.shape[1:], image.dtype) for image in images}) == 1
                if len(images) > 1 and alike and not deriving():
                    together = embed_image(torch.cat(list(images)))
                    ready[:] = together.split([len(image) for image in images])
                try:
                    return embed_prefix(images, *args, **kwargs)
                finally:
                    ready.clear()

            return call

        patches.put(flow.joint, "embed_image", embedded)
        patches.wrap(flow.model, "embed_prefix", around)
        return patches.undo


def _candidates(subject: Subject) -> list[Spec]:
    several = is_flow(subject) and len(flow_of(subject).policy.config.image_features) > 1
    return [{"cameras": "batched"}] if several else []


ENTRY = Entry(
    "cameras",
    "batched: all cameras through the vision tower at once",
    "exact",
    STRUCTURE,
    only("cameras", "batched", BatchedCameras),
    candidates=_candidates,
    parts=lambda _, __: (VISION,),
)
