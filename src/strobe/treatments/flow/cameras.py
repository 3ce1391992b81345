"""Cameras: all of them in one pass, and views that have none left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from strobe.core.subjects.subject import ActingSubject, Subject
from strobe.core.timeline.layers import Call
from strobe.core.treatments.patch import Patches
from strobe.core.treatments.switch import Switch
from strobe.core.treatments.treatment import Spec, Undo
from strobe.treatments.parts import VISION, deriving, flow_of, parts_of

# All cameras through the vision tower at once, where LeRobot's flow policies run it once a camera.
# One pass over twice the tokens reads the weights once, and has half as many operators to launch.


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

        def around(embed_prefix: Call) -> Any:
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


BATCHED = BatchedCameras.entry(parts=(VISION,))


# Views without a camera, left out, where a policy always looks at as many as it was made for.
# EVO-1 fills up to three views with empty images. They go through the vision tower, and their tokens through the
# language model, where nothing attends to them. Here neither happens. The remaining tokens keep their positions.


@dataclass
class PresentViews(Switch, key="views", of=lambda family: family.views):
    """The vision-language model is given the views that are there; hidden states of the others' tokens are 0."""

    @classmethod
    def fits(cls, subject: Subject) -> bool:
        if not isinstance(subject, ActingSubject) or subject.family.views is None:
            return False
        config: Any = subject.policy.config
        return len(config.image_features) < getattr(config, subject.family.views.most)

    def apply(self, subject: Subject) -> Undo:
        self.require(subject)
        views, patches = subject.family.views, Patches()
        assert views is not None
        model: Any = subject.module.get_submodule(views.model)
        token, each = model.config.image_token_id, model.config.image_seq_length

        def call(*args: Any, **given: Any) -> Any:
            known = not args and {"input_ids", "pixel_values", "attention_mask"} <= given.keys()
            absent = None if deriving() or not known else _absent(given["input_ids"], given["attention_mask"], token)
            if absent is None or given.get("position_ids") is not None:
                return model._call_impl(*args, **given)
            tokens, mask, pixels = given["input_ids"], given["attention_mask"], given["pixel_values"]
            batch, present = len(tokens), ~absent
            there = present[tokens[0] == token].view(-1, each)
            if bool((there.any(1) != there.all(1)).any()) or not bool(there.any()):
                return model._call_impl(**given)  # part of a view, or all of them
            pixels = pixels.view(batch, len(there), *pixels.shape[1:])[:, there[:, 0]].flatten(0, 1)
            places = torch.arange(len(present), device=present.device)[present].expand(batch, -1)
            fewer = {"input_ids": tokens[:, present], "attention_mask": mask[:, present], "pixel_values": pixels}
            outputs = model._call_impl(**{**given, **fewer, "position_ids": places})
            *before, last = outputs.hidden_states
            whole = last.new_zeros(batch, len(present), last.shape[-1])
            whole[:, present] = last
            outputs.hidden_states = (*before, whole)
            return outputs

        patches.call(model, call)
        return patches.undo


def _absent(tokens: Tensor, mask: Tensor, image: int) -> Tensor | None:
    """Return which places, (L,), hold tokens of views that no sample has; None if samples differ, or have all."""
    absent = (tokens == image) & (mask == 0)
    alike = (absent == absent[:1]).all() & ((tokens == image) == (tokens[:1] == image)).all()
    return absent[0] if bool(alike & absent.any()) else None


def _parts(subject: Subject, _: Spec) -> tuple[str, ...]:
    views = subject.family.views
    return () if views is None else parts_of(subject, [views.model])


PRESENT = PresentViews.entry(parts=_parts)
