"""Stand-ins for what LeRobot fetches from the Hub while it makes a policy: tokenizers, configs, processors.

Preprocessing stays real. Only policies with random weights get a placeholder, and the notes say so. The family's record
lists the things that a policy needs, with their placeholders.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from unittest import mock

from strobe.core.errors import UserError
from strobe.core.families.capabilities import Construction, HubNeed
from strobe.core.families.registry import find_family, known_families
from strobe.core.timeline.layers import Call
from strobe.lerobot.refusals import first_line

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

# Stand-ins for tokenizers on the Hub: real tokenizers with vocabularies of the same size.

TINY_VOCABULARY = 512
# Module and attribute by which LeRobot's processors load a tokenizer.
TOKENIZERS = ("lerobot.processor.tokenizer_processor", "AutoTokenizer")

_IMAGE_TOKENS = ("<fake_token_around_image>", "<global-img>", "<image>")
_PHRASES = (
    "pick up the red cube and place it in the box, then put the bowl on the plate",
    "push the T-shaped block onto the green target; open the top drawer and close it",
    "grasp the handle, turn the tap, press the button, insert the peg, fold the towel, stack the blocks",
    "Task: move the left arm to the right, State: -1 0 127 255;\nAction: User: Assistant:",
)


@dataclass(frozen=True)
class Vocabulary:
    """The facts of a tokenizer that matter to LeRobot.

    Args:
        size: tokens in its vocabulary.
        special: the names of special tokens (``pad_token`` …) with their texts.
        begins: whether every text begins with the ``bos_token``, and ``ends``, whether it ends with the ``eos_token``.
        more: further texts that are one token each, such as those around images, with the ids that configs give them.
    """

    size: int
    special: tuple[tuple[str, str], ...]
    begins: bool = False
    ends: bool = False
    more: tuple[tuple[str, int], ...] = ()


@cache
def tokenizer(vocabulary: Vocabulary, tiny: bool = False) -> PreTrainedTokenizerFast:
    """Return a fast tokenizer that stands in for the one with ``vocabulary``: byte-level BPE over words of robot tasks.

    Digits are split one by one and unknown words fall back to bytes, as in the real ones; ids lie below the
    real vocabulary's size (below TINY_VOCABULARY if ``tiny``), which ``len`` returns.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    size, special = TINY_VOCABULARY if tiny else vocabulary.size, dict(vocabulary.special)
    more = [text for text, _ in vocabulary.more]
    reserved = list(dict.fromkeys([*special.values(), *more, *_IMAGE_TOKENS]))
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=alphabet, special_tokens=reserved, show_progress=False
    )
    bpe.train_from_iterator(_PHRASES, trainer)
    learned = json.loads(bpe.to_str())["model"]
    ids = learned["vocab"] | {f"<unused{i}>": i for i in range(len(learned["vocab"]), size)}
    if not tiny:
        for text, number in vocabulary.more:
            ids[text], ids[f"<unused{number}>"] = number, ids[text]
    split = bpe.pre_tokenizer
    bpe = Tokenizer(models.BPE(vocab=ids, merges=[tuple(pair) for pair in learned["merges"]]))
    bpe.pre_tokenizer, bpe.decoder = split, decoders.ByteLevel()
    bpe.add_special_tokens(reserved)
    before = [special["bos_token"]] if vocabulary.begins else []
    after = [special["eos_token"]] if vocabulary.ends else []
    if around := [*before, *after]:
        bpe.post_processor = processors.TemplateProcessing(
            single=[*before, "$A", *after], special_tokens=[(text, ids[text]) for text in around]
        )
    fast: Any = PreTrainedTokenizerFast(tokenizer_object=bpe, **special)
    fast.fake_image_token_id = ids["<fake_token_around_image>"]
    fast.global_image_token_id = ids["<global-img>"]
    return fast


_REACH_SECONDS = 3.0


