"""The prompt through the language model once a chunk, where LeRobot runs it again in every denoising step.

WALL-OSS has no cache: each step is a pass over prompt and actions together. But the prompt attends to nothing behind
it, and the actions are the end of the sequence: what the language model makes of the prompt is the same in all steps.
Here a first pass keeps the prompt's keys and values, and each step is a pass over the actions alone. Whether the prompt
really sees no action is tried on the first step of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from strobe.core.errors import UserError
from strobe.core.families.sampling import Rerun
from strobe.core.subjects.acting import needed
from strobe.core.subjects.subject import Batch, Subject
from strobe.core.timeline import section
from strobe.core.treatments.patch import Patches
from strobe.core.treatments.switch import Switch
from strobe.core.treatments.treatment import Undo
from strobe.treatments.flow.prefix_cache import PrefixCache
from strobe.treatments.parts import PREFIX, STEP, deriving


@dataclass
class _Prompt:
    """Of one chunk: which tokens are actions, (B, L), where they begin, and what was made of those before.

    ``begin`` is None if the actions are not the end of all sequences: then nothing can be kept.
    """

    types: Tensor
    begin: int | None
    hidden: Tensor | None = None


@dataclass
class PromptOnce(Switch, key="prompt", of=Rerun):
    """The prompt's keys and values, and its hidden states (B, prompt, width), are made in the first step of a chunk.

    Raises UserError in that step where the prompt looks at actions.
    """

    _cache: PrefixCache = field(default_factory=PrefixCache, init=False, repr=False)
    _prompt: _Prompt | None = field(default=None, init=False, repr=False)
    _tried: bool = field(default=False, init=False, repr=False)

    def apply(self, subject: Subject) -> Undo:
        rerun = needed(subject, Rerun, self.key)
        language: Any = subject.module.get_submodule(rerun.language)
        patches = Patches()
        patches.on_undo(self._forget)

        def call(*args: Any, **given: Any) -> Any:
            embedded, types = given.get("inputs_embeds"), given.get(rerun.types)
            known = embedded is not None and types is not None and given.get("past_key_values") is None
            if args or not known or deriving():
                return language._call_impl(*args, **given)
            return self._step(language, rerun, given)

        patches.bracket(subject.module, rerun.chunk, before=self._forget, after=self._forget)
        patches.call(language, call)
        return patches.undo

    def _forget(self) -> None:
        self._prompt = None
        self._cache.forget()

    def _step(self, language: Any, rerun: Rerun, given: Mapping[str, Any]) -> object:
        types = given[rerun.types]
        if self._prompt is None or self._prompt.types is not types:
            self._forget()
            self._prompt = _Prompt(types, _begin(types))
        prompt = self._prompt
        begin = prompt.begin
        if begin is None:
            return language._call_impl(**given)
        if not self._tried:
            _try(language, given, begin)
            self._tried = True
        hidden = prompt.hidden
        if hidden is None:
            with section(PREFIX):
                filled = language._call_impl(**_cut(given, rerun, slice(begin), prompt=True), use_cache=True)
            hidden = prompt.hidden = filled.last_hidden_state
            self._cache.lay(filled.past_key_values)
        actions = _cut(given, rerun, slice(begin, None))
        outputs = language._call_impl(**actions, past_key_values=self._cache, use_cache=True)
        outputs.last_hidden_state = torch.cat([hidden, outputs.last_hidden_state], dim=1)
        return outputs


def _begin(types: Tensor) -> int | None:
    """Return where the actions begin, if they are the end of all sequences and there is something before them."""
    actions = types.bool().cpu()
    begin = int((~actions[0]).sum())
    whole = bool(actions[:, begin:].all()) and not bool(actions[:, :begin].any())
    return begin if whole and 0 < begin < actions.shape[1] else None


def _cut(given: Mapping[str, Any], rerun: Rerun, where: slice, prompt: bool = False) -> Batch:
    """Return the arguments of a pass over a part of the sequence; a mask is of what lies before it, too."""
    cut = {key: value for key, value in given.items() if key not in ("past_key_values", "use_cache")}
    cut["inputs_embeds"] = given["inputs_embeds"][:, where]
    cut[rerun.types] = given[rerun.types][:, where]
    if given.get("position_ids") is not None:
        cut["position_ids"] = given["position_ids"][..., where]
    if prompt and given.get("attention_mask") is not None:
        cut["attention_mask"] = given["attention_mask"][:, where]
    return cut


def _try(language: Any, given: Mapping[str, Any], begin: int) -> None:
    """Raise UserError unless other actions leave all bits of the prompt's hidden states as they are."""
    embedded = given["inputs_embeds"]
    others = torch.cat([embedded[:, :begin], -embedded[:, begin:].flip(-1)], dim=1)
    mine, theirs = (
        language._call_impl(**{**given, "inputs_embeds": tokens}).last_hidden_state for tokens in (embedded, others)
    )
    if not torch.equal(mine[:, :begin], theirs[:, :begin]):
        raise UserError(
            "the prompt looks at the actions behind it, or they at nothing: it cannot be kept for all steps"
        )


ENTRY = PromptOnce.entry(parts=(STEP,))
