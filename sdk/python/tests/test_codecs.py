"""Logs as sequences of values."""

from __future__ import annotations

import datetime
import math
import sys
from typing import Any, Optional

import pandas
import pyarrow
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import millrace
from millrace import codecs

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
).filter(lambda value: "\\ud" not in ascii(value))
PACKED = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.binary() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
).filter(lambda value: "\\ud" not in ascii(value))
CASES: list[tuple[codecs.Codec[Any], st.SearchStrategy[Any]]] = [
    (codecs.Bytes(), st.binary()),
    (codecs.Text(), st.text(st.characters(exclude_categories=["Cs"]))),
    (codecs.Json(), JSON),
    (codecs.MsgPack(), PACKED),
    (codecs.Struct("<qd?"), st.tuples(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.booleans())),
    (codecs.Custom(lambda n: str(n).encode(), int), st.integers()),
]


@pytest.mark.parametrize(("codec", "values"), CASES, ids=lambda case: type(case).__name__)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_a_value_comes_back_as_it_was(
    ns: millrace.Namespace, codec: codecs.Codec[Any], values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    log = ns.log("raw", codec=codec)
    value = data.draw(values)
    seqno = log.append(value)
    entry = log.get(seqno)
    assert entry.value == value == log[seqno] == log[-1]
    assert entry.seqno == seqno == log.latest and entry.record.data == codec.encode(value)


def test_a_log_is_a_sequence(ns: millrace.Namespace) -> None:
    log = ns.log("raw", codec=codecs.Json())
    assert len(log) == 0 and list(log) == [] and log[:] == [] and log.earliest == 0
    assert log.append_many(range(10, 20)) == list(range(1, 11))
    assert len(log) == 10 and list(log) == list(range(10, 20))
    assert (log[1], log[10], log[-1], log[-10]) == (10, 19, 19, 10)
    assert (log[2:4], log[:3], log[-2:], log[8:100], log[-3:-1]) == ([11, 12], [10, 11], [18, 19], [17, 18, 19], [17, 18])
    assert [entry.value for entry in log.tail(9, timeout=0)] == [18, 19]
    assert [entry.seqno for entry in log.range(3, 5)] == [3, 4]
    with pytest.raises(LookupError):
        log[11]
    with pytest.raises(LookupError, match="MR2105"):
        log[-11]
    with pytest.raises(millrace.Invalid, match="MR1003"):
        log[0]
    with pytest.raises(millrace.Invalid, match="MR1006"):
        log[::2]
    with pytest.raises(millrace.NotFound, match="MR2101"):
        ns.log("missing")


def test_what_a_codec_cannot_do_is_told_with_log_and_record(ns: millrace.Namespace) -> None:
    log = ns.log("raw", codec=codecs.Struct("<q", names=["n"]))
    with pytest.raises(millrace.Invalid, match="MR6104.*'raw'"):
        log.append({"m": 1})
    with pytest.raises(millrace.Invalid, match="MR6104"):
        log.append({"n": "text"})
    assert len(log) == 0
    log.append({"n": 7})
    assert log[1] == {"n": 7}
    ns.append("raw", b"short")
    with pytest.raises(millrace.Invalid, match="record 2 of log 'raw'") as refused:
        log.get()
    assert refused.value.__cause__ is not None and refused.value.remedy
    with pytest.raises(millrace.Invalid):
        ns.log("raw", codec=codecs.Json()).append(math.nan)
    with pytest.raises(millrace.Invalid):
        ns.log("raw").append("text")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="2 fields"):
        codecs.Struct("<qd", names=["only"])


def test_records_become_data_frames(ns: millrace.Namespace) -> None:
    log = ns.log("raw", codec=codecs.Struct("<qd", names=("at", "celsius")))
    empty = log.to_pandas()
    assert len(empty) == 0 and list(empty.columns) == ["time"]
    log.append_many((i, i / 2) for i in range(100))
    frame = log.to_pandas()
    assert list(frame.columns) == ["time", "at", "celsius"] and frame.index.name == "seqno"
    assert frame.loc[51, "celsius"] == 25.0 and str(frame["time"].dt.tz) == "UTC"
    assert len(log.to_pandas(10, 20)) == 10
    assert log.to_arrow(1, 3).column("celsius").to_pylist() == [0.0, 0.5]
    assert list(ns.log("raw").to_pandas().columns) == ["time", "value"]


