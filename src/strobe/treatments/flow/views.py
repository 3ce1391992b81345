"""Views without a camera, left out, where a policy always looks at as many as it was made for.

EVO-1 fills up to three views with empty images. They go through the vision tower, and their tokens through the language
model, where nothing attends to them. Here neither happens. The tokens that are left keep their positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from strobe.policies.families.family import Views
from strobe.policies.policy_subject import PolicySubject
from strobe.policies.subject import Subject
from strobe.treatments.flow.places import deriving, only, require_record
from strobe.treatments.parts import parts_of
from strobe.treatments.patch import Patches
from strobe.treatments.treatment import FOR_INFERENCE, STRUCTURE, Effect, Entry, Spec, Treatment, Undo


@dataclass
class PresentViews(Treatment):
    """The vision-language model is given the views that are there; hidden states of the others' tokens are 0."""

    effect: Effect = "exact"
    key = "views"
    phases = FOR_INFERENCE

    def facts(self) -> dict[str, str | int | float | bool | None]:
        return {"views": "present"}

    def apply(self, subject: Subject) -> Undo:
        views, patches = _views_of(subject), Patches()
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


def _views_of(subject: Subject) -> Views:
    require_record(subject, lambda family: family.views)
    found = subject.family.views
    assert found is not None
    return found


def _candidates(subject: Subject) -> list[Spec]:
    if not isinstance(subject, PolicySubject) or subject.family.views is None:
        return []
    config: Any = subject.policy.config
    return [{"views": "present"}] if len(config.image_features) < getattr(config, subject.family.views.most) else []


ENTRY = Entry(
    "views",
    "present: views without a camera go neither through the vision tower nor through the language model",
    "exact",
    STRUCTURE,
    only("views", "present", PresentViews),
    candidates=_candidates,
    parts=lambda subject, _: parts_of(subject, [_views_of(subject).model]),
)
