"""What goes into the prefix: all cameras in one pass, without the padding and views that have no camera."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from lerobot.utils.constants import OBS_LANGUAGE_ATTENTION_MASK, OBS_LANGUAGE_TOKENS
from torch import Tensor
from torch.nn.functional import pad

from strobe.core.errors import UserError
from strobe.core.subjects.subject import Batch, Subject
from strobe.core.timeline.layers import Call
from strobe.core.treatments.patch import Patches
from strobe.core.treatments.switch import Switch
from strobe.core.treatments.treatment import Spec, Undo
from strobe.lerobot.families.flow_parts import PREFIX, VISION
from strobe.lerobot.sampling import Flow, Views
from strobe.treatments.parts import capability, deriving, parts_at, require_capability, require_flow

# All cameras through the vision tower at once, where LeRobot's flow policies run it once a camera.
# One pass over twice the tokens reads the weights once, and has half as many operators to launch.


@dataclass
class BatchedCameras(Switch, key="cameras", of=Flow):
    """Images of one shape are embedded together, before the prefix is put together from them."""

    _ready: list[Tensor] = field(default_factory=list, init=False, repr=False)

    @classmethod
    def fits(cls, subject: Subject) -> bool:
        return super().fits(subject) and len(require_flow(subject).policy.config.image_features) > 1

    def apply(self, subject: Subject) -> Undo:
        flow = require_flow(subject)
        patches, ready = Patches(), self._ready
        embed_image = flow.joint.embed_image

        def take_embedding(image: Tensor) -> Tensor:
            return ready.pop(0) if ready else embed_image(image)

        def wrap_call(embed_prefix: Call) -> Call:
            def call(images: Sequence[Tensor], *args: object, **kwargs: object) -> object:
                alike = len({(image.shape[1:], image.dtype) for image in images}) == 1
                if len(images) > 1 and alike and not deriving():
                    together = embed_image(torch.cat(list(images)))
                    ready[:] = together.split([len(image) for image in images])
                try:
                    return embed_prefix(images, *args, **kwargs)
                finally:
                    ready.clear()

            return call

        patches.put(flow.joint, "embed_image", take_embedding)
        patches.wrap(flow.model, "embed_prefix", wrap_call)
        return patches.undo


BATCHED = BatchedCameras.entry(parts=(VISION,))


# Views without a camera, left out, where a policy always looks at as many as it was made for.
# EVO-1 fills up to three views with empty images. They go through the vision tower, and their tokens through the
# language model, where nothing attends to them. Here neither happens. The remaining tokens keep their positions.


@dataclass
class PresentViews(Switch, key="views", of=Views):
    """The vision-language model is given the views that are there; hidden states of the others' tokens are 0."""

    @classmethod
    def fits(cls, subject: Subject) -> bool:
        if (views := capability(subject, Views)) is None:
            return False
        config: Any = subject.module.config
        return len(config.image_features) < getattr(config, views.most)

    def apply(self, subject: Subject) -> Undo:
        views, patches = require_capability(subject, Views, self.key), Patches()
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


PRESENT = PresentViews.entry(parts=parts_at(Views, lambda views: views.model))


# Leave out what is masked: the padding of the prompt, and cameras that are not there.
#
# LeRobot pads pi0.5's prompt to 200 tokens, and stands an image of -1 in for each camera that the policy knows and the
# robot lacks. Both are masked, so that nothing attends to them, and positions count valid tokens only: leaving them
# out changes how sums are rounded, and nothing else.

# Few lengths of the prompt: compiled code and captured graphs are made for one, and kernels like even sizes.
MULTIPLE = 16


