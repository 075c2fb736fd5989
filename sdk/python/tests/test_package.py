"""The installed package: its types, the README, and output in notebooks."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nbclient
import nbformat
import pytest
from conftest import ROOT, Host

import millrace

PACKAGE = ROOT / "sdk/python"


def test_what_is_exported_is_there_and_typed() -> None:
    for name in millrace.__all__:
        assert getattr(millrace, name) is not None
    assert dir(millrace) == sorted(millrace.__all__)
    with pytest.raises(AttributeError):
        getattr(millrace, "nonsense")
    files = [str(file) for file in importlib.metadata.files("millrace") or ()]
    assert "millrace/py.typed" in files and "millrace/_native.pyi" in files


def test_the_types_hold(tmp_path: Path) -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", "--cache-dir", str(tmp_path), "."],
        cwd=PACKAGE,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_readme_can_be_typed_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: Callable[..., Host]
) -> None:
    readme = (PACKAGE / "README.md").read_text()
    blocks = re.findall(r"(?:<!-- file: (\S+) -->\n)?```python\n(.*?)```", readme, re.DOTALL)
    assert len(blocks) >= 9
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    typed: dict[str, object] = {}
    address = "mr://127.0.0.1:7070/farm"
    for file, block in blocks:
        if file:
            (tmp_path / file).write_text(block)
            continue
        if "wait=10" in block:
            # Here the reader starts a host.
            address = host(typed["ns"]).address
        code = block.replace("mr://127.0.0.1:7070/farm", address)
        if "async with" in code and "asyncio.run" not in code:
            code = "import asyncio\nasync def main():\n" + "".join(f"    {line}\n" for line in code.splitlines())
            code += "asyncio.run(main())\n"
        exec(compile(code, f"README.md: {block[:40]!r}", "exec"), typed)
    ns = typed["ns"]
    assert isinstance(ns, millrace.Namespace) and ns.address == address
    assert ns.latest("clean/kitchen") >= 1
    ns.close()
    sys.modules.pop("smooth", None)


def test_a_notebook_shows_logs_and_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [
        "import millrace\nns = millrace.create('ns', durability='memory')\nns.create_log('raw')",
        "log = ns.log('raw', codec=millrace.codecs.Json())\nlog.append_many({'n': i} for i in range(3))\nlog",
        "ns",
        "log.to_pandas()['n'].sum()",
        "[entry.value['n'] for entry in log.tail(1, timeout=0.1)]",
        "try:\n    ns.get('missing')\nexcept millrace.Error as error:\n    print(error.remedy)",
        "ns.sql('select sum(value.n::int) as total from raw where seqno > 1')",
        "ns.sql('select seqno from raw where seqno > 1').df()",
        "ns.repair({'raw': {1: '<b>'}}, reason='a test')",
    ]
    empty: dict[str, object] = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    code = [{**empty, "id": str(i), "source": cell} for i, cell in enumerate(cells)]
    written = json.dumps({"cells": code, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    notebook = nbformat.reads(written, as_version=4)  # type: ignore[no-untyped-call]
    start = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel = {"display_name": "this", "language": "python", "argv": start}
    spec = tmp_path / "jupyter/kernels/this"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text(json.dumps(kernel))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    client = nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="this", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    outputs = [cell.outputs for cell in notebook.cells]
    assert "<caption>log raw: 3 records</caption>" in outputs[1][0].data["text/html"]
    assert "<td>raw</td><td>3</td>" in outputs[2][0].data["text/html"]
    assert "3" in outputs[3][0].data["text/plain"] and outputs[4][0].data["text/plain"] == "[0, 1, 2]"
    assert "ns.logs()" in outputs[5][0].text
    assert "total" in outputs[6][0].data["text/plain"] and "3" in outputs[6][0].data["text/plain"]
    assert "<td>3</td>" in outputs[7][0].data["text/html"] and "&lt;b&gt;" in outputs[8][0].data["text/html"]


def test_the_benchmark_prints_its_rows() -> None:
    done = subprocess.run(
        [sys.executable, str(PACKAGE / "bench.py"), "--quick"], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert {"python.append", "python.get", "python.empty_call"} <= json.loads(done.stdout).keys()
