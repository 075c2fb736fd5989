"""`scored` -> `reported`: writes a report in Markdown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace import Context, Record

POINTS = json.loads((Path(__file__).resolve().parent / "assignment" / "points.json").read_text())


def generate_report(record: Record, ctx: Context) -> None:
    key = record.json()["submission"]
    result, grade = ctx.table("results")[key], ctx.table("grades")[key]
    about = ctx.table("submissions")[key]
    title = f"{about['assignment']}, revision {about['revision']} of {about['student']}"
    lines = [f"# {title}: {grade['points']} of {grade['of']} points", ""]
    lines += ["| test | outcome | points |", "|---|---|--:|"]
    for name, points in POINTS.items():
        outcome = result["tests"].get(name, {}).get("outcome", "not run")
        lines.append(f"| {name} | {outcome} | {points if outcome == 'pass' else 0} of {points} |")
    printed = [(name, test["output"]) for name, test in result["tests"].items() if test["outcome"] != "pass"]
    for name, output in [*printed, ("go test", result["output"])]:
        if output.strip():
            lines += ["", f"{name}:", "", *(f"    {line}" for line in output.rstrip().splitlines())]
    ctx.table("reports")[key] = "\n".join(lines) + "\n"
    ctx.append("reported", {"submission": key})