@cache
def hub_reachable() -> bool:
    """Return whether the Hub answers. It is tried once per process, for a few seconds."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    if constants.HF_HUB_OFFLINE:
        return False
    answered = threading.Event()

    def ask() -> None:
        with contextlib.suppress(Exception):
            get_session().head(constants.ENDPOINT, timeout=_REACH_SECONDS)
            answered.set()

    # In a thread, because looking up the name may hang beyond any timeout.
    threading.Thread(target=ask, daemon=True).start()
    return answered.wait(_REACH_SECONDS)


@dataclass
class _Auto:
    """Takes the place of a transformers ``Auto…`` class: the real thing if it is there without waiting."""

    real: Any
    site: tuple[str, str]
    what: str
    make: dict[str, Callable[[bool], object]]
    random_weights: bool
    tiny: bool
    notes: list[str] = field(default_factory=list)

    def from_pretrained(self, name: str, *args: object, **kwargs: object) -> object:
        if self.tiny and (make := self._find_maker(name)):
            return self._note_placeholder(name, "the tiny size has its own vocabulary", make)
        try:
            return self.real.from_pretrained(name, *args, **{**kwargs, "local_files_only": True})
        except Exception:
            why = "it is not in the local cache and the Hub cannot be reached"
        if hub_reachable():
            try:
                return self.real.from_pretrained(name, *args, **kwargs)
            except Exception as refusal:
                why = f"the Hub does not give it ({first_line(refusal)[:120]})"
        if self.random_weights and (make := self._find_maker(name)):
            return self._note_placeholder(name, why, make)
        raise UserError(
            f"the {self.what} '{name}' that this policy needs is not available: {why}; "
            f"run `hf download {name}` on a machine with a connection, or set HF_HOME to a cache that has it"
        )

    def _find_maker(self, name: str) -> Callable[[bool], object] | None:
        """Return what makes the placeholder. Any policy may use a tokenizer that another family's record knows."""
        needs = (need for family in known_families() for need in Construction.from_family(family).hub)
        others = (need for need in needs if need.site == TOKENIZERS == self.site and need.name == name)
        return self.make.get(name) or next((need.make for need in others), None)

    def _note_placeholder(self, name: str, why: str, make: Callable[[bool], object]) -> object:
        note = f"{self.what} {name}: a local placeholder, because {why}"
        if note not in self.notes:
            self.notes.append(note)
        return make(self.tiny)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


@contextlib.contextmanager
def stand_ins(kind: str, *, random_weights: bool, tiny: bool = False) -> Iterator[list[str]]:
    """While open, LeRobot gets what a policy of type ``kind`` needs from the Hub without waiting for the Hub.

    Each thing is looked for in the local cache, then on the Hub if it answers, and last replaced by a placeholder, but
    only with ``random_weights`` and for the known ids; ``tiny`` always takes the placeholder. Yields the notes, which
    fill as LeRobot loads. Inside, a tokenizer or config that is not available raises UserError. With
    ``random_weights`` no backbone of timm reads weights either.
    """
    sites: dict[tuple[str, str], list[HubNeed]] = {TOKENIZERS: []}
    for need in Construction.from_family(find_family(kind)).hub:
        sites.setdefault(need.site, []).append(need)
    notes: list[str] = []
    with contextlib.ExitStack() as stack:
        for (name, attribute), needed in sites.items():
            module = importlib.import_module(name)
            real = getattr(module, attribute)
            if real is not None:  # transformers is not installed: LeRobot says so itself
                what = needed[0].what if needed else "tokenizer"
                makers = {need.name: need.make for need in needed}
                auto = _Auto(real, (name, attribute), what, makers, random_weights, tiny, notes)
                stack.enter_context(mock.patch.object(module, attribute, auto))
        if random_weights and (builder := sys.modules.get("timm.models._builder")) is not None:
            stack.enter_context(mock.patch.object(builder, "load_pretrained", _left_out))
        yield notes


