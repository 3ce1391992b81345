"""How policies sample, as far as a treatment can make it cheaper: capabilities that it asks of a family's record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from strobe.core.families.capabilities import Around, Capability, Facts, LiveFields, Method
from strobe.core.families.registry import find_family, records

if TYPE_CHECKING:
    from strobe.core.timeline.layers import Call


@dataclass(frozen=True)
class Flow(Capability):
    """How a flow policy samples: a prefix pass fills a key-value cache, denoising steps read it.

    ``policy.model`` has ``embed_prefix``, ``embed_suffix``, ``denoise_step``, ``action_in_proj``, ``action_out_proj``;
    the module at ``joint`` runs both transformers on ``inputs_embeds=[prefix, suffix]``, one of which may be None.

    Args:
        joint: path of the module that holds both transformers.
        language, expert: paths of the two.
        chunk: the policy's method that is given a chunk's batch, and ``images`` the one that prepares its images:
            batch → images, masks of the cameras that are there.
        suffix_pass: the part of a denoising step between its embedding and its head: ``(model, cache, embedded,
            attention, positions, condition)`` → hidden states of the suffix (B, suffix, width). ``condition`` is what
            ``embed_suffix`` returned beyond embedding, padding and order.
        attention_mask: boolean mask (B, suffix, prefix + suffix) → the one that the transformers are given.
        clone: the function of the model's module that copies the cache in every step; None if steps share it.
        layers: whether a transformer's layers run as modules, or through methods of the joint module.
        repeated: model → projections (modules of one tensor) of the prefix's keys and values that every step repeats.
        cache_on_request: whether layers call ``update`` of a step's cache only where they are given ``use_cache=True``,
            and otherwise join their keys and values to what it holds by themselves.
        times: number of denoising steps → the time of each, in the bits that the policy computes.
        periods: shortest and longest period of the time's embedding; None where the model's config has both.
    """

    joint: str
    language: str
    expert: str
    chunk: str
    images: str
    suffix_pass: Call
    attention_mask: Callable[[Any, Any], Any]
    clone: str | None = None
    layers: Literal["modules", "methods"] = "modules"
    repeated: Callable[[Any], Sequence[object]] = lambda _: ()
    cache_on_request: bool = False
    times: Callable[[int], Sequence[float]] = lambda steps: [1.0 + step * (-1.0 / steps) for step in range(steps)]
    periods: tuple[float, float] | None = None


@dataclass(frozen=True)
class Conditioning(Capability):
    """Linear layers whose input ends with features of the observation, which are the same in all steps of a chunk.

    Args:
        sampling: the method that is called once a chunk, with these features.
        features: that call's own arguments → the features, (B, width), as the layers' input ends with them.
        layers: policy → the layers; their input is (B, the step's own features + width).
    """

    sampling: Method
    features: Call
    layers: Callable[[Any], Sequence[Any]]


@dataclass(frozen=True)
class LastBlock(Capability):
    """The last block of a transformer that every denoising step runs over more rows than it reads in the end.

    Args:
        blocks: path of the transformer's list of blocks.
        rows: the policy's config → how many rows are read, from the first one on.
        narrowed: block, its input (B, L, width), rows → its output for these rows alone, (B, rows, width).
    """

    blocks: str
    rows: Callable[[Any], int]
    narrowed: Callable[[Any, Any, int], object]


@dataclass(frozen=True)
class Rerun(Capability):
    """How a flow policy without a cache samples: every step runs the language model over prompt and actions together.

    The model is called as a module, with ``inputs_embeds`` (B, L, width), ``attention_mask`` (B, L), ``position_ids``
    (..., B, L) and its ``types``, and gives ``last_hidden_state`` (B, L, width). It knows ``past_key_values``.

    Args:
        language: path of the language model.
        chunk: the policy's method that is given a chunk's batch.
        types: the argument that marks the tokens of actions, (B, L); one tensor in all steps of a chunk.
    """

    language: str
    chunk: str
    types: str


@dataclass(frozen=True)
class Views(Capability):
    """A vision-language model that is given a fixed number of views, some of which may be empty and masked.

    It is called as a module, with ``input_ids`` (B, L), ``attention_mask`` (B, L) and ``pixel_values`` (B * views,
    ...); the last of its ``hidden_states``, (B, L, width), is read where the mask is true.

    Args:
        model: path of the model, whose config has ``image_token_id`` and ``image_seq_length``, the tokens of a view.
        most: field of the policy's config with the number of views.
    """

    model: str
    most: str


@dataclass(frozen=True)
class Words(Capability):
    """A text encoder that reads the task and nothing else.

    Args:
        encoding: the method that is given the task, as text or as tokens, and gives tensors that depend on it alone.
        encoder: policy → the module whose weights it reads with.
    """

    encoding: Method
    encoder: Callable[[Any], Any]


@dataclass(frozen=True)
class UnreadHead(Capability):
    """A language head, at ``path``, that runs without its output being read."""

    path: str


@dataclass(frozen=True)
class WordTables(Capability):
    """An embedding, at ``path``, that joins two tables of words to one on every call."""

    path: str


@dataclass(frozen=True)
class Context(Capability):
    """A context that is the same in all denoising steps of a chunk.

    Args:
        modules: policy → the modules of its denoising steps that are given the context alone: projections to keys and
            values, what follows them, what makes the context of one tensor; a torch.nn.MultiheadAttention, whose query
            is not the context, as a whole.
    """

    modules: Callable[[Any], Sequence[Any]]


@dataclass(frozen=True)
class UnreadHalf(Capability):
    """Passes that compute, besides what is read, a half for a guidance that is off.

    Args:
        passes: policy → (owner, method, around it): ``around`` leaves that half out. Empty if the half is read.
    """

    passes: Callable[[Any], Sequence[Around]]


@dataclass(frozen=True)
class Attention(Facts):
    """How a policy attends, where that is LeRobot's choice.

    Args:
        eager: steps of the paths of modules whose attention LeRobot makes eager on every call.
        unread_weights: whether torch's own attention modules compute attention weights that nobody reads.
    """

    eager: frozenset[str] = frozenset()
    unread_weights: bool = False


@dataclass(frozen=True)
class Graphs(Facts):
    """Which methods a CUDA graph can hold.

    Args:
        whole: the whole sampling; None if it looks at values on the host in every version.
        without_waits: policy → (owner, method, around it) for the methods in ``whole`` that look at values on the host:
            ``around`` computes the same without that.
        loop: the method that runs all denoising steps, of a policy without a `Flow`.
        embedding: the method that makes tokens of the prefix, as far as a CUDA graph can hold it, and its label.
    """

    whole: Method | None = None
    without_waits: Callable[[Any], Sequence[Around]] = lambda _: ()
    loop: Method | None = None
    embedding: tuple[str, str, str] | None = None


def steps_field(config: Any) -> str:
    """Return the field of ``config`` with the number of denoising steps, or an empty name.

    A type without a record is assumed to name it as one of the known families does.
    """
    return _live_field_name(config, lambda fields: fields.steps_field(config))


def denoising_steps(config: object) -> int | None:
    """Return the number of denoising steps in ``config``; None if the policy has none."""
    steps = getattr(config, steps_field(config), None)
    if steps is None:
        steps = getattr(config, _live_field_name(config, lambda fields: fields.every_step), None)
    return steps if isinstance(steps, int) else None


def _live_field_name(config: object, field: Callable[[LiveFields], str]) -> str:
    family = find_family(getattr(config, "type", ""))
    if family is not None:
        return field(LiveFields.from_family(family))
    names = dict.fromkeys(field(LiveFields.from_family(known)) for known in records().values())
    return next((name for name in names if name and hasattr(config, name)), "")
