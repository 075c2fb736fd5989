"""Records of a log by time: where they are, how many, and the numbers in them; and one level of the names of logs."""

from __future__ import annotations

import io
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pandas
import pyarrow.parquet
import pytest
import requests
from conftest import PATIENCE_S, Host, error_of


def get(host: Host, path: str, **query: Any) -> dict[str, Any]:
    answer = requests.get(f"{host.ns}/{path}", params=query, timeout=PATIENCE_S)
    assert answer.status_code == 200, answer.text
    return answer.json()


def text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def moments(host: Host, log: str) -> list[datetime]:
    records = get(host, f"logs/{log}/records", count=10_000)["records"]
    return [datetime.strptime(record["time"], "%Y-%m-%dT%H:%M:%S.%fZ") for record in records]


@pytest.fixture(scope="module")
def filled(host: Host) -> Host:
    host.run("log", "create", "series", "--history", "1000")
    for number in range(60):
        host.append("series", b'{"celsius": %d, "on": true, "a/b": {"c": [%d]}}' % (number, -number))
    for data in [b"text", b"\xff", b"41.5", b'{"celsius": "warm"}', b'{"celsius": 1e999}', b""]:
        host.append("series", data)
    return host


def test_a_page_begins_at_a_time(filled: Host) -> None:
    times = moments(filled, "series")
    for at in [0, 1, 17, 65]:
        page = get(filled, "logs/series/records", at=text(times[at]), count=2)
        assert page["records"][0]["seqno"] == at + 1
    before = get(filled, "logs/series/records", at=text(times[0] - timedelta(days=365)), count=1)
    assert before["records"][0]["seqno"] == 1
    behind = get(filled, "logs/series/records", at=text(times[-1] + timedelta(seconds=1)))
    assert (behind["records"], behind["next"]) == ([], 67)


