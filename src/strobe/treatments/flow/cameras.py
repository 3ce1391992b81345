"""All cameras through the vision tower at once, where LeRobot's flow policies run it once a camera.

One pass over twice the tokens reads the weights once, and has half as many operators to launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from strobe.subjects.subject import Subject
from strobe.treatments.flow.places import deriving, flow_of
from strobe.treatments.parts import VISION
from strobe.treatments.patch import Patches
from strobe.treatments.switch import Switch
from strobe.treatments.treatment import Undo


@dataclass
class BatchedCameras(Switch, key="cameras", of=lambda family: family.flow):
    """Images of one shape are embedded together, before the prefix is put together from them."""

    _ready: list[Tensor] = field(default_factory=list, init=False, repr=False)

    @classmethod
    def fits(cls, subject: Subject) -> bool:
        return super().fits(subject) and len(flow_of(subject).policy.config.image_features) > 1

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


ENTRY = BatchedCameras.entry(parts=(VISION,))
