"""Files of anybody: a pipe, terabytes or a name that is no UTF-8 costs a line, and never the page of the others."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.suite.places import TESTS

from strobe.core.cli.main import main
from strobe.core.errors import UserError, legible
from strobe.core.runs import recipe_file, store
from strobe.core.untrusted import contents
from strobe.evaluate import episode_log
from strobe.preflight.wiring.checkpoint import read_checkpoint

SOUND = TESTS / "golden" / "breakdown" / store.RESULT


def _run(root: Path, name: bytes, text: str | None = None) -> Path:
    folder = Path(os.fsdecode(os.path.join(os.fsencode(root), name)))
    folder.mkdir(parents=True)
    if text is None:
        shutil.copy(SOUND, folder / store.RESULT)
    else:
        (folder / store.RESULT).write_text(text)
    return folder


def test_a_name_that_is_no_utf_8_costs_no_page(tmp_path: Path, capsys) -> None:
    root = tmp_path / "runs"
    _run(root, b"fine")
    bad = _run(root, b"bad \xe9\xff")
    _run(root, b"broken \xff", "{")
    assert main(["report", str(root)]) == 0
    said = capsys.readouterr().out
    said.encode()
    assert "2 runs" in said
    assert "left out broken ?" in said
    page = (root / "index.html").read_text(encoding="utf-8")
    assert 'href="./bad%20%E9%FF/report.html"' in page
    assert (bad / store.REPORT).is_file()
    assert main(["history", str(root)]) in (0, 2)  # two runs are few for a history
    capsys.readouterr().out.encode()
    with pytest.raises(UserError) as caught:
        store.load_answer(tmp_path / os.fsdecode(b"none \xff"))
    str(caught.value).encode()
    assert legible("a\udcff") == "a?"


@pytest.fixture(params=["pipe", "sparse", "device"])
def endless(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file that nobody can read to its end."""
    file = tmp_path / "file"
    if request.param == "pipe":
        os.mkfifo(file)
    elif request.param == "device":
        file.symlink_to("/dev/zero")
    else:
        with file.open("wb") as opened:
            opened.truncate(2**42)
    return file


def test_a_file_without_an_end_is_a_line(endless: Path, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"plain file|more than"):
        contents(endless)
    for read in (store.load_answer, recipe_file.load, episode_log.read):
        with pytest.raises(UserError, match=r"plain file|more than"):
            read(endless)
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").symlink_to(endless)
    with pytest.raises(UserError):
        read_checkpoint(folder)


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(f"b{n}: &b{n} [*a, *a, *a]\n" for n in range(20)),
        "a: &a {x: 1}\nb: {<<: [*a, *a]}\n",
        "policy: act\n" + "x" * 2**19,
        "!!python/object/apply:os.system [true]",
    ],
)
def test_a_recipe_that_grows_is_a_line(text: str, tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        recipe_file.load(file)
    assert "\n" not in str(caught.value)
