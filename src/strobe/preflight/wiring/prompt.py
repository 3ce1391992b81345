"""The prompt of a policy: is it read, and does the tokenizer cut it?

Tokens are counted with the tokenizer's own file, by the library that LeRobot's tokenizers run on. Neither torch nor
transformers is imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from strobe.core.errors import error_line
from strobe.preflight.results.wiring import CutPrompt, Prompt
from strobe.preflight.wiring.checkpoint import Checkpoint

_TOKENIZER = "tokenizer_processor"
_FILE = "tokenizer.json"
_MOST = 50  # cut prompts that an answer holds
_SHORTEST, _LONGEST = "0", "255"  # numbers of a state in a prompt: LeRobot's bins
# Steps of LeRobot's in front of the tokenizer that leave the task unchanged. Those of others may not.
_NEUTRAL = frozenset(
    {
        "rename_observations_processor", "to_batch_processor", "device_processor", "normalizer_processor",
        "relative_actions_processor", "observation_processor", "libero_processor", "isaaclab_arena_processor",
        "xvla_image_scale", "xvla_image_to_float", "xvla_imagenet_normalize", "xvla_add_domain_id",
    }
)  # fmt: skip
_NEW_LINE = frozenset({"pi0_new_line_processor", "smolvla_new_line_processor"})
# Steps that put the state into the prompt, by what follows it.
_WITH_STATE = {
    "pi05_prepare_state_tokenizer_processor_step": ";\nAction: ",
    "pi0_fast_prepare_state_tokenizer_processor_step": ";\n",
}


def read_prompt(checkpoint: Checkpoint, given: str | None, tasks: Sequence[str]) -> Prompt | None:
    """Return what is known of the prompt; None for a policy without a preprocessor.

    Args:
        given: the task of a loop; None without one.
        tasks: of a data set.
    """
    if checkpoint.preprocessor is None:
        return None
    steps = checkpoint.preprocessor.steps
    reads = any("tokenizer" in name or "conversation" in name for name, _ in steps)
    prompt = Prompt(reads_words=reads, given=given, tasks=list(tasks))
    texts: list[str] = list(dict.fromkeys([*([given] if given else []), *tasks]))
    if not reads or not texts:
        return prompt
    config = checkpoint.preprocessor.config(_TOKENIZER)
    if config is None:
        prompt.uncounted = f"the preprocessor has no {_TOKENIZER} step, so the policy makes its own tokens"
        return prompt
    prompt.most_tokens = int(config.get("max_length", 512))
    if not config.get("truncation", True):
        prompt.cut = []
        return prompt
    if unknown := _unknown_step(steps):
        prompt.uncounted = f"the step {unknown} before the tokenizer may change the text"
        return prompt
    tokenizer = _tokenizer(checkpoint.folder, config)
    if isinstance(tokenizer, str):
        prompt.uncounted = tokenizer
        return prompt
    state = (checkpoint.config.get("input_features") or {}).get("observation.state") or {}
    dimensions = int((state.get("shape") or [0])[0])
    found = (_cut(tokenizer, prompt.most_tokens, steps, task, dimensions) for task in texts)
    prompt.cut = [cut for cut in found if cut is not None][:_MOST]
    return prompt


def _unknown_step(steps: Sequence[tuple[str, object]]) -> str | None:
    before = [name for name, _ in steps]
    before = before[: before.index(_TOKENIZER)]
    return next((name for name in before if name not in _NEUTRAL | _NEW_LINE | set(_WITH_STATE)), None)


def _tokenizer(folder: Path, config: Mapping[str, object]) -> object:
    name = str(config.get("tokenizer_name") or "")
    file = _find_tokenizer_file(name, folder)
    if file is None and not name:
        return "the tokenizer step names no tokenizer"
    if file is None:
        return f"the {_FILE} of {name} is not on this machine: hf download {name}"
    try:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        return f"the tokenizer {file} cannot be read: {error_line(error, 120)}"


def _find_tokenizer_file(name: str, checkpoint: Path) -> Path | None:
    saved = checkpoint / "tokenizer"  # LeRobot after 0.6.1 saves it there
    for folder in (saved, Path(name)) if name else (saved,):
        if (folder / _FILE).is_file():
            return folder / _FILE
    if Path(name).is_dir() or name.count("/") != 1:
        return None
    from huggingface_hub import try_to_load_from_cache

    try:
        cached = try_to_load_from_cache(name, _FILE)
    except ValueError:  # no name that the Hub could have
        return None
    return Path(cached) if isinstance(cached, str) else None


def _cut(
    tokenizer: Any, most: int, steps: Sequence[tuple[str, object]], task: str, dimensions: int
) -> CutPrompt | None:  # fmt: skip
    shortest, longest = (_text(steps, task, [number] * dimensions) for number in (_SHORTEST, _LONGEST))
    for text in dict.fromkeys((shortest, longest)):
        tokenizer.no_padding()
        tokenizer.no_truncation()
        tokens = len(tokenizer.encode(text).ids)
        if tokens <= most:
            continue
        tokenizer.enable_truncation(most)
        seen = max((end for _, end in tokenizer.encode(text).offsets), default=0)
        if text[seen:].strip():
            return CutPrompt(text=text, task=task, tokens=tokens, cut=text[seen:], always=text == shortest)
    return None


def _text(steps: Sequence[tuple[str, object]], task: str, state: Sequence[str]) -> str:
    text = task
    for name, _ in steps:
        if name == _TOKENIZER:
            break
        if name in _NEW_LINE and not text.endswith("\n"):
            text += "\n"
        elif name in _WITH_STATE:
            cleaned = text.strip().replace("_", " ").replace("\n", " ")
            text = f"Task: {cleaned}, State: {' '.join(state)}{_WITH_STATE[name]}"
    return text
