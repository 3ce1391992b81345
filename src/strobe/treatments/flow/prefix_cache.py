"""One key-value cache for all denoising steps, in place of a copy in each, or where LeRobot has none.

A denoising step attends to the prefix and to itself. LeRobot's pi0 and pi0.5 clone the whole cache in every step and
join their own keys and values to it, layer by layer; SmolVLA joins and crops, and projects the prefix's keys and values
again in each cross-attention. The prefix is the same in all steps: here it is laid down once, with room behind it that
each step overwrites.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from strobe.core.errors import UserError
from strobe.core.subjects.subject import Batch, Subject
from strobe.core.timeline import section
from strobe.core.timeline.layers import Call
from strobe.core.treatments.patch import Patches
from strobe.core.treatments.switch import Switch
from strobe.core.treatments.treatment import Undo
from strobe.lerobot.families.flow_parts import PREFIX, STEP
from strobe.lerobot.sampling import Flow, Rerun
from strobe.treatments.graphs.host_work import EpochCache
from strobe.treatments.parts import deriving, require_capability, require_flow


class PrefixCache(DynamicCache):
    """A filled cache with room for a suffix, (B, heads, prefix + suffix, width) a layer. ``update`` overwrites it.

    Memory is taken at the first step of the first chunk and kept for the next ones of the same shape.
    """

    def __init__(self) -> None:
        super().__init__()
        # Shared with copies of this: a graph's region is given one.
        self._rooms: EpochCache[int, tuple[Tensor, ...]] = EpochCache()
        self._laid: EpochCache[int, tuple[Tensor, Tensor]] = EpochCache()

    def lay(self, filled: Any) -> PrefixCache:
        """Take ``filled``, a cache that holds the prefix, as what comes before the suffix."""
        self.layers = filled.layers if hasattr(filled, "layers") else _pairs(filled)
        self._laid.clear()
        return self

    def forget(self) -> None:
        """Let go of the prefix; the memory for the next one stays."""
        self.layers = []
        self._laid.clear()

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Return the suffix's keys and values behind the prefix's."""
        layer = self.layers[layer_idx]
        prefixes, suffixes = (layer.keys, layer.values), (key_states, value_states)
        if deriving():  # RTC's autograd: what is overwritten must not be part of a graph
            keys, values = (torch.cat(pair, dim=-2) for pair in zip(prefixes, suffixes, strict=True))
            return keys, values
        all_rooms, all_laid = self._rooms.now(), self._laid.now()
        rooms = all_rooms.get(layer_idx)
        wanted = [_shape(prefix, suffix) for prefix, suffix in zip(prefixes, suffixes, strict=True)]
        if rooms is None or [(tuple(r.shape), r.dtype, r.device) for r in rooms] != wanted:
            rooms = _allocate_buffers(wanted)
            all_rooms[layer_idx] = rooms
            all_laid.pop(layer_idx, None)
        length = prefixes[0].shape[-2]
        laid = all_laid.get(layer_idx)
        # A treatment may have cast the prefix in place since (casts.Border).
        if laid is None or laid[0] is not prefixes[0] or laid[1] is not prefixes[1]:
            for room, prefix in zip(rooms, prefixes, strict=True):
                room[..., :length, :].copy_(prefix)
            all_laid[layer_idx] = prefixes
        for room, suffix in zip(rooms, suffixes, strict=True):
            room[..., length:, :].copy_(suffix)
        return rooms[0], rooms[1]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the sequence length of the cached prefix."""
        return self.layers[layer_idx].keys.shape[-2]

    def crop(self, max_length: int) -> None:
        """Nothing was appended."""


def _pairs(filled: Any) -> list[Any]:
    """Return the layers of a cache of transformers 4.53 (openpi's), which has two lists of tensors in their place."""
    pairs = zip(filled.key_cache, filled.value_cache, strict=True)
    return [SimpleNamespace(keys=keys, values=values) for keys, values in pairs]


def _allocate_buffers(wanted: Sequence[tuple[tuple[int, ...], torch.dtype, torch.device]]) -> tuple[Tensor, ...]:
    if torch.compiler.is_compiling():
        return tuple(torch.empty(shape, dtype=dtype, device=device) for shape, dtype, device in wanted)
    with torch.inference_mode(False):
        return tuple(torch.empty(shape, dtype=dtype, device=device) for shape, dtype, device in wanted)


def _shape(prefix: Tensor, suffix: Tensor) -> tuple[tuple[int, ...], torch.dtype, torch.device]:
    # As torch.cat would have it: the wider dtype of the two.
    shape = (*suffix.shape[:-2], prefix.shape[-2] + suffix.shape[-2], suffix.shape[-1])
    return shape, torch.promote_types(prefix.dtype, suffix.dtype), suffix.device


@dataclass
class StaticPrefixCache(Switch, key="prefix_cache", of=Flow):
    """The prefix's keys and values are laid down once a chunk; no clone, no joining, no projecting in a step."""

    _cache: PrefixCache = field(default_factory=PrefixCache, init=False, repr=False)
    _crossed: EpochCache[int, Tensor] = field(default_factory=EpochCache, init=False, repr=False)

    def apply(self, subject: Subject) -> Undo:
        flow = require_flow(subject)
        patches, crossed, on_request = Patches(), self._crossed, flow.sampling.cache_on_request
        patches.register_undo(self._cache.forget)
        patches.register_undo(crossed.forget)
        _cache_projections(flow.sampling.repeated(flow.model), patches, crossed)
        if flow.sampling.clone:
            patches.share(flow.defining_module(flow.model), flow.sampling.clone, _skip_prefix_clone)

        def wrap_call(forward: Call) -> Call:
            def call(*args: object, **kwargs: Any) -> object:
                if on_request and isinstance(kwargs.get("past_key_values"), PrefixCache):
                    kwargs["use_cache"] = True
                outputs, filled = forward(*args, **kwargs)
                embeddings = kwargs.get("inputs_embeds")
                if deriving() or filled is None or embeddings is None or embeddings[1] is not None:
                    return outputs, filled
                crossed.clear()  # a new prefix
                return outputs, self._cache.lay(filled)

            return call

        patches.wrap(flow.joint, "forward", wrap_call)
        # Also where the prefix comes from a graph, and no Python of ours runs with it.
        patches.bracket(flow.policy, flow.sampling.chunk, before=crossed.forget)
        return patches.undo


def _cache_projections(projections: Sequence[object], patches: Patches, cached: EpochCache[int, Tensor]) -> None:
    def keeping(index: int) -> Call:
        def wrap_call(forward: Call) -> Call:
            def call(x: Tensor) -> Tensor:
                if deriving():
                    return forward(x)
                if index not in cached.now():
                    cached[index] = forward(x)
                return cached[index]

            return call

        return wrap_call

    for index, projection in enumerate(projections):
        patches.wrap(projection, "forward", keeping(index))


def _skip_prefix_clone(clone: Call) -> Call:
    # A function of LeRobot's module, so other policies pass through here too.
    def call(past_key_values: Any) -> Any:
        return past_key_values if isinstance(past_key_values, PrefixCache) else clone(past_key_values)

    return call


STATIC = StaticPrefixCache.entry(parts=(STEP,))


# The prompt through the language model once a chunk, where LeRobot runs it again in every denoising step.
#
# WALL-OSS has no cache: each step is a pass over prompt and actions together. But the prompt attends to nothing behind
# it, and the actions are the end of the sequence: what the language model makes of the prompt is the same in all steps.
# Here a first pass keeps the prompt's keys and values, and each step is a pass over the actions alone. Whether the
# prompt really sees no action is tried on the first step of all.


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
        rerun = require_capability(subject, Rerun, self.key)
        language: Any = subject.module.get_submodule(rerun.language)
        patches = Patches()
        patches.register_undo(self._forget)

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
    actions = types.bool().cpu()
    begin = int((~actions[0]).sum())
    whole = bool(actions[:, begin:].all()) and not bool(actions[:, :begin].any())
    return begin if whole and 0 < begin < actions.shape[1] else None


def _cut(given: Mapping[str, Any], rerun: Rerun, where: slice, prompt: bool = False) -> Batch:
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
            "the prompt attends to the actions, or they do not attend to it: its keys cannot be reused in all steps"
        )


PROMPT = PromptOnce.entry(parts=(STEP,))
