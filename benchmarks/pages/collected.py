"""The commands of Strobe that a reader meets: on pages, under `--help`, and in what findings say to do."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.checks.page_commands import NOT_RUN, Command, commands

ROOT = Path(__file__).resolve().parents[2]
APPROVED = ROOT / "tests" / "approved"
_ASSIGNED = re.compile(r"([A-Za-z_]+)=(\S*)$")
# In backticks, or as the beginning of a sentence that goes on after the flags.
_OF_A_FINDING = re.compile(r"`(?:[A-Z_]+=\S+ )?strobe [^`]+`|strobe [a-z]+(?: --[\w.-]+=(?:'[^']*'|[^\s`]+))+")


@dataclass(frozen=True)
class Shown:
    """One command as a reader sees it.

    Args:
        words: those after ``strobe``.
        variables: what stands in front of it, as STROBE_RECIPE=recipe.yaml.
        excused: the page's own reason why nothing runs it; None where it has none.
        program: what runs it: 'strobe', or 'torchrun' and the like.
    """

    page: str
    line: int
    text: str
    words: tuple[str, ...]
    variables: tuple[tuple[str, str], ...]
    inline: bool
    excused: str | None
    program: str

    @property
    def place(self) -> str:
        """The page with the line, as an editor opens it."""
        return f"{self.page}:{self.line}" if self.line else self.page


def collect() -> list[Shown]:
    """Return all commands in the order of their pages."""
    paths = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("packages/*/*.md"))]
    found = [one for path in paths if path.name != "report.md" for one in _page_commands(path)]
    for path in sorted((APPROVED / "help").glob("*.txt")):
        found += _help_examples(path)
    for path in sorted(APPROVED.rglob("*findings*.txt")):
        found += _finding_advice(path)
    return found


def _page_commands(path: Path) -> Iterator[Shown]:
    text = path.read_text(encoding="utf-8")
    page, lines = str(path.relative_to(ROOT)), text.splitlines()
    for command in commands(text):
        before = "\n".join(lines[: command.line])
        reason = NOT_RUN.findall(before)[-1] if command.excused else None
        if (shown := _printed_command(page, command, reason)) is not None:
            yield shown


def _help_examples(path: Path) -> Iterator[Shown]:
    """The examples; what stands beside one after spaces is an explanation."""
    _, _, after = path.read_text(encoding="utf-8").partition("\nExamples:\n")
    examples = after.partition("\n\n")[0]
    for command in commands(re.sub(r"^", "  ", examples, flags=re.MULTILINE)):
        if (shown := _printed_command(f"strobe {path.stem} --help", command, None)) is not None:
            yield shown


def _finding_advice(path: Path) -> Iterator[Shown]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if "  do: " in line:
            for found in _OF_A_FINDING.findall(line):
                text = found.strip("`").rstrip(".,:;)")
                command = Command(shlex.split(text), number, text=text)
                if (
                    len(command.words) > 1
                    and (shown := _printed_command(str(path.relative_to(ROOT)), command, None)) is not None
                ):
                    yield shown


def _printed_command(page: str, command: Command, reason: str | None) -> Shown | None:
    """Return the command if it runs Strobe, and is more than the name of a subcommand in a sentence."""
    if "strobe" not in command.words or command.name in ("pip", "pipx", "uv", "uvx"):
        return None
    words = command.words[command.words.index("strobe") + 1 :]
    if command.inline and len(words) < 2:
        return None
    variables = []
    for word in command.text.split():
        if not (assigned := _ASSIGNED.match(word)):
            break
        variables.append((assigned[1], assigned[2]))
    return Shown(
        page, command.line, command.text, tuple(words), tuple(variables), command.inline, reason, command.name
    )  # fmt: skip
