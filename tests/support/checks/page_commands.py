"""The commands that stand on a page of Markdown, in blocks and in lines."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

OURS = ("strobe", "make", "python", "strobe-policy-server", "torchrun", "accelerate")
LEROBOTS = re.compile(r"lerobot-(train|eval|rollout|record|teleoperate)$")
OTHERS = ("pip", "pipx", "uv", "uvx", "ray", "srun", "rerun", "git", "apt-get", "mkdocs")
NOT_RUN = re.compile(r"<!-- not run: (\S.*?) -->")
_FENCE = re.compile(r"^\s*```(\w*)")
_ASSIGNED = re.compile(r"[A-Za-z_]+=\S*$")


@dataclass
class Command:
    """One command of a page: its words, and whether a comment says that nothing tries it."""

    words: list[str]
    line: int
    inline: bool = False
    excused: bool = False
    text: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        return self.words[0]


def commands(page: str) -> Iterator[Command]:
    """All commands of a page, in its blocks of code first. Raises ValueError for a quote that is not closed."""
    lines = page.splitlines()
    fenced = excused = opened = False
    prose = []
    at = 0
    while at < len(lines):
        line, start = lines[at], at
        at += 1
        if NOT_RUN.search(line):
            excused, opened = True, False
            continue
        if _FENCE.match(line):
            fenced = not fenced
            opened = True
            continue
        if not (fenced or line.startswith("    ")):
            prose.append(line)
            if line.strip() and opened:
                excused = opened = False
            continue
        opened = opened or bool(line.strip())
        while line.endswith("\\") and at < len(lines):
            line = f"{line[:-1].rstrip()} {lines[at].strip()}"
            at += 1
        if found := _command(line.strip(), start + 1):
            found.excused = excused
            yield found
    for span in re.finditer(r"(?<!`)`([^`]+)`(?!`)", "\n".join(prose)):
        text = " ".join(span[1].replace(r"\|", "|").split())
        if (found := _command(text, 0)) and len(found.words) > 1:
            found.inline = True
            yield found


def _command(text: str, line: int) -> Command | None:
    """Return the command that ``text`` runs, or None where it is no command that is known here."""
    text = re.split(r"\s{3,}(?![\s-])", text.removeprefix("$ "))[0]  # an explanation stands beside it
    first = next((word for word in text.split() if not _ASSIGNED.match(word)), "")
    first = first.removeprefix(".venv/bin/").removeprefix(".venv-libero/bin/").removeprefix(".venv-next/bin/")
    if first not in (*OURS, *OTHERS) and not LEROBOTS.match(first):
        return None
    words = shlex.split(re.sub(r"<[a-z].*?>", "…", text), comments=True)
    while _ASSIGNED.match(words[0]):
        words.pop(0)
    words[0] = first
    return Command(words, line, text=text)