def _left_out(model: object, *_: object, **__: object) -> None:
    logging.warning("the pretrained weights of timm's %s were not loaded: all weights are random", type(model).__name__)


# Models with random weights in the place of those that LeRobot reads from the Hub, and their sizes.


def sizes(
    width: int, mlp: int, layers: int, heads: int, *, kv_heads: int | None = None, head_dim: int | None = None
) -> dict[str, Any]:
    """Return the sizes of a transformer by the names that configs of transformers have for them.

    Args:
        width: of the tokens, and ``mlp`` of the hidden layer behind each attention.
        layers: number of blocks, each with ``heads`` heads of attention.
        kv_heads: heads of keys and values, if these are fewer.
        head_dim: numbers of a head; None for ``width / heads``.
    """
    values: dict[str, Any] = {
        "hidden_size": width,
        "intermediate_size": mlp,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
    }
    further = {"num_key_value_heads": kv_heads, "head_dim": head_dim}
    return values | {name: value for name, value in further.items() if value is not None}


class _Loading:
    """The same class with another ``from_pretrained``."""

    def __init__(self, real: object, from_pretrained: Call) -> None:
        self.real, self.from_pretrained = real, from_pretrained

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


@contextlib.contextmanager
def replacing(instead: Mapping[str, object]) -> Iterator[None]:
    """Have other things in LeRobot's modules while open.

    Args:
        instead: ``'module:name'``, or ``'module:Class.method'`` of a method that the class itself defines → what is
            there.
    """
    with contextlib.ExitStack() as stack:
        for place, thing in instead.items():
            owner, name = _place(place)
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, thing)
        yield


def loading(instead: Mapping[str, Call]) -> contextlib.AbstractContextManager[None]:
    """Have LeRobot make models from their configs while open, where it would read their weights from the Hub.

    Args:
        instead: ``'module:Class'``, as that module of LeRobot names the class → what runs for its ``from_pretrained``.
    """
    return replacing({place: _Loading(getattr(*_place(place)), made) for place, made in instead.items()})


def _place(place: str) -> tuple[object, str]:
    module, _, path = place.partition(":")
    *steps, name = path.split(".")
    owner: object = importlib.import_module(module)
    for step in steps:
        owner = getattr(owner, step)
    return owner, name


# Types of policies and backbones whose records are in a package of their own, and what to say where it is missing.

ZOO = frozenset(
    {
        "eo1", "evo1", "fastwam", "gaussian_actor", "groot", "lingbot_va", "molmoact2", "multi_task_dit", "pi0_fast",
        "tdmpc", "vla_jepa", "vqbet", "wall_x", "xvla", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "siglip2_vision_model",
    }
)  # fmt: skip

First = TypeVar("First")
Further = ParamSpec("Further")
Made = TypeVar("Made")


def missing_zoo_line(kind: str) -> str | None:
    """Return a line that names strobe-zoo, where a type has its record there and it is not installed; else None."""
    if kind not in ZOO or find_family(kind) is not None:
        return None
    return (
        f"strobe-zoo, which names the parts of {kind} and builds it without the Hub, is not installed: "
        "pip install ./packages/strobe_zoo in Strobe's repository"
    )


def add_zoo_line(make: Callable[Concatenate[First, Further], Made]) -> Callable[Concatenate[First, Further], Made]:
    """Return ``make``, of a type or a config of it, which names strobe-zoo as well where it refuses such a type."""

    @functools.wraps(make)
    def call(first: First, *further: Further.args, **options: Further.kwargs) -> Made:
        try:
            return make(first, *further, **options)
        except UserError as error:
            kind = first if isinstance(first, str) else getattr(first, "type", None) or getattr(first, "model_type", "")
            line = missing_zoo_line(kind.removesuffix("_vision"))
            if line is None or type(error) is not UserError:
                raise
            raise UserError(f"{error}; {line}") from error

    return call
