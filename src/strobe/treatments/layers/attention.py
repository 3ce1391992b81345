"""torch's scaled_dot_product_attention where a model computes its attention step by step ("eager").

Eager attention writes the scores of all heads to memory, in float32 for the softmax; the fused kernels keep them on the
chip. LeRobot makes pi0 and pi0.5 eager on every call, by a setting of the transformers' config, and SmolVLA by a method
of its own; ACT requests attention weights that it drops, which keeps torch off its fused kernel.

Masks are what makes the exchange delicate. Rows whose keys are all masked belong to padding, and are the mean of all
values in eager attention; a mask of -inf would make them NaN. So masks are added as a large finite number, which gives
the same mean, small enough for kernels that scale it (by log2 e) or hold it in 16 bits.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from strobe.core.errors import UserError
from strobe.core.subjects.subject import Subject
from strobe.core.timeline.layers import Call
from strobe.core.treatments.patch import Patches
from strobe.core.treatments.switch import Switch
from strobe.core.treatments.treatment import ANY_PHASE, Spec, Undo
from strobe.lerobot.sampling import Attention
from strobe.treatments.graphs.host_work import EpochCache
from strobe.treatments.parts import named_parts

# Arguments of eager attention functions that scaled_dot_product_attention does not take.
_MORE = ("softcap", "s_aux", "position_bias", "head_mask")
_CLOSE = 1e-4  # largest difference between two ways to compute attention over small random numbers, in float32


@dataclass
class FusedAttention(Switch, key="attention"):
    """Attention through torch's fused kernels, for every attention that is eager when it runs."""

    _places: list[Place] | None = field(default=None, init=False, repr=False)
    _module: nn.Module | None = field(default=None, init=False, repr=False)
    _masks: Masks = field(default_factory=lambda: Masks(), init=False, repr=False)
    phases = ANY_PHASE

    @classmethod
    def fits(cls, subject: Subject) -> bool:
        return next(_all(subject), None) is not None

    def apply(self, subject: Subject) -> Undo:
        if self._places is None or self._module is not subject.module:
            self._places, self._module = [*places(subject, FUSED, self._masks), *_torch_places(subject)], subject.module
        if not self._places:
            raise UserError(f"{subject.info.name} has no eager attention to replace: attention=sdpa changes nothing")
        return install(self._places, FUSED, self._masks)


@dataclass(frozen=True)
class Place:
    """An attribute of ``owner`` to replace: by ``instead``, or by ``around`` put around what is there.

    ``inside``: paths of the modules whose attention it is.
    """

    inside: tuple[str, ...]
    owner: nn.Module
    name: str
    instead: Any = None
    around: Callable[[Call], Call] | None = None


