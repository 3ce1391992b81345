"""The words of the house, counted: phrases and names that a stranger stumbles over, of this checkout or of others.

    .venv/bin/python scripts/words.py                 # a table of this checkout
    .venv/bin/python scripts/words.py BEFORE .        # two checkouts next to each other
    .venv/bin/python scripts/words.py --names         # also each function whose name breaks the rule

`docs/style.md` has the vocabulary. `tests/docs/test_style.py` holds it.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "tests", "benchmarks", "scripts", "packages")

# Pattern → the words that stand in its place, as docs/style.md explains them.
OLD_WORDS = {
    r"\bas it is\b(?! (?:now|on|at)\b)": "baseline; unchanged",
    r"\buntouched\b|\buntreated\b": "baseline; original",
    r"\b(?:put|puts|putting) (?:\w+ ){0,2}on again\b|\b(?:is|are|was|were|be|been|being) put on\b|\bput_on": "apply",
    r"\b(?:taken|takes) off\b|\btake (?:it|them|that) off\b|\btake_off": "revert",
    r"\b(?:held|hold|holds|holding|set) (?:\w+ ){0,4}against\b": "compare with",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\banew\b": "again",
    r"\bbeside\b(?! the plate)": "next to; in addition to; while … runs",
    r"''? (?:if|for|where|without) (?:none|nothing|not|there)": "None",
}

PREPOSITIONS = frozenset(
    [
        "of",
        "on",
        "in",
        "with",
        "without",
        "as",
        "by",
        "for",
        "at",
        "than",
        "beside",
        "behind",
        "under",
        "over",
        "into",
        "what",
        "per",
        "between",
        "against",
        "about",
        "around",
        "along",
        "across",
        "through",
        "until",
        "since",
        "during",
        "within",
        "above",
        "below",
        "beyond",
        "off",
        "out",
        "up",
        "down",
        "like",
        "near",
        "after",
        "before",
        "where",
        "when",
        "which",
        "who",
        "how",
        "why",
        "that",
        "if",
        "so",
        "not",
        "no",
        "only",
        "too",
        "also",
        "yet",
        "nothing",
    ]
)
# What Python and its libraries name so: conversions, and conditions of a figure.
ALLOWED_FIRST = frozenset({"on_files", "on_config", "on_page_markdown", "on_page_content", "on_post_build"})
IRREGULAR = frozenset(
    [
        "told",
        "asked",
        "kept",
        "left",
        "anew",
        "beside",
        "apart",
        "alone",
        "had",
        "said",
        "found",
        "few",
        "there",
        "got",
        "wins",
        "became",
        "alike",
        "sparing",
        "taken",
        "lent",
        "owed",
        "wanted",
        "given",
        "worth",
        "again",
        "gone",
        "done",
        "thus",
        "else",
        "here",
        "away",
        "made",
        "held",
        "seen",
        "shown",
        "known",
        "drawn",
        "written",
        "spelt",
        "sent",
        "built",
        "lost",
        "met",
        "thought",
        "chosen",
        "begun",
        "broken",
        "driven",
        "fallen",
        "frozen",
        "grown",
        "hidden",
        "spoken",
        "stolen",
        "thrown",
        "torn",
        "worn",
        "felt",
        "paid",
        "ran",
        "stood",
        "struck",
        "taught",
        "understood",
        "won",
        "bound",
        "brought",
        "caught",
        "fed",
        "led",
        "meant",
        "sat",
        "slept",
        "spent",
        "stuck",
    ]
)
NO_PARTICIPLES = frozenset(
    ["need", "feed", "seed", "speed", "embed", "exceed", "proceed", "bed", "red", "timed"]
)  # `timed` is public
EXISTENCE = frozenset(
    ["stands", "lies", "lie", "stays", "stay", "exist", "exists", "remains", "become", "becomes", "became"]
)


def naming_fault(name: str) -> str | None:
    """Return what is wrong with a function's name; None for a name that keeps the rule.

    A function is a verb phrase, or a noun where it returns a property.

    >>> naming_fault("of_actions"), naming_fault("_kept"), naming_fault("stands_still"), naming_fault("action_guard")
    ('begins with a preposition', 'is a participle or an adverb alone', 'begins with a verb of existence', None)
    """
    if name in ALLOWED_FIRST or (name.startswith("__") and name.endswith("__")):
        return None
    words = name.strip("_").split("_")
    if words[0] in PREPOSITIONS:
        return "begins with a preposition"
    if len(words) == 1 and (words[0] in IRREGULAR or (words[0].endswith("ed") and words[0] not in NO_PARTICIPLES)):
        return "is a participle or an adverb alone"
    if words[0] in EXISTENCE:
        return "begins with a verb of existence"
    return None


@dataclass(frozen=True)
class Named:
    """A function: where it stands, and its name."""

    file: Path
    line: int
    name: str


def functions(root: Path, folders: tuple[str, ...] = FOLDERS) -> Iterator[Named]:
    """Yield all functions of a checkout but tests, which are sentences; those in programs that are texts, too."""
    for folder in folders:
        for file in sorted((root / folder).rglob("*.py")):
            for number, line in enumerate(file.read_text().splitlines(), 1):
                found = re.match(r" *(?:async )?def (\w+)[(\[]", line)
                if found and not found[1].startswith("test_"):
                    yield Named(file.relative_to(root), number, found[1])


def texts(root: Path) -> tuple[str, str]:
    """Return all of ``src`` and all pages of a checkout, each as one text."""
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    pages = [page for page in pages if page.name not in ("report.md", "style.md")]
    sources = sorted((root / "src").rglob("*.py"))
    return "\n".join(file.read_text() for file in sources), "\n".join(page.read_text() for page in pages)


def docstrings(root: Path) -> Iterator[str]:
    """Yield the docstrings of functions, classes and modules in ``src``."""
    for file in sorted((root / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                yield ast.get_docstring(node) or ""


def counts(root: Path) -> dict[str, int]:
    """Return what a stranger stumbles over in a checkout, by name."""
    src, docs = texts(root)
    found = list(functions(root, ("src",)))
    said = list(docstrings(root))
    return {
        "'as it is' in src": len(re.findall(r"\bas it is\b", src)),
        "'as it is' in docs": len(re.findall(r"\bas it is\b", docs)),
        "functions of src": len(found),
        "functions of src named against the rule": sum(naming_fault(each.name) is not None for each in found),
        "functions named against the rule, all folders": sum(
            naming_fault(each.name) is not None for each in functions(root)
        ),
        "docstrings with \"in words; '' if\" and the like": sum(
            len(re.findall(r"''\s(?:if|for|where|without|unless)", text)) for text in said
        ),
        "'seen' in src": len(re.findall(r"\bseen\b", src)),
        "'beside' in src": len(re.findall(r"\bbeside\b", src)),
        "'anew, mend, hold against, put on, take off' in src": sum(
            len(re.findall(pattern, src))
            for pattern, word in OLD_WORDS.items()
            if word in ("again", "fix", "compare with", "apply", "revert")
        ),
        "'what is, what was, what are' in src": len(re.findall(r"\b[Ww]hat (?:is|was|are|were)\b", src)),
        "docstrings of src": sum(bool(text) for text in said),
        "lines of src": src.count("\n") + 1,
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="*", type=Path, default=[ROOT], help="folders of checkouts")
    parser.add_argument("--names", action="store_true", help="also list the functions named against the rule")
    options = parser.parse_args()
    columns = [counts(root) for root in options.checkouts]
    for name in columns[0]:
        print(f"{name:55}", *(f"{column[name]:>9,}" for column in columns))
    if options.names:
        for each in functions(options.checkouts[-1]):
            if fault := naming_fault(each.name):
                print(f"{each.file}:{each.line}: {each.name} {fault}")


if __name__ == "__main__":
    main()
