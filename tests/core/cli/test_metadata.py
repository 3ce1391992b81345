"""The quick answer to which distribution brings which package is importlib's own."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from strobe.core.cli.metadata import importlibs, packages_distributions, quicken


def plain(found: object) -> dict[str, list[str]]:
    assert isinstance(found, dict)
    return {name: sorted(set(brought)) for name, brought in found.items()}


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.metadata, "packages_distributions", importlib.metadata.packages_distributions)
    packages_distributions.cache_clear()
    yield
    packages_distributions.cache_clear()


def test_it_is_what_importlib_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of three distributions; looking at all that is installed takes importlib a second."""
    made = {
        "one-1.0": (
            "Name: One",
            "alone.py,,\none/__init__.py,,\none-1.0.dist-info/METADATA,,\n../../bin/one,,\n",
            None,
        ),
        "two-2": ("Name: two.two", '"odd, name/a.py",,\none/b.py,,\n', None),
        "three-3": ("Name: three", "", "third\n_third\n"),
    }
    for folder, (name, record, top_level) in made.items():
        info = tmp_path / f"{folder}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\n{name}\nVersion: 1\n\nName: of the text\n")
        (info / "RECORD").write_text(record)
        if top_level:
            (info / "top_level.txt").write_text(top_level)
    for file in ("alone.py", "one/__init__.py", "one/b.py", "odd, name/a.py"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    found = plain(packages_distributions())
    assert found["one"] == ["One", "two.two"]
    assert found["third"] == ["three"]
    assert found == plain(dict(importlibs()))


def test_a_process_asks_it_once() -> None:
    quicken()
    assert importlib.metadata.packages_distributions() is importlib.metadata.packages_distributions()
