"""What the README quotes is what an example run says, in the words of today."""

from __future__ import annotations

import re

from support.suite.places import ROOT

from strobe.core import kinds
from strobe.core.runs import store


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


def table_rows(text: str, cell: str) -> dict[str, list[str]]:
    """The rows of a table by their first cell, in a page's ``text`` whose cells are divided by ``cell``."""
    rows = ([part.strip() for part in line.strip(f"{cell} ").split(cell)] for line in text.splitlines())
    return {row[0]: row[1:] for row in rows if len(row) > 3}


def test_the_readmes_planted_faults_are_those_of_the_benchmarks_run():
    readme = table_rows((ROOT / "README.md").read_text().partition("| planted fault |")[2], "|")
    run = table_rows((ROOT / "docs" / "benchmarks.md").read_text().partition("## Planted faults")[2], "│")
    faults = {fault: row for fault, row in readme.items() if fault in run}
    assert len(faults) >= 6
    for fault, (cosine, old_guard, error, ours) in faults.items():
        _, rms, _, _, judgement, seen, passes = run[fault]
        assert (cosine, old_guard, error) == (seen, passes, f"{rms} σ"), fault
        assert judgement.startswith(ours), fault


def test_the_readmes_verdicts_are_those_of_the_benchmarks_run():
    readme = (ROOT / "README.md").read_text()
    run = (ROOT / "docs" / "benchmarks.md").read_text().partition("## Verdicts")[2].partition("\n## ")[0]
    assert "| A/A: a difference claimed | 0.5 % | 54.5 % |" in run
    assert "| the same against itself: called different | 0.5 % | 54.5 % |" in readme
    assert "| 3 % slower: found | 94.5 % | 68.0 % |" in run
    assert "| 3 % more work: found slower | 94.5 % | 68.0 % |" in readme


def test_the_counts_of_the_kits_rows_are_those_of_their_tables():
    head, *kits = (ROOT / "docs" / "coming-from" / "rows.md").read_text().split("\n## ")
    shown = re.findall(r"^\| [^|]*\| (\d+ \| \d+ \| \d+ \| \d+) \|$", head, re.MULTILINE)
    states = [re.findall(r"\| (there|partly|not there)\b[^|]*\|$", kit, re.M) for kit in (*kits, "\n".join(kits))]
    assert shown == [" | ".join(map(str, [len(of), *map(of.count, ("there", "partly", "not there"))])) for of in states]
