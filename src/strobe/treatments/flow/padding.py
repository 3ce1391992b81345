"""Leave out what is masked: the padding of the prompt, and cameras that are not there.

LeRobot pads pi0.5's prompt to 200 tokens, and stands an image of -1 in for each camera that the policy knows and the
robot lacks. Both are masked, so that nothing attends to them, and positions count valid tokens only: leaving them
out changes how sums are rounded, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from lerobot.utils.constants import OBS_LANGUAGE_ATTENTION_MASK, OBS_LANGUAGE_TOKENS
from torch import Tensor

from strobe.core.errors import UserError
from strobe.core.families.sampling import Flow
from strobe.core.subjects.subject import Batch, Subject
from strobe.core.timeline.layers import Call
from strobe.core.treatments.patch import Patches
from strobe.core.treatments.switch import Switch
from strobe.core.treatments.treatment import Spec, Undo
from strobe.treatments.parts import PREFIX, VISION, deriving, flow_of

# Few lengths of the prompt: compiled code and captured graphs are made for one, and kernels like even sizes.
MULTIPLE = 16


@dataclass
class TrimmedPadding(Switch, key="padding", of=Flow):
    """Shorten the prompt to the tokens that any sample of the batch uses, rounded up to ``multiple`` of them.

    This happens before the model is entered, so that what is compiled or captured sees tensors of the shorter shape.
    """

    multiple: int = MULTIPLE

    def apply(self, subject: Subject) -> Undo:
        flow = flow_of(subject)
        patches, model = Patches(), flow.model

        def trimming(chunk: Call) -> Call:
            def call(batch: Batch, *args: Any, **kwargs: Any) -> Any:
                return chunk(batch if deriving() else self.trimmed(batch), *args, **kwargs)

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

    def trimmed(self, batch: Batch) -> Batch:
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
    """Return the cameras that at least one sample has; all of them where none has any."""
    there = torch.stack([mask.any() for mask in masks]).tolist()
    if all(there) or not any(there):
        return images, masks
    chosen = [index for index, present in enumerate(there) if present]
    return [images[index] for index in chosen], [masks[index] for index in chosen]


def _make(spec: Spec) -> TrimmedPadding:
    multiple = spec.get("padding.multiple", MULTIPLE)
    if isinstance(multiple, bool) or not isinstance(multiple, int) or multiple < 1:
        raise UserError(f"padding.multiple={multiple}: a whole number of tokens, at least 1")
    return TrimmedPadding(multiple)


ENTRY = TrimmedPadding.entry(make=_make, parts=(PREFIX, VISION))
