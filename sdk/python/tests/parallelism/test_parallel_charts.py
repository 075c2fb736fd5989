"""Charts, by the elements that they consist of."""

from __future__ import annotations

import re
import xml.etree.ElementTree as XML
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from millrace.parallelism import Experiment, Invocation, Run, RunError, chart, measure  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


def made(count: int, refused: int = 0, *, asynchronous: bool = False, machines: int = 0, instances: int = 0) -> Run:
    """A run with as many instances as invocations, or fewer, of which every other one starts cold."""
    rows = []
    for n in range(count):
        instance = n % (instances or count)
        begin = 100.0 + 3 * n
        rows.append(
            Invocation(
                f"{n}", float(n % 7), begin if asynchronous else begin + 1050, begin + 1100 if asynchronous else None, begin, begin + 1000,
                f"box {instance}", 1 + (n % 2), f"machine {instance % machines}" if machines else None,
            )
        )  # fmt: skip
    rows += [Invocation(f"no {n}", 5.0, 40.0 + n, status="refused", error="429 no") for n in range(refused)]
    return Run(Experiment(len(rows), 0, "S", None, 256, asynchronous, 1000.0), "test", tuple(rows))


def drawn(runs: list[Run], folder: Path, **options: Any) -> tuple[Counter[str], dict[str, int], str]:
    """How many elements have an id of each kind, how many marks each kind of mark has, and all text."""
    file = folder / "chart.svg"
    chart.save(chart.draw(runs, **options), file)
    root = XML.parse(file).getroot()
    groups = [group for group in root.iter(f"{SVG}g") if group.get("id")]
    kinds = Counter(re.sub(r"-\d+$", "", str(group.get("id"))) for group in groups)
    names = ("sends", "first", "answers", "received", "cold")
    marks = Counter({name: 0 for name in names})
    for group in groups:
        if group.get("id") in names:
            marks[str(group.get("id"))] += len(list(group.iter(f"{SVG}use")))
    return kinds, dict(marks), " ".join("".join(text.itertext()) for text in root.iter(f"{SVG}text"))


def test_each_invocation_is_a_row_with_its_marks(tmp_path: Path) -> None:
    run = made(200, 12, machines=5)
    kinds, marks, text = drawn([run], tmp_path)
    assert (kinds["bar"], kinds["refused"], kinds["wait"], kinds["machine"]) == (200, 12, 200, 5)
    assert marks == {"sends": 211, "first": 1, "answers": 212, "received": 0, "cold": 100}
    assert "212/0/S/s on test" in text and "12 failed" in text and "task: sleep" in text
    for label in ("first send", "sent", "waits", "answered", "cold start", "refused or lost", "one machine", "seconds since the first send"):
        assert label in text, label
    assert "result received" not in text


def test_results_of_asynchronous_invocations_have_marks_of_their_own(tmp_path: Path) -> None:
    kinds, marks, text = drawn([made(20, asynchronous=True)], tmp_path)
    assert kinds["bar"] == 20 and kinds["refused"] == 0 and marks["received"] == 20 and "result received" in text
    assert "refused or lost" not in text


def test_an_instances_rows_are_together_and_neighbours_differ_in_colour() -> None:
    rows = chart.rows_of(made(50, 3, instances=9, machines=2).invocations)
    instances = [row.invocation.instance for row in rows]
    assert len([1 for before, after in zip(instances, instances[1:]) if before != after]) == 9 and instances[-3:] == [None] * 3
    for before, after in zip(rows, rows[1:]):
        assert (before.color == after.color) == (before.invocation.instance == after.invocation.instance)
        assert before.invocation.instance != after.invocation.instance or (before.invocation.start_ms or 0) <= (after.invocation.start_ms or 0)
    of_machines = [row.machine for row in rows]
    assert of_machines == sorted(of_machines[:-3]) + [-1] * 3


def test_a_large_run_has_a_curve_and_a_histogram(tmp_path: Path) -> None:
    run = made(1000, 7)
    kinds, marks, text = drawn([run], tmp_path)
    assert (kinds["bar"], kinds["refused"], kinds["alive"], kinds["bin"], kinds["median"]) == (1000, 7, 1, 40, 1)
    assert sum(marks.values()) == 0 and "instances busy" in text and "duration of an invocation" in text
    figure = chart.draw([run])
    (curve,) = (line for line in figure.axes[0].lines if line.get_gid() == "alive")
    assert max(curve.get_ydata()) == measure(run).degree
    assert drawn([made(30)], tmp_path, large=True)[0]["alive"] == 1
    assert drawn([run], tmp_path, large=False)[0]["wait"] == 1000


def test_runs_are_compared_on_one_time_axis(tmp_path: Path) -> None:
    slow = made(30, 2)
    kinds, marks, _ = drawn([made(20), slow], tmp_path)
    assert kinds["bar"] == 50 and kinds["refused"] == 2 and marks["first"] == 2
    figure = chart.draw([made(20), slow])
    assert len({axes.get_xlim() for axes in figure.axes}) == 1
    assert figure.axes[0].get_xlim()[1] >= (measure(slow).completion_ms or 0) / 1000
    mixed = chart.draw([made(20), made(600)])
    assert len(mixed.axes) == 4 and mixed.axes[0].get_xlim() == mixed.axes[1].get_xlim()
    with pytest.raises(RunError, match="7 runs in one chart; the limit is 6"):
        chart.draw([slow] * 7)


def test_runs_of_which_little_is_known_are_drawn(tmp_path: Path) -> None:
    lost = Run(Experiment(1), "test", (Invocation("x", 5.0, status="lost", error="no answer"),))
    kinds, marks, text = drawn([lost], tmp_path)
    assert kinds["refused"] == 1 and marks["first"] == 1 and marks["answers"] == 0 and "nothing was answered" in text
    assert drawn([lost], tmp_path, large=True)[0]["refused"] == 1
    at_once = Run(Experiment(1), "test", (Invocation("x", 5.0, 5.0, start_ms=5.0, end_ms=5.0, instance="a"),))
    assert drawn([at_once], tmp_path)[0]["bar"] == 1 and drawn([at_once], tmp_path, large=True)[0]["bar"] == 1


def test_the_same_run_gives_the_same_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for ending in ("svg", "png"):
            chart.save(chart.draw([made(20)]), tmp_path / f"{name}.{ending}")
    for ending in ("svg", "png"):
        assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(RunError, match="written as .svg or .png"):
        chart.save(chart.draw([made(2)]), tmp_path / "a.pdf")
    with pytest.raises(RunError, match="cannot be written"):
        chart.save(chart.draw([made(2)]), tmp_path / "none" / "a.svg")
