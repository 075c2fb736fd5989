"""The suite of Lithops, with Millrace as its compute and storage back end."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import millrace

PACKAGE = Path(__file__).resolve().parents[1]
ROOT = PACKAGE.parents[1]
BINARY = Path(os.environ.get("MILLRACE_BIN") or ROOT / "target/debug/millrace")
CONFIG = "lithops:\n  mode: serverless\n  storage: millrace\nserverless:\n  backend: millrace\n"
#: What each left-out test needs and a task has not: Lithops within a call; the program's files, which a sandbox does not show.
LEFT_OUT = {
    "map": "inside_lithops or return_futures_map or return_futures_call_async",
    "executors": "map_local or context_manager_and_localhost",
    "retries": "timing_map",
}
#: The files whose tests use the configured back ends: calls, storage, and what Lithops builds on them. Of the others, `map_reduce` reads
#: files from the internet, and the rest tests parts of Lithops or back ends of other systems.
SUITES = "storage call_async map wait executors future job invokers retries concurrent_futures".split()


@pytest.fixture(scope="session")
def python() -> Path:
    """An interpreter whose environment has Lithops as it is published, and our package."""
    files = [file for file in sorted(PACKAGE.rglob("*")) if file.suffix in (".py", ".toml", ".txt") and "tests" not in file.parts]
    made_of = hashlib.sha256(b"".join(file.read_bytes() for file in files) + sys.version.encode()).hexdigest()
    folder = ROOT / "target/lithops"
    found, stamp = folder / "bin/python", folder / "stamp"
    if not stamp.exists() or stamp.read_text() != made_of:
        install = [str(found), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        copy = folder / "package"
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(folder)],
            [*install, "-r", str(PACKAGE / "requirements-dev.txt"), "setuptools==80.9.0"],
            # A copy: building leaves files behind.
            ["cp", "-r", str(PACKAGE), str(copy)],
            [*install, "--no-deps", "--no-build-isolation", str(copy)],
        ):
            subprocess.run(command, check=True, timeout=900)
        stamp.write_text(made_of)
    return found


def run(python: Path, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs a command in the environment, with the millrace package that is tested."""
    (folder / "config.yaml").write_text(CONFIG)
    env = {
        **os.environ,
        "MILLRACE_BIN": str(BINARY),
        "PYTHONPATH": str(Path(millrace.__file__).parents[1]),
        "LITHOPS_CONFIG_FILE": str(folder / "config.yaml"),
    }
    env.pop("MILLRACE_NAMESPACE", None)
    return subprocess.run(
        [str(python), *command], cwd=folder, env=env, capture_output=True, text=True, timeout=900, check=False
    )


@pytest.mark.parametrize("suite", SUITES)
def test_the_suite_of_lithops_passes(suite: str, python: Path, tmp_path: Path) -> None:
    where = run(python, tmp_path, "-c", "import lithops.tests; print(lithops.tests.__path__[0])").stdout.strip()
    chosen = ["-k", f"not ({LEFT_OUT[suite]})"] if suite in LEFT_OUT else []
    ran = run(
        python, tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={where}", f"--config={tmp_path}/config.yaml",
        *chosen, f"{where}/test_{suite}.py",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-2000:]
    assert re.search(r"\d+ passed", ran.stdout)


def test_a_configuration_is_all_it_takes(python: Path, tmp_path: Path) -> None:
    program = (
        "import lithops\n"
        "with lithops.FunctionExecutor() as executor:\n"
        "    executor.map(lambda x: x * x, range(10))\n"
        "    print(executor.get_result())\n"
        "    print(executor.backend, executor.internal_storage.backend)\n"
    )
    ran = run(python, tmp_path, "-c", program)
    assert ran.stdout.split("\n")[-3:-1] == [str([x * x for x in range(10)]), "millrace millrace"], ran.stdout + ran.stderr


def test_what_cannot_be_is_refused(python: Path, tmp_path: Path) -> None:
    program = (
        "import lithops\n"
        "def nested(x):\n"
        "    return lithops.FunctionExecutor().call_async(abs, -x)\n"
        "with lithops.FunctionExecutor() as executor:\n"
        "    executor.map(nested, [1])\n"
        "    executor.get_result()\n"
    )
    ran = run(python, tmp_path, "-c", program)
    assert "a call of Lithops cannot start other calls" in ran.stderr
    bad = (
        "import lithops\n"
        "lithops.FunctionExecutor(config={'lithops': {'mode': 'serverless', 'storage': 'millrace'},"
        " 'serverless': {'backend': 'millrace'}, 'millrace': {'worker_processes': 2}})\n"
    )
    assert "worker_processes must be 1" in run(python, tmp_path, "-c", bad).stderr