def test_arrow_batches_keep_their_schema(ns: millrace.Namespace) -> None:
    log = ns.log("raw", codec=codecs.Arrow())
    assert log.to_arrow().num_rows == 0 == len(log.to_pandas())
    batch = pyarrow.RecordBatch.from_pydict({"at": pyarrow.array([1, 2], pyarrow.timestamp("us")), "v": [1.5, None]})
    log.append(batch)
    assert log[1] == batch and log[1].schema == batch.schema
    frame = batch.to_pandas()
    log.append(frame)
    log.append(pyarrow.Table.from_batches([batch, batch]))
    assert log.to_arrow(1, 4).num_rows == 8
    assert len(log.to_pandas()) == 8 and list(log.to_pandas().columns) == ["at", "v"]
    schema = pyarrow.schema([("n", pyarrow.int16())])
    narrow = ns.log("raw", codec=codecs.Arrow(schema))
    for value in ({"n": [1, 2]}, [{"n": 1}, {"n": 2}], pandas.DataFrame({"n": [1, 2]})):
        narrow.append(value)
        assert narrow[-1].schema == schema and narrow[-1].column("n").to_pylist() == [1, 2]
    with pytest.raises(millrace.Invalid, match="MR6104"):
        narrow.append({"n": [1 << 20]})


def test_no_column_of_a_frame_or_of_rows_is_lost(ns: millrace.Namespace) -> None:
    log = ns.log("raw", codec=codecs.Arrow())
    frame = pandas.DataFrame({"v": [1.5, 2.5]}, index=pandas.Index(["a", "b"], name="room"))
    log.append(frame)
    assert log[1].to_pandas().equals(frame)
    sums = pandas.DataFrame({"k": [1, 1, 2], "j": ["x", "y", "x"], "v": [1, 2, 3]}).groupby(["k", "j"]).sum()
    log.append(sums)
    assert log[2].to_pandas().equals(sums)
    log.append(pandas.DataFrame({"v": [1]}, index=[7]))
    assert list(log[3].to_pandas().index) == [7]
    log.append(pandas.DataFrame({"v": range(10)})[4:6])
    assert list(log[4].to_pandas().index) == [4, 5]
    log.append([{"a": 1}, {"b": "x"}, {"a": 3, "c": None}])
    assert log[5].to_pydict() == {"a": [1, None, 3], "b": [None, "x", None], "c": [None, None, None]}
    assert log.to_arrow(1, 6).num_rows == 11 and len(log.to_pandas()) == 11
    assert set(log.to_arrow().schema.names) >= {"room", "v", "k", "j", "a", "b", "c"}
    assert log.to_arrow().column("k").to_pylist() == [None, None, 1, 1, 2] + [None] * 6
    narrow = ns.log("raw", codec=codecs.Arrow(pyarrow.schema([("n", pyarrow.int16())])))
    table = pyarrow.table({"n": [1], "m": [2]})
    for value in ({"n": [1], "m": [2]}, [{"n": 1}, {"n": 2, "m": 3}], table, table.to_pandas(), frame):
        with pytest.raises(millrace.Invalid, match="MR6104"):
            narrow.append(value)
    assert narrow.append(pyarrow.table({"n": [1]})) == 6 and narrow[6].schema.field("n").type == pyarrow.int16()
    # A stream that another program wrote in several batches.
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
        writer.write_table(table)
    ns.append("raw", sink.getvalue().to_pybytes())
    assert log[7].num_rows == 2


def test_a_batch_that_fits_no_table_is_named(ns: millrace.Namespace) -> None:
    log = ns.log("raw", codec=codecs.Arrow())
    log.append({"v": [1]})
    log.append({"v": [1.5]})
    assert log.to_arrow().column("v").to_pylist() == [1.0, 1.5]
    log.append({"v": ["text"]})
    for convert in (log.to_arrow, log.to_pandas):
        with pytest.raises(millrace.Invalid, match="MR6104.*record 3 of log 'raw' has another schema"):
            convert()
    assert log.to_arrow(1, 3).num_rows == 2


def test_fields_do_not_replace_what_the_record_has(ns: millrace.Namespace) -> None:
    log = ns.log("raw", codec=codecs.Json())
    log.append({"a": 1})
    log.append({"time": "noon", "seqno": 17, "field.time": "x", "n": 2**53 + 1})
    frame = log.to_pandas()
    assert list(frame.index) == [1, 2] and str(frame["time"].dt.tz) == "UTC"
    assert (frame["field.seqno"][2], frame["field.field.time"][2], frame["field.time"][2]) == (17, "noon", "x")
    assert frame["n"][2] == 2**53 + 1
    table = log.to_arrow()
    assert table.column("seqno").to_pylist() == [1, 2]
    assert table.column("field.seqno").to_pylist() == [None, 17] and table.column("a").to_pylist() == [1, None]
    log.append({"a": "text"})
    with pytest.raises(millrace.Invalid, match="MR6104.*column 'a' of log 'raw'"):
        log.to_arrow()


