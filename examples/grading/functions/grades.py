"""`graded` -> `scored`: adds the points of the tests that passed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace import Context, Record

POINTS = json.loads((Path(__file__).resolve().parent / "assignment" / "points.json").read_text())


def grades(record: Record, ctx: Context) -> None:
    key = record.json()["submission"]
    tests = ctx.table("results")[key]["tests"]
    passed = [name for name in POINTS if tests.get(name, {}).get("outcome") == "pass"]
    ctx.table("grades")[key] = {
        "passed": len(passed),
        "failed": len(POINTS) - len(passed),
        "points": sum(POINTS[name] for name in passed),
        "of": sum(POINTS.values()),
    }
    ctx.append("scored", {"submission": key})
