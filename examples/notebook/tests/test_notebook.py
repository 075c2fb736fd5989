"""The notebook, run from its first cell to its last. Needs `millrace` to be built: `cargo build` at the root, or set MILLRACE."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest

EXAMPLE = Path(__file__).resolve().parents[1]
NOTEBOOK = EXAMPLE / "first-minute.ipynb"
ROOT = EXAMPLE.parents[1]


@pytest.fixture
def cells(tmp_path, monkeypatch):
    """The cells of the notebook with their outputs, by the interpreter of this test."""
    kernel = tmp_path / "kernels/python3"
    kernel.mkdir(parents=True)
    start = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(json.dumps({"display_name": "this", "language": "python", "argv": start}))
    binary = Path(os.environ.get("MILLRACE") or ROOT / "target/debug/millrace")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.setenv("PATH", f"{binary.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    where = {"metadata": {"path": str(EXAMPLE)}}
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3", resources=where).execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(cells, text):
    """What the cell with this text shows, as HTML or as text."""
    (cell,) = [cell for cell in cells if text in cell.source]
    data = cell.outputs[-1].data
    return data.get("text/html") or data["text/plain"]


def test_the_notebook_runs_from_top_to_bottom(cells):
    assert "change='created'" in shown(cells, "ns.deploy(smooth)")
    assert "log raw: 168 records" in shown(cells, "raw.append_many(stuck)")
    assert "smooth@60" in shown(cells, "ns.trace") and "run of smooth" in shown(cells, "ns.trace")
    assert "<td>raw</td><td>runs</td><td>smooth</td><td>168</td>" in shown(cells, "ns.graph()")
    assert "the first 10 of 24 records" in shown(cells, "plan = ns.repair")
    # The function reads two records before its own.
    assert "<td>replay</td><td>smooth</td><td>26</td><td>runs</td>" in shown(cells, "plan.effects()")
    assert "the first 10 of 26 records" in shown(cells, "plan.run()")
    assert "<td>applied</td>" in shown(cells, "repair.apply()")
    assert sum("image/png" in output.get("data", {}) for cell in cells for output in cell.outputs) == 3


def test_the_notebook_is_committed_without_outputs():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code and all(cell.outputs == [] and cell.execution_count is None for cell in code)