@dataclass(frozen=True)
class Way:
    """A way to compute attention.

    Args:
        name: by which transformers' attention finds it. It is added to what is registered there, and changes nothing
            for a model that does not ask for it.
        of: the names in whose place it comes.
        attend: computes it, as `attend` does.
    """

    name: str
    of: tuple[str, ...]
    attend: Callable[[Tensor, Tensor, Tensor, Tensor | None, float | None], Tensor]


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float | None) -> Tensor:
    """Attention over heads, (B, H, L, D) and (B, K, S, D) → (B, H, L, D); K divides H. ``mask`` is added to scores."""
    heads, shared = query.shape[1], key.shape[1]
    grouped = False
    if shared == 1 and heads > 1:
        # Strides of zero: no kernel minds them, and nothing is copied.
        key, value = (t.expand(-1, heads, -1, -1) for t in (key, value))
    elif heads != shared:
        # CUDA's only kernel for a mask with shared heads is the slow one, and OpenVINO converts none.
        grouped = (mask is None or query.device.type == "cpu") and not torch.compiler.is_exporting()
        if not grouped:
            key, value = (t.repeat_interleave(heads // shared, dim=1) for t in (key, value))
    return scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale, enable_gqa=grouped)


FUSED = Way("strobe_sdpa", ("eager",), attend)

LAST = "last mask"  # the one entry of what is kept


class Masks:
    """Masks in the form that kernels take. The layers of a pass share one, so the last one is kept."""

    def __init__(self) -> None:
        self._kept: EpochCache[str, tuple[Tensor, int, Tensor]] = EpochCache()

    def additive_mask(self, mask: Tensor, dtype: torch.dtype) -> Tensor:
        """Return ``mask``, boolean (true: look) or additive, as one that is added in ``dtype``."""
        if torch.compiler.is_compiling() or mask.is_inference():  # has no version
            return additive(mask, dtype)
        of, version, made = self._kept.now().get(LAST, (None, -1, None))
        if made is None or of is not mask or version != mask._version or made.dtype != dtype:
            made = additive(mask, dtype)
            self._kept[LAST] = mask, mask._version, made
        return made

    def forget(self) -> None:
        """Drop the mask that was kept."""
        self._kept.clear()


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return ``mask``, boolean (true: look) or additive, as one of ``dtype`` to add to scores: finite, of any shape."""
    if mask.dtype is torch.bool:
        low = torch.finfo(dtype).min / 4
        return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, low)
    low = max(torch.finfo(dtype).min, torch.finfo(mask.dtype).min) / 4
    return mask.clamp(min=low).to(dtype)


# --- transformers: an attention module looks in its config for the function to call


def install(places: Iterable[Place], way: Way, masks: Masks) -> Undo:
    """Put ``way`` in all places that were found for it; the result takes it off again, and drops what masks keep."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS  # seconds to import, and policies have it by now

    if way.name not in ALL_ATTENTION_FUNCTIONS:
        ALL_ATTENTION_FUNCTIONS.register(way.name, partial(_transformers_attention, way))
    patches = Patches()
    patches.register_undo(masks.forget)
    for place in places:
        if place.around is None:
            patches.put(place.owner, place.name, place.instead)
        else:
            patches.wrap(place.owner, place.name, place.around)
    return patches.undo


class _Config:
    """A config that names another way where the real one has one of those that it replaces; else unchanged.

    LeRobot writes "eager" into the real one before every pass, so the real one is read on every call.
    """

    def __init__(self, real: Any, way: Way, eager: Call, masks: Masks) -> None:
        self.strobe_real = real
        self.strobe_way = way
        self.strobe_eager = eager
        self.strobe_masks = masks

    @property
    def _attn_implementation(self) -> str:
        real = self.strobe_real._attn_implementation
        return self.strobe_way.name if real in self.strobe_way.of else real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.strobe_real, name)


def _transformers_attention(
    way: Way,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: object,
) -> tuple[Tensor, Tensor | None]:
    """Attend by transformers' interface: query (B, H, L, D) → (B, L, H, D). What a way does not know stays as it was.

    That is what only eager attention can do, and attention that is causal by a flag and not by its mask.
    """
    config: Any = module.config
    before = config.strobe_real._attn_implementation
    flag = kwargs.get("is_causal")
    causal = before != "eager" and attention_mask is None and query.shape[2] > 1
    causal = causal and (getattr(module, "is_causal", True) if flag is None else flag)
    if causal or dropout or kwargs.get("output_attentions") or any(kwargs.get(name) is not None for name in _MORE):
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        function = config.strobe_eager if before == "eager" else ALL_ATTENTION_FUNCTIONS[before]
        return function(module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **kwargs)
    mask = None
    if attention_mask is not None:
        mask = config.strobe_masks.additive_mask(attention_mask, query.dtype)[..., : key.shape[-2]]
    return way.attend(query, key, value, mask, scaling).transpose(1, 2).contiguous(), None


def _transformers_places(subject: Subject, way: Way, masks: Masks) -> Iterator[Place]:
    tried: dict[tuple[type, int], bool] = {}
    for path, module in subject.module.named_modules():
        config = getattr(module, "config", None)
        eager = _eager_function(module)
        if eager is None or not hasattr(config, "_attn_implementation"):
            continue
        if config is None or (config._attn_implementation not in way.of and not _made_eager(subject, path)):
            continue
        kind = (type(module), getattr(module, "num_key_value_groups", 1))
        if kind not in tried:
            tried[kind] = _same(module, eager)
        if tried[kind]:
            yield Place((path,), module, "config", _Config(config, way, eager, masks))


