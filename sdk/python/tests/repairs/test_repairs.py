"""Repairs from Python: on mapped files, with and without a host, and over the wire."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pandas
import pytest
from conftest import Host

import millrace

Start = Callable[..., Host]

MEAN = """
def mean(record, ctx):
    values = [float(record.data)]
    if record.seqno > 1:
        values.append(float(ctx.get("raw", record.seqno - 1).data))
    ctx.append("mean", str(sum(values) / len(values)))
"""
HALF = """
def mean(record, ctx):
    ctx.append("mean", str(float(record.data) / 2))
    if float(record.data) > 90:
        ctx.append("mean", "high")
"""


@pytest.fixture
def measured(ns: millrace.Namespace, host: Start, tmp_path: Path) -> millrace.Namespace:
    """A namespace with five readings and their means; the second reading is wrong."""
    ns.create_log("mean")
    path = tmp_path / "means.py"
    path.write_text(MEAN)
    scope: dict[str, object] = {}
    exec(compile(MEAN, str(path), "exec"), scope)
    ns.deploy(scope["mean"], name="mean", on="raw", timeout=120)  # type: ignore[arg-type]
    for value in ("20", "95", "22", "21", "20"):
        ns.append("raw", value)
    return ns


def means(ns: millrace.Namespace) -> list[str]:
    return [record.data.decode() for record in ns.range("mean")]


def check_repair(ns: millrace.Namespace) -> None:
    seen: list[str] = []
    plan = ns.repair({"raw": {2: "21"}}, reason="stuck sensor")
    assert means(ns) == ["20.0", "57.5", "58.5", "21.5", "20.5"]
    repair = plan.run(progress=lambda repair: seen.append(repair.phase), timeout=120)
    assert (repair.phase, repair.log, repair.reason, seen[-1]) == ("ready", "raw", "stuck sensor", "ready")
    assert (repair.counts["replayed"], repair.counts["replaced"]) == (2, 3)
    assert [(one.seqno, one.old, one.new) for one in repair.diff("mean")] == [
        (2, b"57.5", b"20.5"),
        (3, b"58.5", b"21.5"),
    ]
    assert len(repair.diff()) == 3
    assert repair.apply(timeout=120).phase == "applied"
    assert means(ns) == ["20.0", "20.5", "21.5", "21.5", "20.5"]
    undo = repair.rollback("it was a fire", timeout=120)
    assert (repair.phase, undo.undo, undo.phase) == ("rolled-back", repair.number, "applied")
    assert means(ns) == ["20.0", "57.5", "58.5", "21.5", "20.5"]
    assert [one.number for one in ns.repairs()] == [repair.number, undo.number]


def test_a_host_repairs_mapped_files(measured: millrace.Namespace, host: Start) -> None:
    host(measured)
    measured.wait_idle(120)
    check_repair(measured)


def test_a_host_repairs_over_the_wire(measured: millrace.Namespace, host: Start) -> None:
    served = host(measured)
    measured.wait_idle(120)
    with millrace.open(served.address) as remote:
        check_repair(remote)
        with pytest.raises(millrace.Invalid) as refused:
            remote.repair(function={"mean": "means.py"}).run()
        assert refused.value.code == "MR7013"


def test_without_a_host_the_program_repairs(measured: millrace.Namespace, host: Start, tmp_path: Path) -> None:
    process = host(measured).process
    measured.wait_idle(120)
    process.terminate()
    process.wait(60)
    check_repair(measured)
    # Other code: one run leaves more than before.
    fixed = tmp_path / "fixed" / "means.py"
    fixed.parent.mkdir()
    fixed.write_text(HALF)
    with pytest.raises(millrace.Error) as stopped:
        measured.repair(function={"mean": fixed}).run()
    assert stopped.value.code == "MR7010"
    measured.repairs()[-1].abandon()
    repair = measured.repair(function={"mean": fixed}, since="raw@2", append_new=True, reason="half").run()
    assert (repair.function, repair.counts["appended"]) == ("mean", 1)
    assert repair.diff()[-1] == millrace.repairs.Change("mean", None, None, b"high")
    repair.apply()
    assert means(measured) == ["10.0", "47.5", "11.0", "10.5", "10.0", "high"]
    frame = repair.diff("mean").to_pandas()
    assert list(frame.columns) == ["log", "seqno", "old", "new"] and frame["new"][1] == 47.5
    repair.rollback()
    assert means(measured) == ["20.0", "57.5", "58.5", "21.5", "20.5"]


def test_a_program_repairs_if_its_host_ends(
    measured: millrace.Namespace, host: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(millrace.repairs, "_HOST_GONE_S", 0.5)
    process = host(measured).process
    measured.wait_idle(120)
    process.send_signal(signal.SIGSTOP)  # It holds the namespace, and does nothing.

    def end(repair: millrace.repairs.Repair) -> None:
        if process.poll() is None:
            process.kill()
            process.wait(60)

    repair = measured.repair({"raw": {2: "21"}}).run(progress=end, timeout=120)
    assert (repair.phase, repair.counts["replayed"]) == ("ready", 2)


def test_a_data_frame_and_none_are_values(ns: millrace.Namespace) -> None:
    pandas = pytest.importorskip("pandas")
    for value in ("1", "2", "3"):
        ns.append("raw", value)
    frame = pandas.DataFrame({"seqno": [1, 2], "value": ["10", b"\xff"]})
    ns.repair({"raw": frame}).run().apply()
    ns.repair({"raw": {3: None}}).run().apply()
    assert [record.data for record in ns.range("raw")] == [b"10", b"\xff"]


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"values": {"raw": {1: "x"}, "other": {1: "x"}}},
        {"values": {"raw": {1: "x"}}, "function": {"f": "f.py"}},
        {"values": {"raw": {1: "x"}}, "since": "raw@1"},
        {"function": {"f": "f.py"}, "since": "raw@x"},
    ],
)
def test_what_is_no_repair_is_refused(ns: millrace.Namespace, asked: dict[str, object]) -> None:
    ns.append("raw", "1")
    with pytest.raises(millrace.Invalid) as refused:
        ns.repair(**asked)  # type: ignore[arg-type]
    assert refused.value.code == "MR7003"


def test_corrections_that_are_none_say_what_they_must_be(ns: millrace.Namespace) -> None:
    ns.append("raw", 1)
    with pytest.raises(millrace.Invalid, match="MR7003.* has no column 'value'; its columns are 'seqno', 'celsius'"):
        ns.repair({"raw": pandas.DataFrame({"seqno": [1], "celsius": [2.0]})})
    with pytest.raises(millrace.Invalid, match="MR7003.*record 1: .*; None removes the record"):
        ns.repair({"raw": pandas.DataFrame({"seqno": [1], "value": [float("nan")]})})
    with pytest.raises(millrace.Invalid, match="MR7003.*by number.* not a list"):
        ns.repair({"raw": [1, 2]})
    assert repr(ns.repair({"raw": {1: 2}})) == "<millrace.repairs.Plan: 1 corrections of log 'raw'>"


def test_a_diff_of_json_becomes_columns() -> None:
    def change(seqno: int, old: object, new: object) -> millrace.repairs.Change:
        return millrace.repairs.Change("raw", seqno, None if old is None else millrace._worker.encode(old), millrace._worker.encode(new))

    diff = millrace.repairs.Diff([change(1, {"celsius": 99}, {"celsius": 20}), change(2, None, 3)])
    frame = diff.to_pandas(millrace.codecs.Json())
    assert list(frame.columns) == ["log", "seqno", "old.celsius", "new.celsius", "old", "new"]
    assert frame["old.celsius"][0] == 99 and frame["new"][1] == 3
    assert list(millrace.repairs.Diff([]).to_pandas(millrace.codecs.Json()).columns) == ["log", "seqno", "old", "new"]