@dataclass
class TrimmedPadding(Switch, key="padding", of=Flow):
    """Shorten the prompt to the tokens that any sample of the batch uses, rounded up to ``multiple`` of them.

    This happens before the model is entered, so that what is compiled or captured sees tensors of the shorter shape.
    """

    multiple: int = MULTIPLE

    def apply(self, subject: Subject) -> Undo:
        flow = require_flow(subject)
        patches, model = Patches(), flow.model

        def trimming(chunk: Call) -> Call:
            def call(batch: Batch, *args: object, **kwargs: object) -> object:
                return chunk(batch if deriving() else self.trim_batch(batch), *args, **kwargs)

            return call

        def choosing(preprocess: Call) -> Call:
            def call(batch: Batch) -> tuple[list[Tensor], list[Tensor]]:
                images, masks = preprocess(batch)
                # SmolVLA can put tokens around an image, and does not mask those.
                keeps_all = deriving() or getattr(model, "add_image_special_tokens", False)
                return (images, masks) if keeps_all else _present(images, masks)

            return call

        patches.wrap(flow.policy, flow.sampling.chunk, trimming)
        patches.wrap(flow.policy, flow.sampling.images, choosing)
        return patches.undo

    def trim_batch(self, batch: Batch) -> Batch:
        """Return ``batch`` with its tokens and their mask, (B, L) each, shortened to (B, l)."""
        tokens, mask = batch[OBS_LANGUAGE_TOKENS], batch[OBS_LANGUAGE_ATTENTION_MASK]
        used = mask.bool().any(0)
        length = tokens.shape[1]
        wanted = min(length, -(-int(used.sum()) // self.multiple) * self.multiple)
        if wanted in (0, length):
            return batch
        # Tokens in use come first, in their order, and as much of the padding as makes up the length.
        chosen = torch.argsort(~used, stable=True)[:wanted].sort().values
        return {**batch, OBS_LANGUAGE_TOKENS: tokens[:, chosen], OBS_LANGUAGE_ATTENTION_MASK: mask[:, chosen]}


def _present(images: list[Tensor], masks: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    there = torch.stack([mask.any() for mask in masks]).tolist()
    if all(there) or not any(there):
        return images, masks
    chosen = [index for index, present in enumerate(there) if present]
    return [images[index] for index in chosen], [masks[index] for index in chosen]


def _multiple(spec: Spec, key: str) -> int:
    """Return the option ``multiple`` of ``key``, in tokens. Raises UserError."""
    multiple = spec.get(f"{key}.multiple", MULTIPLE)
    if isinstance(multiple, bool) or not isinstance(multiple, int) or multiple < 1:
        raise UserError(f"{key}.multiple={multiple}: must be a whole number of tokens, at least 1")
    return multiple


PADDING = TrimmedPadding.entry(make=lambda spec: TrimmedPadding(_multiple(spec, "padding")), parts=(PREFIX, VISION))


# Prompts of any length in few shapes. SmolVLA's is as long as its words, and each length would be a CUDA graph.
#
# The added tokens are masked, as padding is: nothing attends to them, and positions count valid tokens only. But
# attention then sums over more columns, in another order, so the bits of the actions are not those without it.


@dataclass
class BucketedPrompt(Switch, key="prompt_length", of=Flow):
    """Pad the prompt, masked, to a multiple of ``multiple`` tokens, or to the longest that the policy takes.

    It is applied before all else, so that it acts on what `TrimmedPadding` left, and before a graph sees a tensor.
    """

    multiple: int = MULTIPLE

    def apply(self, subject: Subject) -> Undo:
        self.require(subject)
        flow, patches = require_flow(subject), Patches()
        most: int = getattr(flow.policy.config, "tokenizer_max_length", 0)

        def bucketing(chunk: Call) -> Call:
            def call(batch: Batch, *args: object, **kwargs: object) -> object:
                return chunk(batch if deriving() else self.bucket_batch(batch, most), *args, **kwargs)

            return call

        patches.wrap(flow.policy, flow.sampling.chunk, bucketing)
        return patches.undo

    def bucket_batch(self, batch: Batch, most: int = 0) -> Batch:
        """Return ``batch`` with its tokens and their mask, (B, L) each, padded to (B, l).

        Prompts of up to ``most`` tokens are not made longer than that; 0 is no limit.
        """
        length = batch[OBS_LANGUAGE_TOKENS].shape[1]
        wanted = -(-length // self.multiple) * self.multiple
        if length <= most:
            wanted = min(wanted, most)
        if wanted == length:
            return batch
        names = (OBS_LANGUAGE_TOKENS, OBS_LANGUAGE_ATTENTION_MASK)
        return {**batch, **{name: pad(batch[name], (0, wanted - length)) for name in names}}


BUCKETED = BucketedPrompt.entry(
    make=lambda spec: BucketedPrompt(_multiple(spec, "prompt_length")), candidates=lambda _: (), parts=(PREFIX,)
)