def _eager_function(module: nn.Module) -> Call | None:
    """Return the eager function of a transformers attention that looks its function up by name; else None."""
    function = inspect.unwrap(type(module).forward)
    code, names = getattr(function, "__code__", None), getattr(function, "__globals__", {})
    if code is None or "ALL_ATTENTION_FUNCTIONS" not in code.co_names:
        return None
    return names.get("eager_attention_forward")


def _made_eager(subject: Subject, path: str) -> bool:
    # LeRobot may set it to eager in every pass; until the first one the config says sdpa.
    return not Attention.from_family(subject.family).eager.isdisjoint(path.split("."))


def _same(module: nn.Module, eager: Call) -> bool:
    generator = torch.Generator().manual_seed(0)
    groups = getattr(module, "num_key_value_groups", 1)
    query, key, value = (torch.randn(1, heads, 4, 8, generator=generator) for heads in (2 * groups, 2, 2))
    mask = torch.zeros(1, 1, 4, 4)
    mask[..., 2:] = torch.finfo(torch.float32).min
    try:
        with torch.no_grad():
            unmasked = None
            for given in (None, mask):
                theirs = eager(module, query, key, value, given, scaling=0.3, dropout=0.0)[0]
                if unmasked is not None and torch.equal(theirs, unmasked):  # V-JEPA 2's takes no notice of masks
                    return True
                added = None if given is None else additive(given, torch.float32)
                ours = attend(query, key, value, added, 0.3).transpose(1, 2)
                if theirs.shape != ours.shape or not torch.allclose(theirs, ours, atol=_CLOSE):
                    return False
                unmasked = theirs
    except Exception:
        return False
    return True


# --- a method, as SmolVLA has


def _method_places(subject: Subject, way: Way, masks: Masks) -> Iterator[Place]:
    for path, module in subject.module.named_modules():
        if not (hasattr(module, "eager_attention_forward") and hasattr(module, "get_attention_interface")):
            continue

        def attention(
            attention_mask: Tensor, batch_size: int, head_dim: int, query_states: Tensor, key_states: Tensor,
            value_states: Tensor,
        ) -> Tensor:  # fmt: skip
            # (B, L, H, D) in, (B, L, H · D) out; LeRobot computes the scores in float32, the kernels add up in it.
            query, key, value = (
                t.to(value_states.dtype).transpose(1, 2) for t in (query_states, key_states, value_states)
            )
            mask = masks.additive_mask(attention_mask, value.dtype)[:, None]
            attended = way.attend(query, key, value, mask, head_dim**-0.5)
            return attended.transpose(1, 2).reshape(batch_size, -1, query.shape[1] * head_dim)

        both = tuple(
            f"{path}.{child}" for child, _ in module.named_modules() if child.endswith(("text_model", "lm_expert"))
        )
        yield Place(both, module, "eager_attention_forward", attention)


# --- torch's own module


def _torch_places(subject: Subject) -> Iterator[Place]:
    if not Attention.from_family(subject.family).unread_weights:
        return
    for path, module in subject.module.named_modules():
        if isinstance(module, nn.MultiheadAttention):
            yield Place((path,), module, "forward", around=partial(_skip_attention_weights, module=module))


def _skip_attention_weights(inner: Call, module: nn.MultiheadAttention) -> Call:
    def forward(*args: object, **kwargs: object) -> object:
        # The fifth is need_weights. Dropout would be drawn in another way.
        if len(args) < 5 and not (module.training and module.dropout):
            kwargs.setdefault("need_weights", False)
        return inner(*args, **kwargs)

    return forward


def places(subject: Subject, way: Way, masks: Masks) -> Iterator[Place]:
    """Where ``subject`` can attend in ``way``: transformers' attention, and SmolVLA's method."""
    yield from _transformers_places(subject, way, masks)
    yield from _method_places(subject, way, masks)


def _all(subject: Subject) -> Iterator[Place]:
    yield from places(subject, FUSED, Masks())
    yield from _torch_places(subject)


def _parts(subject: Subject, _: Spec) -> Sequence[str]:
    return named_parts(subject, [path for place in _all(subject) for path in place.inside])


ENTRY = FusedAttention.entry(parts=_parts)