def test_counts_are_exact(filled: Host) -> None:
    times = moments(filled, "series")
    whole = get(filled, "logs/series/rate", buckets=7)
    assert (whole["records"], sum(whole["counts"]), len(whole["counts"])) == (66, 66, 7)
    assert whole["from"] == text(times[0]) and whole["first"][0] == 1
    begin, end = times[10], times[40]
    part = get(filled, "logs/series/rate", buckets=5, **{"from": text(begin), "until": text(end)})
    # A bound between two microseconds is rounded down.
    width = (end - begin) // timedelta(microseconds=1)
    edges = [begin + timedelta(microseconds=width * bucket // 5) for bucket in range(6)]
    for bucket in range(5):
        assert part["counts"][bucket] == len([at for at in times if edges[bucket] <= at < edges[bucket + 1]])
    assert sum(part["counts"]) == 30
    nothing = get(filled, "logs/series/rate", buckets=3, **{"from": "2001-01-01T00:00:00Z", "until": "2001-01-02T00:00:00Z"})
    assert nothing["counts"] == [0, 0, 0]


def test_numbers_are_summed_up(filled: Host) -> None:
    series = get(filled, "logs/series/series", field="/celsius", points=4)
    assert (series["records"], series["read"], series["numbers"], series["sampled"]) == (66, 66, 60, False)
    points = series["points"]
    assert sum(point["count"] for point in points) == 60
    assert (points[0]["min"], points[-1]["last"], points[-1]["seqno"]) == (0, 59, 60)
    for point in points:
        assert point["min"] <= point["mean"] <= point["max"] and point["min"] <= point["last"] <= point["max"]
    total = sum(point["mean"] * point["count"] for point in points)
    assert round(total) == sum(range(60))
    assert get(filled, "logs/series/series", field="/a~1b/c/0")["numbers"] == 60
    assert get(filled, "logs/series/series", field="/on", points=1)["points"][0]["mean"] == 1
    itself = get(filled, "logs/series/series", points=10)
    assert (itself["numbers"], itself["points"][0]["last"], itself["points"][0]["seqno"]) == (1, 41.5, 63)
    times = moments(filled, "series")
    part = get(filled, "logs/series/series", field="/celsius", **{"from": text(times[5]), "until": text(times[8])})
    assert [point["last"] for point in part["points"]] == [5, 6, 7]


def test_long_logs_are_sampled(own_host: Host) -> None:
    own_host.run("log", "create", "long", "--history", "300000")
    batch = [{"log": "long", "data": number} for number in range(1000)]
    for _ in range(201):
        answer = requests.post(f"{own_host.ns}/batch", json=batch, timeout=PATIENCE_S)
        assert answer.status_code == 201, answer.text
    series = get(own_host, "logs/long/series", points=100)
    assert (series["records"], series["sampled"]) == (201_000, True)
    assert series["read"] == series["numbers"] == 100_500
    assert (series["points"][0]["min"], max(point["max"] for point in series["points"])) == (0, 998)
    counted = get(own_host, "logs/long/rate", buckets=400)
    assert sum(counted["counts"]) == 201_000


def test_a_log_that_names_the_time_of_the_observation_is_summed_up_by_it(own_host: Host) -> None:
    def ask(method: str, body: Any) -> dict[str, Any]:
        answer = requests.request(method, f"{own_host.ns}/logs/late", json=body, timeout=PATIENCE_S)
        assert answer.ok, answer.text
        return answer.json()

    assert ask("PUT", {"time": {"field": "/t", "unit": "s"}})["change"] == "created"
    assert get(own_host, "logs/late")["time"] == {"field": "/t", "unit": "s"}
    assert ask("PUT", {})["change"] == ask("PUT", {"time": {"field": "/t", "unit": "s"}})["change"] == "unchanged"
    # In no order, as they arrive; 1000 s after 1970, and an hour of 2013.
    for record in [
        b'{"t": 1000, "v": 1}',
        b'{"t": "2013-01-01T01:30:00+01:00", "v": 2}',
        b'{"t": "2013-01-01T00:00:00Z", "v": 3}',
        b'{"t": "soon", "v": 4}',
        b'{"v": 5}',
        b'{"t": 1000}',
        b"text",
        b"\xff",
    ]:
        own_host.append("late", record)
    whole = get(own_host, "logs/late/series", field="/v", points=2000)
    assert (whole["from"], whole["observed"]) == ("1970-01-01T00:16:40.000000Z", {"field": "/t", "unit": "s"})
    assert [(point["last"], point["seqno"]) for point in whole["points"]][:2] == [(1, 1), (2, 2)]
    assert sorted(point["seqno"] for point in whole["points"]) in ([1, 2, 5], [1, 2, 4, 5])
    assert (whole["records"], whole["read"], whole["numbers"], whole["untimed"]) == (8, 8, 5, 4)
    hour = {"from": "2013-01-01T00:00:00Z", "until": "2013-01-01T01:00:00Z"}
    part = get(own_host, "logs/late/series", field="/v", points=2, **hour)
    assert [(point["last"], point["time"]) for point in part["points"]] == [
        (3, "2013-01-01T00:00:00.000000Z"),
        (2, "2013-01-01T00:30:00.000000Z"),
    ]
    assert (part["records"], part["numbers"], part.get("untimed")) == (2, 2, None)
    nothing = get(own_host, "logs/late/series", field="/v", **{"from": "2013-01-01T02:00:00Z", "until": "2013-01-01T03:00:00Z"})
    assert (nothing["records"], nothing["points"]) == (0, [])
    assert get(own_host, "logs/late/rate", buckets=1)["records"] == 8, "counts are by the times of the appends"

    assert ask("PATCH", {"time": "/u", "history": 100}) == {"log": "late", "history": 100, "time": {"field": "/u"}, "change": "updated"}
    assert get(own_host, "logs/late/series", field="/v")["untimed"] == 8
    assert ask("PATCH", {"time": None}) == {"log": "late", "time": None, "change": "updated"}
    assert "time" not in get(own_host, "logs/late") and "observed" not in get(own_host, "logs/late/series", field="/v")
    order = {"do": "set-time", "log": "late", "time": "/t"}
    done = requests.post(f"{own_host.ns}/manage", json=order, timeout=PATIENCE_S).json()
    assert done == {"log": "late", "time": {"field": "/t"}, "change": "updated"}


@pytest.mark.parametrize("body", [{}, {"time": "t"}, {"time": "/~"}, {"time": {"unit": "s"}}, {"time": {"field": "/t", "unit": "h"}}, {"time": 7}])
def test_a_bad_field_of_time_is_refused(filled: Host, body: Any) -> None:
    answer = requests.patch(f"{filled.ns}/logs/series", json=body, timeout=PATIENCE_S)
    assert (answer.status_code, error_of(answer)["code"]) == (400, "MR6045"), answer.text
    assert any(word in error_of(answer)["detail"] for word in ["time", "pointer", "field", "`h`"])


def test_an_empty_log_has_no_records_at_any_time(own_host: Host) -> None:
    assert get(own_host, "logs/out/rate", buckets=2)["counts"] == [0, 0]
    assert get(own_host, "logs/out/series")["points"] == []
    assert get(own_host, "logs/out/records", at="2026-01-01T00:00:00Z")["records"] == []
    # Trimmed records are no records.
    own_host.append("out", b"1")
    requests.post(f"{own_host.ns}/manage", json={"do": "trim-log", "log": "out"}, timeout=PATIENCE_S).raise_for_status()
    assert get(own_host, "logs/out/rate", buckets=2)["records"] == 0
    assert get(own_host, "logs/out/series")["records"] == 0


def test_removed_records_are_passed_over(own_host: Host) -> None:
    for number in range(9):
        own_host.append("out", b"%d" % number)
    void = [{"seqno": seqno, "void": True} for seqno in (1, 5, 9)]
    repairs = own_host.url + "/v1/namespaces/farm/repairs"
    repair = requests.post(repairs, json={"do": "open", "log": "out", "corrections": void}, timeout=PATIENCE_S).json()["repair"]
    own_host.run("repair", "apply", str(repair))
    series = get(own_host, "logs/out/series", points=2000)
    assert [point["last"] for point in series["points"]] == [1, 2, 3, 5, 6, 7]
    assert get(own_host, "logs/out/rate", buckets=1)["records"] in (8, 9), "numbers of removed records stay"


def test_one_level_of_names(own_host: Host) -> None:
    for name in ["tree/a/1", "tree/a/2", "tree/a/deep/3", "tree/b", "tree/c/1", "tree/d"]:
        own_host.run("log", "create", name)
    own_host.append("tree%2Fa%2F1", b"x")
    level = get(own_host, "logs", below="tree/")
    assert [(folder["name"], folder["logs"], folder["records"]) for folder in level["folders"]] == [("tree/a/", 3, 1), ("tree/c/", 1, 0)]
    assert [log["name"] for log in level["logs"]] == ["tree/b", "tree/d"]
    assert [log["name"] for log in get(own_host, "logs", below="tree/a/", newest="true")["logs"]] == ["tree/a/1", "tree/a/2"]
    assert "tree/" in [folder["name"] for folder in get(own_host, "logs", below="")["folders"]]
    found, after = [], ""
    for _ in range(4):
        page = get(own_host, "logs", below="tree/", limit=1, after=after)
        found += [folder["name"] for folder in page["folders"]] + [log["name"] for log in page["logs"]]
        after = page["next"] or ""
    assert (found, after) == (["tree/a/", "tree/b", "tree/c/", "tree/d"], "")
    assert "folders" not in get(own_host, "logs", prefix="tree/")


@pytest.mark.parametrize(
    "path",
    [
        "logs/series/rate?buckets=0",
        "logs/series/rate?buckets=2001",
        "logs/series/rate?from=yesterday",
        "logs/series/rate?from=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z",
        "logs/series/rate?field=/x",
        "logs/series/series?field=celsius",
        "logs/series/series?points=0",
        "logs/series/records?at=now",
        "logs/series/records?at=2112-09-18T00:00:00Z",
        "logs/series/rate?from=2200-01-01T00:00:00Z",
        "logs/series/records?at=2026-01-01T00:00:00Z&from=1",
        "logs?below=tree",
        "logs?below=tree/&prefix=x",
    ],
)
def test_what_is_asked_wrongly_is_refused(filled: Host, path: str) -> None:
    answer = requests.get(f"{filled.ns}/{path}", timeout=PATIENCE_S)
    assert (answer.status_code, error_of(answer)["code"]) == (400, "MR6047")


def test_it_needs_the_right_to_read_the_log(filled: Host, tmp_path: Any) -> None:
    filled.run("cap", "issue", "--read", "out", "--out", str(tmp_path / "cap"))
    headers = {"authorization": f"Bearer {(tmp_path / 'cap').read_text().strip()}"}
    for path in ["logs/series/rate", "logs/series/series", "logs/nothing/rate", "logs/series/records?at=2026-01-01T00:00:00Z"]:
        answer = requests.get(f"{filled.ns}/{path}", headers=headers, timeout=PATIENCE_S)
        assert (answer.status_code, error_of(answer)["code"]) == (403, "MR6132"), path
    assert requests.get(f"{filled.ns}/logs/out/rate", headers=headers, timeout=PATIENCE_S).status_code == 200
    assert requests.get(f"{filled.ns}/logs/nothing/rate", timeout=PATIENCE_S).status_code == 404


def parquet(host: Host, path: str) -> requests.Response:
    accept = {"Accept": "application/vnd.apache.parquet"}
    return requests.get(f"{host.ns}/{path}", headers=accept, timeout=PATIENCE_S)


def test_records_are_read_as_parquet_by_the_tools_for_data(host: Host, tmp_path: Path) -> None:
    # More than a row group, so that the answer comes in parts.
    count = 3000
    lines = "".join(json.dumps({"n": number, "at": f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z", "text": "x" * 500}) + "\n" for number in range(count))
    host.run("log", "create", "readings", "--time", "/at")
    (tmp_path / "readings.ndjson").write_text(lines)
    host.run("log", "import", "readings", str(tmp_path / "readings.ndjson"))
    answer = parquet(host, "logs/readings/records")
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/vnd.apache.parquet", answer.text
    table = pyarrow.parquet.read_table(io.BytesIO(answer.content))
    assert table.column_names == ["seqno", "time", "observed", "id", "cause", "data"]
    assert pyarrow.parquet.ParquetFile(io.BytesIO(answer.content)).num_row_groups > 1
    assert table["seqno"].to_pylist() == list(range(1, count + 1))
    frame = pandas.read_parquet(io.BytesIO(answer.content))
    assert [json.loads(data)["n"] for data in frame["data"]] == list(range(count))
    assert str(frame["observed"][61]) == "2026-01-01 00:01:01+00:00"
    file = tmp_path / "readings.parquet"
    file.write_bytes(answer.content)
    ((total,),) = duckdb.sql(f"select sum((decode(data)::json->>'n')::int) from '{file}'").fetchall()
    assert total == count * (count - 1) // 2
    # The same rows as `log export` writes.
    host.run("log", "export", "readings", "-o", str(tmp_path / "exported.parquet"))
    assert pyarrow.parquet.read_table(tmp_path / "exported.parquet").equals(table)


@pytest.mark.parametrize(
    ("query", "seqnos"),
    [("from=3", [3, 4, 5]), ("from=2&until=3", [2, 3]), ("count=2", [1, 2]), ("from=9", []), ("until=1", [1])],
)
def test_a_part_of_a_log_is_a_file_too(host: Host, query: str, seqnos: list[int]) -> None:
    host.run("log", "create", "parts")
    if int(json.loads(host.run("log", "stat", "parts", "--json"))["latest"]) == 0:
        for value in "abcde":
            host.append("parts", value.encode())
    answer = parquet(host, f"logs/parts/records?{query}")
    table = pyarrow.parquet.read_table(io.BytesIO(answer.content))
    assert "observed" not in table.column_names and table["seqno"].to_pylist() == seqnos
    json_answer = requests.get(f"{host.ns}/logs/parts/records?{query}", timeout=PATIENCE_S).json()
    assert [record["seqno"] for record in json_answer["records"]] == seqnos


def test_what_is_not_there_is_refused_before_anything_is_sent(host: Host) -> None:
    host.run("log", "create", "short", "--history", "2")
    for value in "abcde":
        host.append("short", value.encode())
    assert parquet(host, "logs/short/records?from=1").status_code == 410
    assert parquet(host, "logs/nothing/records").status_code == 404
    assert parquet(host, "logs/short/records?nonsense=1").status_code == 400
    table = pyarrow.parquet.read_table(io.BytesIO(parquet(host, "logs/short/records").content))
    assert table["seqno"].to_pylist() == [4, 5]
