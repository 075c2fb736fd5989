"""Every example ends well, which is that its oracle holds."""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent.parent
BINARY = Path(os.environ.get("MILLRACE_BIN") or HERE.parents[1] / "target/debug/millrace")


@pytest.mark.parametrize("example", sorted(path.name for path in HERE.glob("*.py")))
def test_the_oracle_holds(example: str) -> None:
    env = {**os.environ, "MILLRACE_BIN": str(BINARY)}
    env.pop("MILLRACE_NAMESPACE", None)
    ran = subprocess.run([sys.executable, str(HERE / example)], env=env, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout


def test_few_lines_change_when_a_program_is_ported(capsys: pytest.CaptureFixture[str]) -> None:
    changed = whole = 0
    told = []
    for before in sorted((HERE / "before").glob("*.py")):
        old, new = before.read_text().splitlines(), (HERE / before.name).read_text().splitlines()
        lines = sum(line.startswith("+ ") for line in difflib.ndiff(old, new))
        told.append(f"{before.name}: {lines} of {len(new)} lines changed")
        changed, whole = changed + lines, whole + len(new)
    with capsys.disabled():
        print("", *told, f"in all {changed / whole:.1%}", sep="\n  ")
    assert 0 < changed < 0.06 * whole
