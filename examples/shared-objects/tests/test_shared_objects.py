"""Every example succeeds, which means that its oracle holds, before and after the port."""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent.parent
BINARY = Path(os.environ.get("MILLRACE_BIN") or HERE.parents[1] / "target/debug/millrace")
EXAMPLES = sorted(path.name for path in HERE.glob("*.py"))
CHANGED_MAX = 0.06


def run(file: Path) -> str:
    """The output of a program that succeeds."""
    env = {**os.environ, "MILLRACE_BIN": str(BINARY)}
    env.pop("MILLRACE_NAMESPACE", None)
    ran = subprocess.run([sys.executable, str(file)], env=env, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_oracle_holds(example: str) -> None:
    assert run(HERE / example)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_oracle_held_before(example: str) -> None:
    assert run(HERE / "before" / example)


def test_few_lines_change_when_a_program_is_ported(capsys: pytest.CaptureFixture[str]) -> None:
    changed = whole = 0
    told, most = [], 0.0
    assert [path.name for path in sorted((HERE / "before").glob("*.py"))] == EXAMPLES
    for example in EXAMPLES:
        old, new = ((folder / example).read_text().splitlines() for folder in (HERE / "before", HERE))
        # Lines that only the new program has; a changed line counts once.
        lines = sum(line.startswith("+ ") for line in difflib.ndiff(old, new))
        told.append(f"{example}: {lines} of {len(new)} lines changed, {lines / len(new):.1%}")
        changed, whole, most = changed + lines, whole + len(new), max(most, lines / len(new))
    with capsys.disabled():
        print("", *told, f"in all {changed} of {whole} lines changed, {changed / whole:.1%}", sep="\n  ")
    assert 0 < changed < CHANGED_MAX * whole and most < CHANGED_MAX
