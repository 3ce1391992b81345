"""Local stand-ins for the tokenizers and configs that LeRobot fetches from the Hub.

Preprocessing stays real: a stand-in is a real fast tokenizer with the vocabulary size of the one it replaces.
Only policies with random weights get one, and the notes say so.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest import mock

from strobe.errors import UserError

PALIGEMMA = "google/paligemma-3b-pt-224"
SMOLVLM = "HuggingFaceTB/SmolVLM2-500M-Video-Instruct"
TINY_VOCABULARY = 512
_REACH_SECONDS = 3.0

# What the Hub has, of which only the sizes and these special tokens matter to LeRobot.
_TOKENIZERS: dict[str, tuple[int, dict[str, str]]] = {
    PALIGEMMA: (
        257152,
        {"pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<bos>", "unk_token": "<unk>"},
    ),
    SMOLVLM: (49280, {"unk_token": "<|endoftext|>", "bos_token": "<|im_start|>", "pad_token": "<|im_end|>"}),
}
_IMAGE_TOKENS = ("<fake_token_around_image>", "<global-img>", "<image>")
_PHRASES = (
    "pick up the red cube and place it in the box, then put the bowl on the plate",
    "push the T-shaped block onto the green target; open the top drawer and close it",
    "grasp the handle, turn the tap, press the button, insert the peg, fold the towel, stack the blocks",
    "Task: move the left arm to the right, State: -1 0 127 255;\nAction: User: Assistant:",
)

_SMOLVLM_CONFIG: dict[str, Any] = {
    "scale_factor": 4,
    "image_token_id": 49190,
    "pad_token_id": 2,
    "tie_word_embeddings": False,
    "use_cache": False,
    "dtype": "float32",
    "text_config": {
        "model_type": "llama",
        "dtype": "bfloat16",
        "vocab_size": 49280,
        "hidden_size": 960,
        "intermediate_size": 2560,
        "num_hidden_layers": 32,
        "num_attention_heads": 15,
        "num_key_value_heads": 5,
        "head_dim": 64,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 100000,
        "pad_token_id": 2,
    },
    "vision_config": {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "image_size": 512,
        "patch_size": 16,
    },
}
_TINY_TEXT = {
    "vocab_size": TINY_VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 16,
}
_TINY_VISION = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 64,
}


@cache
def hub_reachable() -> bool:
    """Whether the Hub answers, found out once per process and within a few seconds."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    if constants.HF_HUB_OFFLINE:
        return False
    answered = threading.Event()

    def ask() -> None:
        with contextlib.suppress(Exception):
            get_session().head(constants.ENDPOINT, timeout=_REACH_SECONDS)
            answered.set()

    # In a thread, because looking up the name may hang for longer than any timeout says.
    threading.Thread(target=ask, daemon=True).start()
    return answered.wait(_REACH_SECONDS)


@cache
def tokenizer(name: str, tiny: bool = False) -> Any:
    """A fast tokenizer that stands in for ``name``: byte-level BPE over common words of robot tasks.

    Digits are split one by one and unknown words fall back to bytes, as in the real ones; ids lie below the
    real vocabulary size (below TINY_VOCABULARY if ``tiny``), which ``len`` returns.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    size, special = _TOKENIZERS[name]
    size = TINY_VOCABULARY if tiny else size
    reserved = [*special.values(), *_IMAGE_TOKENS]
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
    vocabulary = learned["vocab"] | {f"<unused{i}>": i for i in range(len(learned["vocab"]), size)}
    bpe.model = models.BPE(vocab=vocabulary, merges=[tuple(pair) for pair in learned["merges"]])
    bpe.decoder = decoders.ByteLevel()
    if name == PALIGEMMA:
        bos = special["bos_token"]
        bpe.post_processor = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, vocabulary[bos])])
    fast = PreTrainedTokenizerFast(tokenizer_object=bpe, **special)
    fast.fake_image_token_id = vocabulary["<fake_token_around_image>"]
    fast.global_image_token_id = vocabulary["<global-img>"]
    return fast


def smolvlm_config(tiny: bool = False) -> Any:
    """The SmolVLM2-500M config, or one of the same architecture shrunk."""
    from transformers import SmolVLMConfig

    values = _SMOLVLM_CONFIG
    if tiny:
        values = values | {
            "image_token_id": TINY_VOCABULARY - 1,
            "text_config": values["text_config"] | _TINY_TEXT,
            "vision_config": values["vision_config"] | _TINY_VISION,
        }
    return SmolVLMConfig.from_dict(deepcopy(values))


@dataclass
class _Auto:
    """Takes the place of a transformers ``Auto…`` class: the real thing where no wait is needed for it."""

    real: Any
    what: str
    make: dict[str, Callable[[], Any]]
    random_weights: bool
    tiny: bool
    notes: list[str] = field(default_factory=list)

    def from_pretrained(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if self.tiny and name in self.make:
            return self._stand_in(name, "the tiny size has a vocabulary of its own")
        try:
            return self.real.from_pretrained(name, *args, **{**kwargs, "local_files_only": True})
        except Exception:
            why = "it is not in the local cache and the Hub cannot be reached"
        if hub_reachable():
            try:
                return self.real.from_pretrained(name, *args, **kwargs)
            except Exception as refusal:
                why = f"the Hub does not give it ({_first_line(refusal)})"
        if self.random_weights and name in self.make:
            return self._stand_in(name, why)
        raise UserError(
            f"the {self.what} '{name}' that this policy needs cannot be had: {why}; "
            f"run `hf download {name}` where there is a connection, or set HF_HOME to a cache that has it"
        )

    def _stand_in(self, name: str, why: str) -> Any:
        note = f"{self.what} {name}: a local stand-in, because {why}"
        if note not in self.notes:
            self.notes.append(note)
        return self.make[name]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:120]


@contextlib.contextmanager
def stand_ins(*, random_weights: bool, tiny: bool = False) -> Iterator[list[str]]:
    """While open, LeRobot gets its tokenizers and SmolVLM configs without waiting for the Hub.

    Each is looked for in the local cache, then on the Hub if it answers, and last replaced by a stand-in, but
    only with ``random_weights`` and for the known ids; ``tiny`` always takes the stand-in. Yields the notes,
    which fill while LeRobot asks. Inside, a tokenizer or config that cannot be had raises UserError.
    """
    import lerobot.policies.smolvla.smolvlm_with_expert as smolvlm
    import lerobot.processor.tokenizer_processor as processor

    notes: list[str] = []
    tokenizers: dict[str, Callable[[], Any]] = {name: lambda name=name: tokenizer(name, tiny) for name in _TOKENIZERS}
    configs: dict[str, Callable[[], Any]] = {SMOLVLM: lambda: smolvlm_config(tiny)}
    processors: dict[str, Callable[[], Any]] = {SMOLVLM: lambda: SimpleNamespace(tokenizer=tokenizer(SMOLVLM, tiny))}
    with contextlib.ExitStack() as stack:
        for module, attribute, what, make in (
            (processor, "AutoTokenizer", "tokenizer", tokenizers),
            (smolvlm, "AutoConfig", "config", configs),
            (smolvlm, "AutoProcessor", "processor", processors),
        ):
            real = getattr(module, attribute)
            if real is not None:  # transformers is not installed: LeRobot says so itself
                auto = _Auto(real, what, make, random_weights, tiny, notes)
                stack.enter_context(mock.patch.object(module, attribute, auto))
        yield notes
