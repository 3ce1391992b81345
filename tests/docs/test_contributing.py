"""CONTRIBUTING.md's recipes: its blocks are pasted into a copy of Strobe, and its commands run there."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.suite import warm
from support.suite.places import ROOT

PAGE = ROOT / "CONTRIBUTING.md"
BLOCK = re.compile(
    r"^`(src/\S+|pyproject\.toml)`, (?:new|after `([^\n]+)`):\n\n```(?:python|toml)\n(.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
COMMAND = re.compile(r"^    (strobe .+)$", re.MULTILINE)
EXPECTED = re.compile(r"^> (.+)$", re.MULTILINE)


@dataclass
class Recipe:
    """A section of the page: its blocks in their order, its commands, and what they print between them."""

    title: str
    text: str
    blocks: list[tuple[str, str, str]] = field(init=False)
    commands: list[str] = field(init=False)
    expected: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.blocks = BLOCK.findall(self.text)
        outside = BLOCK.sub("", self.text)
        self.commands, self.expected = COMMAND.findall(outside), EXPECTED.findall(outside)


def recipes() -> list[Recipe]:
    _, *sections = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [Recipe(title, text) for title, _, text in (section.partition("\n") for section in sections)]


def paste(recipe: Recipe, copy: Path) -> None:
    """Write the recipe's new files, and put each of its lines after the line that the page names."""
    for name, after, code in recipe.blocks:
        file = copy / name
        if not after:
            assert not file.exists(), f"{name} is there already"
            file.parent.mkdir(exist_ok=True)
            file.write_text(code, encoding="utf-8")
            continue
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        place = [line.strip() for line in lines].index(after)
        file.write_text("".join([*lines[: place + 1], code, *lines[place + 1 :]]), encoding="utf-8")


@pytest.mark.matrix
def test_each_recipe_works_when_it_is_pasted(tmp_path: Path) -> None:
    """One after another, as a reader would."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    left = shutil.ignore_patterns("__pycache__", "*.egg-info", "tests")
    shutil.copytree(ROOT / "packages", tmp_path / "packages", ignore=left)  # ruff sorts their imports as Strobe's own
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    path = os.pathsep.join([str(tmp_path / "src"), str(ROOT / "tests" / "support" / "foreign")])
    steps = recipes()
    assert len(steps) == 4
    for recipe in steps:
        paste(recipe, tmp_path)
        printed = ""
        for command in recipe.commands:
            words = [word for part in shlex.split(command)[1:] for word in glob(part, tmp_path)]
            environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "200"}
            ran = warm.run("-m", "strobe", *words, cwd=tmp_path, env=environment)
            assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
            printed += ran.stdout
        assert recipe.blocks
        assert recipe.expected
        for expected in recipe.expected:
            assert expected in printed, f"{recipe.title}: '{expected}' is not in\n{printed}"
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "offenders.toml", tmp_path / "scripts")
    env = {**os.environ, "PYTHONPATH": path}
    for check in (["ruff", "check", "."], ["ruff", "format", "--check", "."], ["lint-imports"]):
        program = Path(sys.executable).with_name(check[0])
        ran = subprocess.run([program, *check[1:]], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stdout + ran.stderr


def glob(word: str, folder: Path) -> list[str]:
    """Return the paths that a shell in ``folder`` makes of ``word``."""
    return [str(path.relative_to(folder)) for path in folder.glob(word)] if "*" in word else [word]


COLLECT = """
import sys, pytest
code = pytest.main([*sys.argv[1:], "--collect-only", "-qq", "-n0", "-p", "no:cacheprovider"])
print("imported:", [name for name in ("lerobot", "transformers") if name in sys.modules], int(code))
"""


@pytest.mark.slow("a fresh Python that collects what make check does")
def test_what_make_check_collects_imports_no_lerobot() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    found = re.search(r"^CHECKED := (.*?[^\\])$", makefile, re.MULTILINE | re.DOTALL)
    assert found is not None
    words = found[1].replace("\\\n", " ").split()
    assert "tests/core/findings" in words
    checked = [name for word in words for name in (sorted(map(str, ROOT.glob(word))) if "*" in word else [word])]
    done = subprocess.run(
        [sys.executable, "-c", COLLECT, *checked], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1] == "imported: [] 0", done.stdout[-2000:] + done.stderr[-2000:]
