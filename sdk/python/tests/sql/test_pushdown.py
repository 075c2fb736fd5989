"""A query has the same result whether whole logs are read or only what the planner names."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import millrace
from millrace import sql
from millrace.sql import _plan, _read

RECORDS = 300
#: Text that a reader of the planner's filters may take for a filter.
HOSTILE = ["x", "it's", "a\n(seqno > 5)", "') AND (seqno < 3) AND ('", "(seqno = 7)", '"seqno" = 4', "", "é\u2028", "optional: (seqno < 2)"]
START = datetime.datetime(2026, 3, 1, tzinfo=datetime.timezone.utc)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


numbers = st.integers(-3, RECORDS + 3)
operators = st.sampled_from(["=", "<", "<=", ">", ">=", "<>", "is distinct from"])
moments = st.integers(-5, RECORDS + 5).map(lambda n: quoted(str(START + datetime.timedelta(seconds=n, microseconds=n % 3))))
texts = st.sampled_from(HOSTILE).map(quoted)
atoms = st.one_of(
    st.tuples(operators, numbers).map(lambda one: f"seqno {one[0]} {one[1]}"),
    st.tuples(numbers, operators).map(lambda one: f"{one[0]} {one[1]} seqno"),
    st.tuples(numbers, numbers).map(lambda two: f"seqno between {two[0]} and {two[1]}"),
    st.lists(numbers, min_size=1, max_size=20).map(lambda some: f"seqno in ({', '.join(map(str, some))})"),
    st.tuples(operators, moments).map(lambda one: f"time {one[0]} {one[1]}"),
    st.tuples(operators, moments).map(lambda one: f"time {one[0]} {one[1]}::timestamptz + interval 1 second"),
    moments.map(lambda one: f"time::date = {one}::timestamptz::date"),
    st.tuples(operators, texts).map(lambda one: f"id {one[0]} {one[1]}"),
    texts.map(lambda one: f"value like {one}"),
    texts.map(lambda one: f"value in ({one}, 'x')"),
    st.sampled_from(
        ["seqno % 3 = 1", "seqno + 1 > 7", "seqno > 5.5", "cause is null", "id is not null", "true", "false", "(seqno > 9) is true"]
        + ["case when seqno > 4 and seqno < 9 then true else seqno > 200 end", "seqno::varchar > '2'", "coalesce(cause, id) > 'm'"]
        + ["seqno > (select 7)", "length(value) < 4", "seqno = seqno", "time > 'epoch'", "time < '20000-01-01'", "time > '-infinity'"]
    ),
)
conditions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda three: f"({three[0]} {three[1]} {three[2]})"),
        inner.map(lambda one: f"not ({one})"),
    ),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def tables() -> Iterator[Any]:
    """An empty table, and one with rows, as a log has them."""
    with duckdb.connect() as connection:
        connection.execute("set TimeZone = 'UTC'; create schema store; create schema full_")
        for schema in ("store", "full_"):
            connection.execute(f"create table {schema}.t0(seqno bigint, time timestamptz, id varchar, cause varchar, value varchar)")
        rows = [
            (n, START + datetime.timedelta(seconds=n), HOSTILE[n % len(HOSTILE)], None, HOSTILE[n % 4]) for n in range(1, RECORDS + 1)
        ]
        connection.executemany("insert into full_.t0 values (?, ?, ?, ?, ?)", rows)
        yield connection


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(conditions)
def test_what_satisfies_a_condition_is_in_its_boxes(tables: Any, condition: str) -> None:
    matching = tables.execute(f"select seqno, epoch_us(time) from full_.t0 where {condition}").fetchall()
    tables.execute(f"set disabled_optimizers = '{_plan.DISABLED}'")
    explained = tables.execute(f"explain (format json) select seqno from store.t0 where {condition}").fetchall()[0][1]
    tables.execute("set disabled_optimizers = ''")
    found = _plan.wanted(explained, ("seqno", "time", "id", "cause", "value"))
    boxes = [box for one in found.values() for box in one.boxes]
    for seqno, us in matching:
        assert any(box.first <= seqno <= box.last and box.since_us <= us <= box.until_us for box in boxes), (seqno, boxes)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[millrace.Namespace]:
    folder: Path = tmp_path_factory.mktemp("pushdown")
    with millrace.create(folder / "ns", durability="memory", segment_bytes=1 << 20) as namespace:
        for log, count in (("raw", RECORDS), ("other/log", 40)):
            namespace.create_log(log)
            values = [text.encode() for text in HOSTILE] + [b"\xff", b"a\x00b", b"9" * 50, b"NaN", b'{"n":1}']
            namespace.append_many([(log, values[n % len(values)]) for n in range(count)])
        yield namespace


selected = st.lists(st.sampled_from(["seqno", "time", "id", "cause", "data", "value", "length(value)", "1 as one"]), min_size=1, max_size=4)
shapes = st.one_of(
    selected.map(lambda some: f"select {', '.join(some)} from raw where {{0}}"),
    selected.map(lambda some: f"select {', '.join(some)} from raw where {{0}} order by seqno desc limit 5"),
    st.sampled_from(
        [
            "select * from raw where {0}",
            "select count(*) from raw where {0}",
            "select count(*), max(time), min(value) from raw where {0}",
            "select * exclude (time) from raw where {0} limit 7",
            "select a.seqno, b.value from raw a join raw b on a.seqno = b.seqno + 1 where a.seqno in (select seqno from raw where {0})",
            'select r.seqno, o.data from (select * from raw where {0}) r left join "other/log" o on r.value = o.value and o.seqno < 20',
            "with some as (select * from raw where {0}) select (select count(*) from some), count(*) from some where seqno > 50",
            "select seqno, lag(value) over (order by seqno) from raw where {0} qualify row_number() over (order by seqno) < 9",
            "select seqno from raw where {0} union all select seqno from \"other/log\" where {0}",
            "select log, kind, count(*) from events where seqno > 3 and log <> 'raw' or ({0}) is null group by all"
            .replace("({0}) is null", "seqno < 5"),
            "select * from raw where {0} limit 0",
        ]
    ),
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shapes, conditions)
def test_results_are_equal_with_and_without_pushdown(stored: millrace.Namespace, shape: str, condition: str) -> None:
    # Times are those of the records, whose range is short.
    for seqno in range(-5, RECORDS + 6):
        moment = quoted(str(START + datetime.timedelta(seconds=seqno, microseconds=seqno % 3)))
        if moment in condition:
            condition = condition.replace(moment, quoted(str(stored.get("raw", min(max(seqno, 1), RECORDS)).time)))
    statement = shape.format(condition)
    decode: Any = {log: "text?" for log in ("raw", "other/log") if "events" not in shape and log in shape}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_read, "_READ_WITHOUT_TIMES", 16)
        patch.setattr(_read, "_PROBES", 8)
        patch.setattr(_read, "_PROBES_WITHIN", 4)
        some, everything = (
            sql.query(stored, statement, decode=decode, pushdown=pushdown).fetchall() for pushdown in (True, False)
        )
    assert sorted(some, key=repr) == sorted(everything, key=repr)
