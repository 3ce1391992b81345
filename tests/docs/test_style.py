"""Words that a reader stumbles over do not come back, and names are verb phrases or nouns: see docs/style.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from support.checks.literals import literals
from support.suite.places import ROOT
from support.suite.scripts import load_script

SOURCES = sorted((ROOT / "src" / "strobe").rglob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if page.name != "style.md" and "examples" not in page.parts]
# House words used as nouns, and turns of phrase that hide the subject. Help, findings, errors and captions have none.
HOUSE_WORDS = (
    r"\btaught\b", r"\bone's\b", r"\b(?:was|were|is|are|been) told\b",
    r"\bwhat (?:was|is|were) (?:asked|told|kept|left|taught|found)\b",
    r"\b(?:the|every|each|no) (?:asked|told|kept|taught)\b", r"\bwired otherwise\b", r"\bnot kept\b", r"\bno number\b",
    r"\bfor want of\b", r"\bis there (?:twice|already)\b", r"\b(?:whatever|however) (?:the|its|it|old|slow)\b",
    r"\bmeanwhile\b", r"\btoo noisy\b", r"\bno difference shown\b", r"\bis it wired\b", r"\bInterval of it\b",
    r"\b[Nn]othing (?:is|was found) wrong\b", r"\b[Nn]othing wrong was found\b", r"\brested? on observations\b",
)  # fmt: skip
HELPS = sorted((ROOT / "tests" / "approved" / "help").glob("*.txt"))
PROSE, EXAMPLES, FLAGS = 12, 2, 20  # the most of them in the help that a user reads first
NOT_YET = "statistics from the checkpoint, whatever the dataset is"  # of a finding in train/findings_inputs.py
SHOWN_ROOMS = ("findings", "report", "cli")  # every text in their code is shown; elsewhere those of errors


@pytest.fixture(scope="module")
def words() -> ModuleType:
    return load_script("words")


@pytest.fixture(scope="module")
def old_words(words: ModuleType) -> dict[str, str]:
    """The vocabulary's old words, as patterns, with those that stand in their place."""
    return words.OLD_WORDS


def old_words_in(texts: Iterable[tuple[str, str]], patterns: Iterable[str]) -> list[str]:
    """Return "where: the words around it" of each old word in ``texts`` (where, text)."""
    return [
        f"{where}: …{text[max(found.start() - 40, 0) : found.end() + 40]}…"
        for where, text in texts
        for pattern in patterns
        for found in re.finditer(pattern, text, re.IGNORECASE)
    ]


def test_no_page_has_the_old_words(old_words: dict[str, str]) -> None:
    texts = [(str(page.relative_to(ROOT)), " ".join(page.read_text().split())) for page in PAGES]
    assert len(texts) > 35
    assert old_words_in(texts, old_words) == []


def test_no_source_has_the_old_words_in_names_docstrings_comments_or_texts(old_words: dict[str, str]) -> None:
    texts = [(str(path.relative_to(ROOT)), path.read_text()) for path in SOURCES]
    assert old_words_in(texts, old_words) == []


def _shown_texts(path: Path, tree: ast.AST) -> Iterator[str]:
    if {path.stem, *path.relative_to(ROOT / "src" / "strobe").parent.parts} & set(SHOWN_ROOMS):
        yield from literals(tree)
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if name.endswith(("Error", "Fault", "Finding")):
                yield from literals(node)


def test_no_finding_error_or_caption_has_house_words() -> None:
    texts = [
        (str(path.relative_to(ROOT)), text)
        for path in SOURCES
        for text in _shown_texts(path, ast.parse(path.read_text()))
        if NOT_YET not in text
    ]
    assert len(texts) > 3000
    assert old_words_in(texts, HOUSE_WORDS) == []


@pytest.mark.parametrize("file", [path for path in HELPS if path.stem != "strobe"], ids=lambda path: path.stem)
def test_a_help_has_few_lines_two_examples_and_the_flags_that_most_need(file: Path) -> None:
    head, _, rest = file.read_text().partition("\nExamples:\n")
    examples = rest.partition("\n\n")[0]
    assert len([line for line in head.splitlines()[1:] if line.strip()]) <= PROSE
    assert sum(line.startswith("  strobe") for line in examples.splitlines()) <= EXAMPLES
    assert sum(line.startswith("  --") for line in rest.splitlines()) <= FLAGS


def test_no_help_has_old_words_or_house_words(old_words: dict[str, str]) -> None:
    assert len(HELPS) > 20
    texts = [(path.name, " ".join(path.read_text().split())) for path in HELPS]
    assert old_words_in(texts, [*HOUSE_WORDS, *old_words]) == []


def test_an_old_word_is_found(old_words: dict[str, str]) -> None:
    code = (
        'raise UserError(f"{name}: what was kept is not of this recipe; put it on anew, beside the untouched policy")'
    )
    (text,) = (text for text in literals(ast.parse(code)) if " " in text)
    assert len(old_words_in([("here", text)], HOUSE_WORDS)) == 1
    assert len(old_words_in([("here", text)], old_words)) == 3


def test_an_advice_stands_by_itself() -> None:
    """The first one is shown again as "Next: …", far from the words that a pronoun would mean."""
    vague = re.compile(r'do=f?"(?:[A-Z][a-z]+|If) (?:it|them|these|those)\b')
    files = [file for folder in ("src", "packages") for file in (ROOT / folder).rglob("*.py")]
    assert [file for file in files if vague.search(file.read_text(encoding="utf-8"))] == []


def test_no_function_is_named_by_a_preposition_or_a_participle_alone(words: ModuleType) -> None:
    named = list(words.functions(ROOT))
    assert len(named) > 8000
    faults = [
        f"{each.file}:{each.line}: {each.name} {fault}" for each in named if (fault := words.naming_fault(each.name))
    ]
    assert faults == []


@pytest.mark.parametrize(
    ("name", "sound"),
    [
        ("of_actions", False), ("with_baseline", False), ("_kept", False), ("seen", False), ("stands_still", False),
        ("_not_judged", False), ("action_guard", True), ("is_judged", True), ("_read_header", True), ("speed", True),
    ],
)  # fmt: skip
def test_the_rule_tells_names_apart(words: ModuleType, name: str, sound: bool) -> None:
    assert (words.naming_fault(name) is None) is sound
