"""The notebook of the docs runs, and shows what its text says."""

from __future__ import annotations

import sys

import nbformat
import pytest
from support.suite.scripts import load_script

notebook = load_script("notebook")


@pytest.mark.slow("a real kernel runs the notebook")
@pytest.mark.skipif(sys.platform == "win32", reason="the kernel needs another event loop there")
def test_the_notebook_runs_and_shows_its_answers() -> None:  # 20 s: a kernel, and three answers of 3 s
    book = notebook.execute_notebook(notebook.NOTEBOOK)
    pages = [
        output.data["text/html"]
        for cell in book.cells
        for output in cell.get("outputs", [])
        if output.output_type == "execute_result"
    ]
    assert len(pages) == sum(cell.cell_type == "code" for cell in book.cells), "a cell shows nothing"
    compared, broken_down, _, verified = pages
    assert "pairs" in compared
    assert "denoiser" in broken_down
    assert "largest_error" in verified
    assert all(len(page) <= 100_000 for page in pages)
    assert not any("<script" in page for page in pages)


def test_the_notebook_holds_the_outputs_of_a_run() -> None:
    cells = [cell for cell in nbformat.read(str(notebook.NOTEBOOK), as_version=4).cells if cell.cell_type == "code"]
    assert all(cell.outputs for cell in cells), "make notebook writes them"
    assert "/home/" not in notebook.NOTEBOOK.read_text()
