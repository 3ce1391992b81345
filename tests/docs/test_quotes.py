"""What the README quotes is what an example run says, in the words of today."""

from __future__ import annotations

import re
from pathlib import Path

from strobe import kinds
from strobe.runs import store

ROOT = Path(__file__).parents[2]


def quotes() -> list[str]:
    """The sentences in the README's quotations."""
    blocks = re.findall(r"(?:^> .*\n)+", (ROOT / "README.md").read_text(), re.MULTILINE)
    texts = [" ".join(line.removeprefix("> ").strip() for line in block.splitlines()) for block in blocks]
    return [sentence.rstrip(".") for text in texts for sentence in re.split(r"(?<=[.)]) (?=[A-Z])", text)]


def test_each_quoted_sentence_is_said_by_an_example():
    answers = [store.load_answer(path) for path in sorted((ROOT / "docs" / "examples").glob("*/result.json"))]
    said = " ".join(sentence for answer in answers for sentence in kinds.document(answer).answers)
    found = quotes()
    assert len(found) >= 5
    assert not [sentence for sentence in found if sentence not in said]
