"""The record of a family: all that Strobe knows of one kind of policy or backbone.

A new family is one file with one record. All other code reads the record; none knows a family's name. Another
package offers its record under the entry-point group ``strobe.families``, with the policy's type as the entry's name.
A type without a record is divided along its modules, and gets the treatments that need nothing but modules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from strobe.core.timeline.probe import Hook, Probe, hooks_of

if TYPE_CHECKING:
    from strobe.core.timeline.layers import Call

Probes = Callable[[Any], Sequence[Probe]]
Method = tuple[str, str]  # path of an object under the policy, name of its method


def no_probes(_: object) -> Sequence[Probe]:
    """Return no probes."""
    return ()


def nothing(_: object) -> Sequence[Any]:
    """Return no modules."""
    return ()


@dataclass(frozen=True)
class Tiny:
    """How a family is shrunk to a tiny policy of the same architecture.

    Args:
        fields: values for fields of the config. Lengths that decide how often a part runs (chunk, denoising steps) are
            left alone.
        defaults: values for fields that the config leaves at None.
    """

    fields: Mapping[str, Any]
    defaults: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Arm:
    """The synthetic robot that feeds a family's policies, if that cannot be one with two cameras and six joints.

    Args:
        cameras: names of its images, whole (``observation.image``); () for ``observation.images.front`` and so on.
        most: the largest number of cameras; None for any number.
        image: height and width of its images, and ``tiny_image`` those of a tiny policy; None for the usual ones.
        state, action: their numbers of values.
        instead: whether its cameras replace those that the config makes up without given ones.
    """

    cameras: tuple[str, ...] = ()
    most: int | None = None
    image: tuple[int, int] | None = None
    tiny_image: tuple[int, int] | None = None
    state: int = 6
    action: int = 6
    instead: bool = False


@dataclass(frozen=True)
class HubNeed:
    """Something that LeRobot fetches from the Hub by ``from_pretrained`` while it makes a policy, and its stand-in.

    Args:
        name: the repository on the Hub.
        what: the word for it in notes, e.g. 'tokenizer'.
        module, attribute: the module of LeRobot that loads it, and the class there that it loads with.
        make: whether the policy is tiny → the stand-in.
    """

    name: str
    what: str
    module: str
    attribute: str
    make: Callable[[bool], Any]

    @property
    def site(self) -> tuple[str, str]:
        """Module and attribute."""
        return self.module, self.attribute


@dataclass(frozen=True)
class Flow:
    """How a flow policy of LeRobot samples: a prefix pass fills a key-value cache, denoising steps read it.

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
        clone: the function of the model's module that copies the cache in every step; '' if steps share it.
        layers: whether a transformer's layers run as modules, or through methods of the joint module.
        repeated: model → projections (modules of one tensor) of the prefix's keys and values that every step repeats.
    """

    joint: str
    language: str
    expert: str
    chunk: str
    images: str
    suffix_pass: Call
    attention_mask: Callable[[Any, Any], Any]
    clone: str = ""
    layers: Literal["modules", "methods"] = "modules"
    repeated: Callable[[Any], Sequence[object]] = lambda _: ()


@dataclass(frozen=True)
class Conditioning:
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
class LastBlock:
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
class Rerun:
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
class Views:
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
class Words:
    """A text encoder that reads the task and nothing else.

    Args:
        encoding: the method that is given the task, as text or as tokens, and gives tensors that depend on it alone.
        encoder: policy → the module whose weights it reads with.
    """

    encoding: Method
    encoder: Callable[[Any], Any]


@dataclass(frozen=True)
class Backbone:
    """Facts about a backbone of transformers, for `subjects.models` and `ModelSubject`.

    Args:
        sizes: ``--model.size`` → fields of the config.
        usual: the default size.
        frames: default number of frames of a clip; None for the config's own.
        predictor: the option that leaves the predictor out when it is true; '' for a backbone without one.
        preprocessing: the model → its own preprocessing and the probes on its steps. It makes of frames the pixels,
            or, for a model with more inputs than them, all arguments of the model by name.
        tower: the type → the class of the vision tower, where transformers has no ``AutoModel`` for it.
        weights: pattern of the prefix that the tower's weights have in a checkpoint of the whole model.
        resized: module, side in pixels, side of a patch → (owner, attribute, value) for each thing that holds the
            image's size; None if the size is built in.
    """

    sizes: Mapping[str, Mapping[str, Any]]
    usual: str
    frames: int | None = None
    predictor: str = ""
    preprocessing: Callable[[Any], tuple[Callable[[Any], Any], list[Hook]]] | None = None
    tower: Callable[[str], Any] | None = None
    weights: str = ""
    resized: Callable[[Any, int, int], list[tuple[object, str, object]]] | None = None


@dataclass(frozen=True, eq=False)
class Family:
    """One family of policies or backbones.

    Args:
        name: shown with the result.
        types: LeRobot policy types (``--policy.type``) or transformers model types (``--model.type``) it is for.
        probes: policy or model → probes, for every phase; None to divide it along its modules. Level 1 is the default,
            2 the blocks, 3 the inside of blocks; a backbone has its blocks at level 1.
        training: further probes for the training phases, where the forward pass takes another way.
        inference: further probes for inference alone.
        compiled: what ``--compile`` compiles.
        costly: paths of the modules that take its time, the usually costliest first.
        seeing: part → path of its module, for the parts that process images; the costliest first.
        working: a step of a module's path, or a path of several steps that it begins with → the parts in which that
            module works, where parts are methods.
        caching: path of a module that takes or gives a key-value cache and is called as a module → the parts that it
            computes.
        steps: the field of the config that holds the number of denoising steps, read on every call; '' for none.
        objectives: the config's ``objective`` → such a field, where each objective has its own.
        every_step: the field that holds the number where ``steps`` is None.
        live: further fields of the config that are read on every call, and ``live_in_training`` those that only the
            training phases read.
        flow: how it samples, for a flow policy with a prefix cache.
        conditioning: features of the observation that each denoising step computes again.
        last_block: the last block of its denoising transformer, if a step reads only some of its rows.
        rerun: how it samples, for a flow policy without one.
        views: the model that sees its cameras, if that always gets the same number of views.
        words: the text encoder that reads its task separately from images and state, if any.
        unread_head: path of a language head that runs without its output being read; '' for none.
        word_tables: path of the embedding that joins two tables of words to one on every call; '' for none.
        context: policy → the modules of its denoising steps that are given the context alone, which is the same in all
            steps of a chunk: projections to keys and values, what follows them, what makes the context of one tensor;
            a torch.nn.MultiheadAttention, whose query is not the context, as a whole.
        unread_half: policy → (owner, method, around it) for the passes that compute, besides what is read, a half for a
            guidance that is off: ``around`` leaves that half out. None if the half is read, or not there.
        whole: the whole sampling, where a CUDA graph can hold it; None if it looks at values on the host.
        without_waits: policy → (owner, method, around it) for the methods in ``whole`` that look at values on the host:
            ``around`` computes the same without that.
        embedding: the method that makes tokens of the prefix, as far as a CUDA graph can hold it, and its label.
        eager: steps of the paths of modules whose attention LeRobot makes eager on every call.
        unread_weights: whether torch's own attention modules compute attention weights that nobody reads.
        tiny: how it is shrunk.
        hub: its needs from the Hub, with their stand-ins.
        flags: settings of the config, as on LeRobot's command line (``--name=value``), that a policy with random
            weights needs if the user gives none; those unknown to the installed LeRobot are left out.
        building: config and whether the policy is tiny → a context in which a policy with random weights and its
            processors are made; it may yield notes on stand-ins, as in `SubjectInfo.stand_ins`.
        settle: policy, preprocessor → None: loads what LeRobot would load at the first chunk, while ``building`` and
            the stand-ins are there. It is called once where the policy is made, without a preprocessor, then with one.
        arm: the synthetic robot it is fed from.
        chunk: policy, preprocessed batch, options of ``predict_action_chunk`` → one chunk, (B, chunk, action dim),
            where that method alone does not give one.
        outside: policy → modules that it holds but does not register: they are filled with weights and counted as its
            own are, and put in eval mode.
        memos: policy → owner and attribute of each value that it keeps from one call to the next and made with its
            weights; None stands for nothing kept.
        untrained: why the policy has no training forward pass; '' if it has one.
        reads_words: whether it makes tokens of the task itself, or in a step of its preprocessor that is no tokenizer.
        fills_cameras: whether it uses an empty image for a missing camera, so that one camera is enough.
        any_image_size: whether its images go through a convolutional net alone, which takes any size.
        image_size: the field of the config with the size, (height, width), that its vision tower is built for.
        stacked: whether observations have a dimension of ticks even where it looks at one: its ``predict_action_chunk``
            takes the batch as ``select_action``'s queues stack it.
        mps_known: whether the RTC profiling toolkit has times of it on Apple silicon.
        backbone: facts about it, for a backbone of transformers.
    """

    name: str
    types: tuple[str, ...]
    probes: Probes | None = None
    training: Probes = no_probes
    inference: Probes = no_probes
    compiled: tuple[Method, ...] = ()
    costly: tuple[str, ...] = ()
    seeing: Mapping[str, str] = field(default_factory=dict)
    working: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    caching: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    steps: str = ""
    objectives: Mapping[str, str] = field(default_factory=dict)
    every_step: str = ""
    live: tuple[str, ...] = ()
    live_in_training: tuple[str, ...] = ()
    flow: Flow | None = None
    conditioning: Conditioning | None = None
    last_block: LastBlock | None = None
    rerun: Rerun | None = None
    views: Views | None = None
    words: Words | None = None
    unread_head: str = ""
    word_tables: str = ""
    context: Callable[[Any], Sequence[Any]] = nothing
    unread_half: Callable[[Any], Sequence[tuple[Any, str, Callable[[Any], Any]]]] = nothing
    whole: Method | None = None
    without_waits: Callable[[Any], Sequence[tuple[Any, str, Callable[[Any], Any]]]] = nothing
    embedding: tuple[str, str, str] | None = None
    eager: frozenset[str] = frozenset()
    unread_weights: bool = False
    tiny: Tiny | None = None
    hub: tuple[HubNeed, ...] = ()
    flags: tuple[str, ...] = ()
    building: Callable[[Any, bool], AbstractContextManager[Sequence[str] | None]] | None = None
    settle: Callable[[Any, Any], None] | None = None
    arm: Arm = Arm()
    chunk: Callable[[Any, dict[str, Any], Mapping[str, Any]], object] | None = None
    outside: Callable[[Any], Sequence[Any]] = nothing
    memos: Callable[[Any], Sequence[tuple[Any, str]]] = nothing
    untrained: str = ""
    reads_words: bool = False
    fills_cameras: bool = False
    any_image_size: bool = False
    image_size: str = ""
    stacked: bool = False
    mps_known: bool = False
    backbone: Backbone | None = None

    def steps_of(self, config: object) -> str:
        """Return the field of ``config`` that holds the number of denoising steps; '' for none."""
        return self.objectives.get(getattr(config, "objective", ""), self.steps)

    def hooks(self, module: object, *, training: bool, depth: int = 1) -> list[Hook]:
        """Return the hooks of the probes, down to ``depth`` levels.

        Raises:
            ProbeError: the probes do not fit the installed LeRobot or transformers; the message starts with the
                probe's name.
        """
        phase = self.training if training else self.inference
        every = self.probes(module) if self.probes is not None else ()
        return hooks_of([probe for probe in (*every, *phase(module)) if probe.level <= depth], module)


def blocks(path: str, name: str, level: int = 2) -> Probe:
    """Return a probe on each child of the container at ``path``, called '<name> <index>'."""
    return Probe.module(f"{path}.*", f"{name} {{}}", level=level)
