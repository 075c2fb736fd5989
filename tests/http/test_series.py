"""Records of a log by time: where they are, how many, and the numbers in them; and one level of the names of logs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

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
