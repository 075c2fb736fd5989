"""What caused what, and what a correction would change, as a host answers and a notebook shows it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import PATIENCE_S, Host

import millrace

HOSTILE = "<script>alert(1)</script>"
FUNCTION = """
def copy(record, ctx):
    ctx.append("clean", record.data)
"""


@pytest.fixture
def traced(ns: millrace.Namespace, host: Callable[..., Host], tmp_path: Path) -> str:
    """A namespace in which one record was copied: the address of its host."""
    path = tmp_path / "copies.py"
    path.write_text(FUNCTION)
    scope: dict[str, object] = {}
    exec(compile(FUNCTION, str(path), "exec"), scope)
    ns.create_log("clean")
    ns.deploy(scope["copy"], on="raw")  # type: ignore[arg-type]
    running = host(ns)
    ns.append("raw", HOSTILE)
    ns.wait_idle(PATIENCE_S)
    return running.address


def test_a_trace_a_graph_and_a_plan_are_answered_and_shown(traced: str, ns: millrace.Namespace) -> None:
    for place in (ns, millrace.open(traced)):
        effects = place.trace("raw@1")
        assert [(one.level, one.link) for one in effects.branches] == [(0, None), (1, "triggered"), (2, "appended")]
        assert effects.branches[2].record == millrace._views.RecordRef("clean", 1) and effects.complete
        assert effects.branches[1].function == "copy" and effects.branches[1].state == "done"
        assert str(effects).splitlines()[1] == "  triggered: run of copy  done"
        causes = place.trace(place.get("clean"), up=True)
        assert [one.link for one in causes.branches] == [None, "appended", "triggered"]
        assert place.trace(place.log("clean").get(1), up=True).document == causes.document

        flows = {(one.kind, one.function, one.log): one.records for one in place.graph().flows}
        assert flows[("runs", "copy", "raw")] == 1 and flows[("appends", "copy", "clean")] == 1
        assert set(place.graph().to_pandas()["kind"]) >= {"runs", "appends"}

        plan = place.repair({"raw": {1: "better"}}, reason=HOSTILE)
        would = plan.effects()
        assert dict(would.runs) == {"copy": 1} and dict(would.records) == {"clean": 1} and not would.not_run
        assert place.repairs() == [], "a plan changes nothing"
        with pytest.raises(millrace.NotFound, match="nobody"):
            place.repair({"raw": {1: "better"}}, run_external=["nobody"]).effects()

        for shown in (effects, causes, place.graph(), plan, would):
            text = shown._repr_html_()
            assert "<script" not in text and text.count("<table>") == 1, text
        assert "&lt;script&gt;" in effects._repr_html_() and "copy" in place.graph()._repr_html_()
        assert "<td>write anew</td><td>clean</td><td>1</td>" in would._repr_html_()


def test_a_diff_is_shown_with_its_text_escaped(traced: str, ns: millrace.Namespace) -> None:
    repair = ns.repair({"raw": {1: "<i>better</i>"}}).run(timeout=PATIENCE_S)
    shown = repair.diff()._repr_html_()
    assert "&lt;i&gt;better" in shown and "&lt;script&gt;" in shown and "<i>" not in shown and "<script" not in shown


def test_what_only_a_host_answers_says_so_without_one(ns: millrace.Namespace) -> None:
    ns.append("raw", "x")
    for ask in (lambda: ns.trace("raw@1"), ns.graph, ns.repair({"raw": {1: "y"}}).effects):
        with pytest.raises(millrace.Error, match="MR5009"):
            ask()
    with pytest.raises(millrace.Error, match="MR7003"):
        ns.repair(function={"copy": "copies.py"}).effects()


def test_a_trace_says_what_it_leaves_out(traced: str, ns: millrace.Namespace) -> None:
    short = ns.trace("raw@1", depth=1)
    assert not short.complete and short.branches[-1].more == 1 and "(1 more below)" in str(short)
    with pytest.raises(millrace.NotFound):
        ns.trace("raw@9")
