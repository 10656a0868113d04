"""The notebooks run from top to bottom, and are stored without what they print."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from tests.docs.pages import DOCS

NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


@pytest.mark.filterwarnings("ignore")  # of Jupyter's libraries
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell, in the notebook's folder, with this checkout's code."""
    monkeypatch.setenv("PYTHONPATH", str(DOCS.parent / ".ns"))
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": path.parent}}
    ).execute()
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs(path: Path) -> None:
    """Outputs would be out of date, and fill the repository."""
    cells = nbformat.read(path, as_version=4).cells
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
