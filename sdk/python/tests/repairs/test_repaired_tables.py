"""Repairs of tables by a real host: what comes of it is what comes of the right values."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas
import pytest
from conftest import Host

import millrace

Start = Callable[..., Host]

GRADE = """
import json

def grade(record, ctx):
    name, points = json.loads(record.data)
    grades, totals = ctx.table("grades"), ctx.table("totals")
    grade = grades.get(name, 0) + points
    if grade < 0:
        grades.pop(name, None)
    else:
        grades[name] = grade
    totals.increment("points", points)
    totals.increment(f"of/{name}")
    best = max(grades.scan(), key=lambda entry: (entry[1], entry[0]), default=("nobody", 0))
    totals["best"] = list(best)
"""
REPORT = """
def report(record, ctx):
    change = ctx.table(record.log).change(record)
    value = None if change.deleted else record.data.decode()
    ctx.append("reports", f"{change.key} {value} {ctx.table('totals').get('points')}")
"""
POINTS: list[tuple[str, int]] = [
    (name, (7 * n) % 11 - 3) for n in range(40) for name in [("alice", "bob", "carol", "dora")[n * n % 4]]
]


def deployed(ns: millrace.Namespace, tmp_path: Path) -> None:
    ns.create_log("points")
    ns.create_log("reports")
    ns.create_table("grades")
    ns.create_table("totals")
    for name, code, on in (("grade", GRADE, "points"), ("report", REPORT, "grades")):
        path = tmp_path / f"{name}.py"
        path.write_text(code)
        scope: dict[str, object] = {}
        exec(compile(code, str(path), "exec"), scope)
        ns.deploy(scope[name], name=name, on=on, timeout=120)  # type: ignore[arg-type]


def values(ns: millrace.Namespace) -> tuple[dict[str, object], dict[str, object]]:
    return dict(ns.table("grades").scan()), dict(ns.table("totals").scan())


def graded(points: list[tuple[str, int]]) -> tuple[dict[str, object], dict[str, object]]:
    """What the functions come to, one after the other."""
    grades: dict[str, int] = {}
    totals: dict[str, object] = {}
    total = 0
    for name, more in points:
        grade = grades.get(name, 0) + more
        grades[name] = grade
        if grade < 0:
            del grades[name]
        total += more
        totals["points"] = total
        totals[f"of/{name}"] = int(str(totals.get(f"of/{name}", 0))) + 1
        best = max(sorted(grades.items()), key=lambda entry: (entry[1], entry[0]), default=("nobody", 0))
        totals["best"] = list(best)
    return dict(grades), totals


@pytest.mark.parametrize("seqno", [1, 17, 40])
def test_a_corrected_record_changes_tables_as_if_it_had_been_right(
    ns: millrace.Namespace, host: Start, tmp_path: Path, seqno: int
) -> None:
    deployed(ns, tmp_path)
    # They wait, so that the host runs many in one batch.
    for point in POINTS:
        ns.append("points", json.dumps(point))
    host(ns)
    ns.wait_idle(120)
    before = values(ns)
    assert before == graded(POINTS)
    name, _ = POINTS[seqno - 1]
    other = "bob" if name != "bob" else "alice"
    right = [*POINTS[: seqno - 1], (other, 9), *POINTS[seqno:]]
    repair = ns.repair({"points": {seqno: json.dumps((other, 9))}}, append_new=True).run(timeout=120)
    assert values(ns) == before
    version = ns.table("totals").entry("points")
    assert repair.apply(timeout=120).phase == "applied"
    assert values(ns) == graded(right)
    # Who knows an old version does not change the new value by it.
    assert version is not None
    with pytest.raises(millrace.Conflict, match="MR7300"):
        ns.table("totals").put("points", 0, if_version=version.version)
    # Life goes on from there, and the rollback knows what happened since.
    ns.append("points", json.dumps(("dora", 5)))
    ns.wait_idle(120)
    assert values(ns) == graded([*right, ("dora", 5)])
    repair.rollback(timeout=120)
    assert values(ns) == graded([*POINTS, ("dora", 5)])


def test_a_record_of_a_table_is_corrected_and_what_it_ran_is_run_again(
    ns: millrace.Namespace, host: Start, tmp_path: Path
) -> None:
    deployed(ns, tmp_path)
    grades = ns.table("grades")
    first = grades.put("alice", 70)
    grades.put("bob", 5)
    host(ns)
    ns.wait_idle(120)
    assert [record.data for record in ns.range("reports")] == [b"alice 70 None", b"bob 5 None"]
    repair = ns.repair({"grades": {first: "7"}}).run(timeout=120)
    repair.apply(timeout=120)
    assert [record.data for record in ns.range("reports")] == [b"alice 7 None", b"bob 5 None"]
    entry = grades.entry("alice")
    assert entry is not None and (entry.value, entry.version > 2) == (7, True)
    # The record that says so stands for the first one: correcting it corrects that.
    ns.repair({"grades": {entry.version: "8"}}).run(timeout=120).apply(timeout=120)
    assert (grades["alice"], ns.get("grades", first).data) == (8, b"8")
    with pytest.raises(millrace.Invalid, match="MR7304"):
        ns.repair({"grades": {first: "no JSON"}}).run(timeout=120)
    # By the key: that of a mapping or of a data frame, with a value as the table has it.
    ns.repair({"grades": {"bob": 6}}).run(timeout=120).apply(timeout=120)
    frame = pandas.DataFrame({"key": ["alice"], "value": [{"points": 9}]})
    ns.repair({"grades": frame}).run(timeout=120).apply(timeout=120)
    assert dict(grades.scan()) == {"alice": {"points": 9}, "bob": 6}
    with pytest.raises(millrace.NotFound, match="MR7340.*'nobody'"):
        ns.repair({"grades": {"nobody": 1}})