def test_structs_do_not_cut_bytes(ns: millrace.Namespace) -> None:
    log = ns.log("raw", codec=codecs.Struct("<4sH"))
    log.append((b"four", 4))
    assert log[1] == (b"four", 4)
    with pytest.raises(millrace.Invalid, match="MR6104.*longer than its field"):
        log.append((b"seven77", 7))
    with pytest.raises(ValueError, match="occurs twice"):
        codecs.Struct("<qq", names=("a", "a"))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgpack", None)
    with pytest.raises(ImportError, match="MR6105.*pip install msgpack") as refused:
        codecs.MsgPack()
    assert isinstance(refused.value, millrace.Missing)


def test_logs_and_namespaces_show_themselves_escaped(ns: millrace.Namespace) -> None:
    ns.append_many(("raw", f"<script>{i}</script>" + "x" * 200) for i in range(30))
    log = ns.log("raw", codec=codecs.Text())
    assert repr(log) == f"<millrace.Log 'raw' of {ns.address!r}: records 1 to 30, Text()>"
    shown = log._repr_html_()
    assert "&lt;script&gt;29" in shown and "<script>" not in shown and ">20<" not in shown and ">21<" in shown
    ns.append("raw", b"\xff")
    assert "xff" in log._repr_html_(), "a record that the codec cannot read is shown as bytes"
    assert "<td>raw</td><td>31</td>" in ns._repr_html_()


def test_rows_of_a_data_frame_become_records(ns: millrace.Namespace) -> None:
    log = ns.log("raw", codecs.Json())
    hours = pandas.date_range("2013-01-01", periods=2, freq="h", tz="UTC")
    frame = pandas.DataFrame({"hour": hours, "celsius": [1.5, math.nan], "n": pandas.array([1, None], dtype="Int64")})
    assert log.append_many(frame) == [1, 2]
    assert list(log) == [
        {"hour": "2013-01-01T00:00:00+00:00", "celsius": 1.5, "n": 1},
        {"hour": "2013-01-01T01:00:00+00:00", "celsius": None, "n": None},
    ]
    log.append_many(frame.set_index("hour")[["celsius"]].dropna())
    assert log[3] == {"hour": "2013-01-01T00:00:00+00:00", "celsius": 1.5}
    assert log.append_many(frame["celsius"].dropna()) == [4] and log[4] == 1.5
    twice = pandas.concat([frame["n"], frame["n"]], axis=1)
    with pytest.raises(millrace.Invalid, match="two columns of one name: n, n"):
        log.append_many(twice)
    with pytest.raises(millrace.Invalid, match=r"one record; write `append\(frame\)`"):
        ns.log("raw", codecs.Arrow()).append_many(frame)
    assert len(log) == 4


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"n": math.nan}, "NaN and infinities are not in JSON; write None"),
        (pandas.Series([1]).to_numpy(), "write `value.tolist()`"),
        (pandas.Series([1]), "`append_many(value)` for a record of each value"),
        (pandas.DataFrame({"n": [1]}), "`append_many(value)` for a record of each row"),
    ],
)
def test_what_json_does_not_have_is_refused_with_what_to_write(value: object, said: str, ns: millrace.Namespace) -> None:
    with pytest.raises(millrace.Invalid) as refused:
        ns.log("raw", codecs.Json()).append(value)
    assert said in str(refused.value) and ns.latest("raw") == 0


def test_times_are_written_as_text(ns: millrace.Namespace) -> None:
    log = ns.log("raw", codecs.Json())
    log.append({"at": datetime.datetime(2013, 1, 1, tzinfo=datetime.timezone.utc), "day": datetime.date(2013, 1, 2)})
    assert log[1] == {"at": "2013-01-01T00:00:00+00:00", "day": "2013-01-02"}


@pytest.mark.parametrize("codec", [codecs.Json, "json", 7])
def test_what_is_no_codec_is_refused_at_once(codec: Any, ns: millrace.Namespace) -> None:
    with pytest.raises(millrace.Invalid, match=r"write one, such as `millrace.codecs.Json\(\)`"):
        ns.log("raw", codec)


def test_the_time_of_a_row_can_be_that_of_the_observation(ns: millrace.Namespace) -> None:
    log = ns.log("raw", codecs.Json())
    log.append_many([{"at": {"time": "2013-01-01T01:00:00+01:00"}, "appended": 1}, {"at": {"time": 1356998400.5}}, {"other": 1}])
    frame = log.to_pandas(time="/at/time")
    assert [str(time) for time in frame["time"]] == ["2013-01-01 00:00:00+00:00", "2013-01-01 00:00:00.500000+00:00", "NaT"]
    assert frame["time"].dt.year[1] == 2013 and frame["field.appended"][1] == 1
    assert list(frame["appended"]) == list(log.to_pandas()["time"])
    log.append({"hour": "2013-01-01T05:00:00Z"})
    log.append({"hour": "2013-01-01T06:00:00"})
    assert [time.hour for time in log.to_pandas(4, time="/hour")["time"]] == [5, 6]
    log.append({"hour": "noon"})
    with pytest.raises(millrace.Invalid, match="record 6 of log 'raw': /hour is 'noon', which is no time"):
        log.to_pandas(time="/hour")
    with pytest.raises(millrace.Invalid, match="leave out `time`"):
        ns.log("raw", codecs.Arrow()).to_pandas(time="/hour")


