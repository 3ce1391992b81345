"""A rate that the product promises stands in docs/benchmarks.md, beside the simulation that shows it."""

from __future__ import annotations

import ast
import re

from support.checks.literals import literals
from support.suite.places import ROOT

SOURCES = ROOT / "src" / "strobe"
ROOMS = (
    "core/report", "core/findings", "core/cli", "core/measure", "core/studies", "budget", "commands", "dataloader",
    "doctor", "environments", "evaluate", "history", "ladder", "lerobot/flags", "preflight", "rehearse/command.py",
    "replay", "rollout", "seams", "servers", "simulators/record_command.py", "sweep", "traces", "train", "trials",
    "tune",
)  # fmt: skip
LIST = ROOT / "docs" / "benchmarks.md"
HEADING = "## Every rate that is promised"


def promises(text: str) -> bool:
    return "%" in text and re.search(r"9[59] %|% interval|at most|at least", text) is not None


def plain(text: str) -> str:
    return " ".join(text.split())


def find_promises() -> dict[str, str]:
    """Sentence → the room and file that says it."""
    return {
        plain(text): str(path.relative_to(SOURCES))
        for room in ROOMS
        for path in ([SOURCES / room] if room.endswith(".py") else sorted((SOURCES / room).rglob("*.py")))
        for text in literals(ast.parse(path.read_text()))
        if promises(text) and "results" not in str(path.relative_to(SOURCES))
    }


def list_rows() -> list[tuple[str, str]]:
    """The rows of the list: the sentence, and what shows it."""
    _, _, rest = LIST.read_text().partition(HEADING)
    rows = re.findall(r"^\| `(.+?)` \| (.+?) \| (.+?) \|$", rest.partition("\n## ")[0], re.MULTILINE)
    return [(plain(sentence.replace("\\|", "|")), shown) for sentence, _, shown in rows]


def test_every_sentence_that_promises_a_rate_is_listed():
    known = {sentence for sentence, _ in list_rows()}
    missing = {sentence: where for sentence, where in find_promises().items() if sentence not in known}
    assert not missing, "add to docs/benchmarks.md what shows it, or do not promise it"


def test_nothing_is_listed_that_is_not_said():
    said = find_promises()
    assert not [sentence for sentence, _ in list_rows() if sentence not in said]


def test_what_shows_a_rate_is_there():
    for sentence, shown in list_rows():
        named = re.findall(r"`((?:benchmarks|tests)/[\w./]+\.py)`", shown)
        assert named or shown.startswith("no promise"), sentence
        assert all((ROOT / name).is_file() for name in named), sentence
