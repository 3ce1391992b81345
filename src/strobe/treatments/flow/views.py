"""Views without a camera, left out, where a policy always looks at as many as it was made for.

EVO-1 fills up to three views with empty images. They go through the vision tower, and their tokens through the language
model, where nothing attends to them. Here neither happens. The tokens that are left keep their positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from strobe.subjects.policy_subject import PolicySubject
from strobe.subjects.subject import Subject
from strobe.treatments.flow.places import deriving
from strobe.treatments.parts import parts_of
from strobe.treatments.patch import Patches
from strobe.treatments.switch import Switch
from strobe.treatments.treatment import Spec, Undo


@dataclass
class PresentViews(Switch, key="views", of=lambda family: family.views):
    """The vision-language model is given the views that are there; hidden states of the others' tokens are 0."""

    @classmethod
    def fits(cls, subject: Subject) -> bool:
        if not isinstance(subject, PolicySubject) or subject.family.views is None:
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
            batch, kept = len(tokens), ~absent
            there = kept[tokens[0] == token].view(-1, each)
            if bool((there.any(1) != there.all(1)).any()) or not bool(there.any()):
                return model._call_impl(**given)  # part of a view, or all of them
            pixels = pixels.view(batch, len(there), *pixels.shape[1:])[:, there[:, 0]].flatten(0, 1)
            places = torch.arange(len(kept), device=kept.device)[kept].expand(batch, -1)
            fewer = {"input_ids": tokens[:, kept], "attention_mask": mask[:, kept], "pixel_values": pixels}
            outputs = model._call_impl(**{**given, **fewer, "position_ids": places})
            *before, last = outputs.hidden_states
            whole = last.new_zeros(batch, len(kept), last.shape[-1])
            whole[:, kept] = last
            outputs.hidden_states = (*before, whole)
            return outputs

        patches.call(model, call)
        return patches.undo


def _absent(tokens: Tensor, mask: Tensor, image: int) -> Tensor | None:
    """Return which places, (L,), hold tokens of views that no sample has; None where samples differ, or have all."""
    absent = (tokens == image) & (mask == 0)
    alike = (absent == absent[:1]).all() & ((tokens == image) == (tokens[:1] == image)).all()
    return absent[0] if bool(alike & absent.any()) else None


def _parts(subject: Subject, _: Spec) -> tuple[str, ...]:
    views = subject.family.views
    return () if views is None else parts_of(subject, [views.model])


ENTRY = PresentViews.entry(parts=_parts)