def test_a_log_says_which_field_has_the_time_of_the_observation(ns: millrace.Namespace) -> None:
    ns.create_log("late", time="/at/0", unit="ms")
    assert ns.time_field("late") == ("/at/0", "ms")
    log = ns.log("late", codecs.Json())
    times = ["2013-01-01T01:00:00+01:00", 1356998400500, "2013-01-01 02:00:00.1234567Z", "2013-01-01T02:00:00", True, None, "noon", 1e300, -1]
    log.append_many([{"at": [time], "n": n} for n, time in enumerate(times)] + [7])
    frame = log.to_pandas()
    assert frame.attrs["untimed"] == 6
    known = frame[frame["time"] != frame["appended"]]
    assert list(known["n"]) == [0, 1, 2, 8]
    assert [str(time) for time in known["time"]] == [
        "2013-01-01 00:00:00+00:00",
        "2013-01-01 00:00:00.500000+00:00",
        "2013-01-01 02:00:00.123456+00:00",
        "1969-12-31 23:59:59.999000+00:00",
    ]
    assert "appended" not in log.to_pandas(time=False) and list(log.to_pandas(time=False)["time"]) == list(frame["appended"])
    assert [time.year for time in log.to_pandas(1, 2, time="/at/0")["time"]] == [2013]
    assert list(log.to_pandas(1, 1).columns) == ["time", "appended"]
    # Without the unit, numbers are none.
    ns.set_time("late", "/at/0")
    assert log.to_pandas().attrs["untimed"] == 8
    ns.set_time("late", None)
    assert ns.time_field("late") is None and "appended" not in log.to_pandas()
    # Of bytes and text, no record has a field; rows of batches have columns of their own.
    ns.create_log("bytes", time="/t")
    ns.append("bytes", b"\xff")
    assert ns.log("bytes", codecs.Bytes()).to_pandas().attrs["untimed"] == 1
    ns.create_log("rows", time="/t")
    ns.log("rows", codecs.Arrow()).append([{"t": 1}])
    assert list(ns.log("rows", codecs.Arrow()).to_pandas().columns) == ["t"]


@pytest.mark.parametrize(("time", "unit"), [("t", None), ("/~", None), ("", None), ("/t", "ns"), (None, "s")])
def test_a_bad_field_of_time_is_refused(time: Any, unit: Any, ns: millrace.Namespace) -> None:
    with pytest.raises(millrace.Invalid, match="MR1006"):
        ns.set_time("raw", time, unit)


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("2026-11-03T10:00:00Z", 1_793_700_000_000_000),
        ("2026-11-03t10:00:00z", 1_793_700_000_000_000),
        ("2026-11-03 11:00:00+01:00", 1_793_700_000_000_000),
        ("2026-11-03T04:30:00-05:30", 1_793_700_000_000_000),
        ("2026-11-03T10:00:00.0000009Z", 1_793_700_000_000_000),
        ("2016-12-31T23:59:60Z", 1_483_228_799_000_000),
        ("1969-12-31T23:59:59.5Z", -500_000),
        *((text, None) for text in ["", "2026-11-03", "2026-11-03T10:00:00", "2026-11-03T10:00Z", "20261103T100000Z", "2026-13-03T10:00:00Z"]),
        *((text, None) for text in ["2026-11-03T10:00:00+0100", "2026-11-03T10:00:00.Z", " 2026-11-03T10:00:00Z", "2026-11-03T10:00:00+99:00"]),
    ],
)
def test_texts_of_rfc_3339_are_times_and_others_are_none(text: str, us: Optional[int]) -> None:
    found = millrace._log._declared_time(text, None)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    assert (found is None) == (us is None)
    assert found is None or (found - epoch) // datetime.timedelta(microseconds=1) == us


def test_many_appends_that_are_no_pairs_say_what_pairs_are(ns: millrace.Namespace) -> None:
    for odd in ([1, 2], {"raw": 1}, pandas.DataFrame({"n": [1]}), [("raw", 1, 2)]):
        with pytest.raises(TypeError, match=r"takes pairs \(log, data\), not .*append_many\(values\)` takes values"):
            ns.append_many(odd)  # type: ignore[arg-type]
    assert ns.latest("raw") == 0
