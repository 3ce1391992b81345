"""Rules on the prompt: is it there, is it among the data set's tasks, does the tokenizer cut it?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from strobe.results.finding import Finding
from strobe.results.wiring import CutPrompt, Wiring

SHOWN = 60  # characters of a text


def given_prompt(wiring: Wiring) -> Iterator[Finding]:
    """A prompt that is empty, or none of the data set's tasks (lerobot #2753)."""
    words = wiring.prompt
    if words is None or not words.reads_words or words.given is None:
        return
    tasks = "; ".join(f"'{task}'" for task in words.tasks[:3]) or "those of its training data"
    if not words.given.strip():
        yield Finding(
            rule="prompt-empty",
            level="warning",
            title="The policy reads words and is given none",
            seen="--task is empty.",
            why="It was trained with a task in words, and does nothing in particular without.",
            do=f"--task=… : {tasks}",
        )
    elif words.tasks and words.given not in words.tasks:
        yield Finding(
            rule="prompt-unknown",
            level="warning",
            title="The task is none of the data set's",
            seen=f"--task='{words.given}'; the data has {tasks}.",
            why="A policy that was trained on few tasks knows their wording, and little else.",
            do=f"--task='{words.tasks[0]}'",
        )


def cut_prompt(wiring: Wiring) -> Iterator[Finding]:
    """A prompt whose end the tokenizer cuts off, so that the policy never sees it."""
    words = wiring.prompt
    if words is None or not words.cut:
        return
    alike = Counter(_seen(each) for each in words.cut if each.task in words.tasks)
    same = next((each for each in words.cut if alike[_seen(each)] > 1), None)
    asked = next((each for each in words.cut if each.task == words.given), None)
    first = same or asked or words.cut[0]
    of_data = sum(each.task in words.tasks for each in words.cut)
    seen = f"'{_short(first.task)}' makes {first.tokens} tokens"
    seen += "" if first.always else " with a state of three-digit numbers"
    seen += f", of which the policy sees {words.most_tokens} (max_length of policy_preprocessor.json). Cut off is "
    seen += f"'{_short(first.cut)}'."
    seen += f" It is so for {of_data} of the data set's {len(words.tasks)} tasks." if of_data else ""
    seen += " Two of them read the same without it." if same is not None else ""
    another = asked is not None and asked.task not in words.tasks
    yield Finding(
        rule="prompt-cut",
        level="warning" if same is not None or another else "info",
        title="The tokenizer cuts the end of the prompt off",
        seen=seen,
        why="LeRobot says nothing of it. What stands there the policy does not know"
        + (", and numbers of the state are a part of it." if _with_state(first) else "."),
        do="A shorter task, or a larger --policy.tokenizer_max_length in training.",
        evidence={"tokens": first.tokens, "most": words.most_tokens, "tasks": len(words.cut)},
    )


def _seen(each: CutPrompt) -> str:
    return each.text[: len(each.text) - len(each.cut)]


def _with_state(each: CutPrompt) -> bool:
    """Whether numbers of the state are cut off: they stand behind the task."""
    return "State: " in each.text and any(character.isdigit() for character in each.cut)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN // 2]} … {line[-SHOWN // 2 :]}"


CHECKS = (given_prompt, cut_prompt)
