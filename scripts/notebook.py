"""Run docs/notebook.ipynb in a kernel of its own, and write its outputs into it.

python scripts/notebook.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).resolve().parents[1] / "docs" / "notebook.ipynb"
SECONDS = 300  # that a cell may take


def execute_notebook(path: Path) -> nbformat.NotebookNode:
    """Return the notebook at ``path`` with the outputs of a new run. Raises CellExecutionError where a cell fails."""
    book = nbformat.read(path, as_version=4)
    NotebookClient(
        book, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": path.parent}}
    ).execute()
    for cell in book.cells:
        cell.metadata.pop("execution", None)  # times of the day, which differ on each run
        # Lines of progress show while a cell runs, and are of no use to a reader.
        cell.outputs = [each for each in cell.get("outputs", []) if each.get("name") != "stderr"]
        if cell.cell_type != "code":
            cell.pop("outputs")
    return book


def main() -> None:
    """Run the notebook and write it."""
    nbformat.write(execute_notebook(NOTEBOOK), NOTEBOOK)
    print(f"{NOTEBOOK.name}: {NOTEBOOK.stat().st_size / 1024:.0f} KiB", file=sys.stderr)


if __name__ == "__main__":
    main()
