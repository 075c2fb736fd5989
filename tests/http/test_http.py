"""HTTP as programs use it: what is appended comes back, in every way it can be asked for."""

from __future__ import annotations

import base64
import json
import os
import socket
import threading
import time
from typing import Any

import requests
from conftest import PATIENCE_S, Host, error_of
from prometheus_client.parser import text_string_to_metric_families

KITCHEN = "raw%2Fkitchen"


def get(url: str, **kwargs: object) -> requests.Response:
    return requests.get(url, timeout=PATIENCE_S, **kwargs)  # type: ignore[arg-type]


def test_a_record_comes_back_as_it_went(host: Host) -> None:
    log = f"{host.ns}/logs/bytes"
    assert requests.put(log, json={"history": 50}, timeout=PATIENCE_S).status_code == 201
    again = requests.put(log, json={"history": 50}, timeout=PATIENCE_S)
    assert (again.status_code, again.json()["change"]) == (200, "unchanged")
    assert error_of(requests.put(log, json={"history": 51}, timeout=PATIENCE_S))["code"] == "MR2102"
    everything = f"{host.ns}/logs/everything"
    assert requests.put(everything, json={"history": None}, timeout=PATIENCE_S).json()["history"] is None
    assert requests.get(everything, timeout=PATIENCE_S).json()["history"] is None
    data = bytes(range(256))
    answer = requests.post(f"{log}/records", data=data, timeout=PATIENCE_S)
    assert answer.status_code == 201
    receipt = answer.json()
    read = get(host.url + answer.headers["location"])
    assert read.content == data
    assert read.headers["millrace-seqno"] == str(receipt["seqno"])
    assert read.headers["etag"] == f'"{receipt["id"]}"'
    assert read.headers["x-content-type-options"] == "nosniff"
    record = get(f"{log}/records/latest", headers={"accept": "application/json"}).json()
    assert base64.b64decode(record["base64"]) == data
    assert record["id"] == receipt["id"] and record["log"] == "bytes"
    assert get(f"{log}/records/1", headers={"if-none-match": read.headers["etag"]}).status_code == 304
    head = requests.head(f"{log}/records/1", timeout=PATIENCE_S)
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", "256")
    assert get(f"{log}").json()["latest"] == 1
    removed = requests.delete(log, timeout=PATIENCE_S)
    assert removed.json() == {"log": "bytes", "change": "removed"}
    assert error_of(get(log))["code"] == "MR2101"


def test_the_history_of_a_log_can_be_changed(host: Host) -> None:
    log = f"{host.ns}/logs/resized"
    requests.put(log, json={"history": 5}, timeout=PATIENCE_S)
    for n in range(8):
        host.append("resized", b"%d" % n)
    longer = requests.patch(log, json={"history": 50}, timeout=PATIENCE_S)
    assert (longer.status_code, longer.json()) == (200, {"log": "resized", "history": 50, "change": "updated"})
    for n in range(8):
        host.append("resized", b"%d" % n)
    told = get(log).json()
    assert (told["history"], told["earliest"], told["latest"]) == (50, 4, 16)
    assert requests.patch(log, json={"history": None}, timeout=PATIENCE_S).json()["history"] is None
    assert requests.patch(log, json={"history": None}, timeout=PATIENCE_S).json()["change"] == "unchanged"
    assert requests.patch(log, json={"history": 2}, timeout=PATIENCE_S).status_code == 200
    assert get(log).json()["earliest"] == 15
    assert error_of(get(f"{log}/records/14"))["code"] == "MR2104"
    assert error_of(requests.patch(log, timeout=PATIENCE_S))["code"] == "MR6045"
    for body, code in [({}, "MR6045"), ({"history": 0}, "MR2107"), ({"history": 5, "name": "b"}, "MR6045")]:
        assert error_of(requests.patch(log, json=body, timeout=PATIENCE_S))["code"] == code
    assert error_of(requests.patch(f"{host.ns}/logs/none", json={"history": 5}, timeout=PATIENCE_S))["code"] == "MR2101"
    requests.delete(log, timeout=PATIENCE_S)


def test_a_run_can_be_cancelled(own_host: Host) -> None:
    host = own_host
    (host.place / "slow.sh").write_text("#!/bin/sh\nexec sleep 3600\n")
    (host.place / "slow.sh").chmod(0o755)
    host.run("log", "create", "slow")
    host.run("function", "deploy", "slow", *"--runtime oneshot --code slow.sh --on slow --timeout 1h -- ./slow.sh".split())
    host.append("slow", b"x")
    run = get(f"{host.ns}/runs?function=slow").json()["runs"][0]["id"]
    cancel = f"{host.ns}/runs/{run}/cancel"
    cancelled = requests.post(cancel, timeout=PATIENCE_S)
    assert (cancelled.status_code, cancelled.json()) == (200, {"run": run, "change": "cancelled"})
    assert get(f"{host.ns}/runs/{run}").json()["state"] == "cancelled"
    for path, status, code in [(run, 409, "MR3141"), ("1-0-1", 404, "MR3007"), ("latest", 400, "MR1005")]:
        refused = requests.post(f"{host.ns}/runs/{path}/cancel", timeout=PATIENCE_S)
        assert (refused.status_code, error_of(refused)["code"]) == (status, code)
    assert (get(cancel).status_code, get(cancel).headers["allow"]) == (405, "POST")
    host.idle()


def test_large_records_are_streamed_both_ways_and_in_parts(host: Host) -> None:
    data = os.urandom(3 << 20)

    def chunks() -> object:
        for start in range(0, len(data), 100_000):
            yield data[start : start + 100_000]

    answer = requests.post(f"{host.ns}/logs/out/records", data=chunks(), timeout=PATIENCE_S)
    record = f"{host.ns}/logs/out/records/{answer.json()['seqno']}"
    assert get(record).content == data
    part = get(record, headers={"range": "bytes=1000000-1999999"})
    assert (part.status_code, part.content) == (206, data[1_000_000:2_000_000])
    assert part.headers["content-range"] == f"bytes 1000000-1999999/{len(data)}"
    assert get(record, headers={"range": "bytes=-5"}).content == data[-5:]
    beyond = get(record, headers={"range": f"bytes={len(data)}-"})
    assert (beyond.status_code, error_of(beyond)["code"]) == (416, "MR6048")
    other = get(record, headers={"range": "bytes=0-0", "if-range": '"000000000001-0-1"'})
    assert (other.status_code, len(other.content)) == (200, len(data))


def test_a_record_that_is_too_long_is_refused_before_it_is_sent(host: Host) -> None:
    with socket.create_connection(("127.0.0.1", host.port), PATIENCE_S) as client:
        head = f"POST /v1/namespaces/farm/logs/out/records HTTP/1.1\r\nHost: localhost\r\nContent-Length: {1 << 40}\r\n\r\n"
        client.sendall(head.encode())
        assert client.recv(4096).startswith(b"HTTP/1.1 413 ")
    answer = requests.post(f"{host.ns}/logs/out/records", data=iter([b"x" * 65536] * 300), timeout=PATIENCE_S)
    assert (answer.status_code, error_of(answer)["code"]) == (413, "MR1004")


def test_a_key_makes_an_append_happen_once(host: Host) -> None:
    first = host.append("out", b"once", Idempotency_Key="k-1")
    assert host.append("out", b"once", Idempotency_Key="k-1") == first
    headers = {"idempotency-key": "k-1"}
    other = requests.post(f"{host.ns}/logs/out/records", data=b"twice", headers=headers, timeout=PATIENCE_S)
    assert (other.status_code, error_of(other)["code"]) == (409, "MR6023")


def test_several_records_are_all_appended_or_none(host: Host) -> None:
    records = [{"log": "out", "data": {"t": 21.50}}, {"log": "out", "text": "é"}, {"log": "out", "base64": "/wA="}]
    body = '[{"log":"out","data":{"t": 21.50}},{"log":"out","text":"é"},{"log":"out","base64":"/wA="}]'
    headers = {"content-type": "application/json"}
    answer = requests.post(f"{host.ns}/batch", data=body.encode(), headers=headers, timeout=PATIENCE_S)
    assert answer.status_code == 201, answer.text
    seqnos = [one["seqno"] for one in answer.json()["records"]]
    assert seqnos == list(range(seqnos[0], seqnos[0] + len(records)))
    read = [get(f"{host.ns}/logs/out/records/{seqno}").content for seqno in seqnos]
    assert read == [b'{"t": 21.50}', "é".encode(), b"\xff\x00"]
    headers = {"content-type": "application/vnd.millrace.records+json"}
    answer = requests.post(
        f"{host.ns}/logs/out/records", json=[{"data": "a"}, {"data": "b"}], headers=headers, timeout=PATIENCE_S
    )
    last = answer.json()["records"][-1]["seqno"]
    wrong = [{"log": "out", "data": "c"}, {"log": "nowhere", "data": "d"}]
    refused = requests.post(f"{host.ns}/batch", json=wrong, timeout=PATIENCE_S)
    assert (refused.status_code, error_of(refused)["code"]) == (404, "MR2101")
    assert get(f"{host.ns}/logs/out").json()["latest"] == last
    faulty: list[object] = [[{"log": "out"}], [{"log": "out", "data": 1, "text": "x"}], [{"data": 1}], {"data": 1}, [], 3]
    for body_ in [*faulty, [{"log": "out", "data": 1, "more": 2}], [{"log": "out", "base64": "%"}]]:
        refused = requests.post(f"{host.ns}/batch", json=body_, timeout=PATIENCE_S)
        assert refused.status_code == 400 and error_of(refused), body_


def test_ranges_go_on_where_they_ended(host: Host) -> None:
    for n in range(25):
        host.append("out", b"n%d" % n)
    log = get(f"{host.ns}/logs/out").json()
    start = log["latest"] - 24
    page = get(f"{host.ns}/logs/out/records?from={start}&count=10").json()
    assert [record["data"] for record in page["records"]] == [f"n{n}" for n in range(10)]
    assert (page["next"], page["incarnation"]) == (start + 10, log["incarnation"])
    lines = get(
        f"{host.ns}/logs/out/records?from={page['next']}&count=100", headers={"accept": "application/x-ndjson"}
    )
    assert [json.loads(line)["data"] for line in lines.text.splitlines()] == [f"n{n}" for n in range(10, 25)]
    assert int(lines.headers["millrace-next"]) == log["latest"] + 1
    assert get(f"{host.ns}/logs/out/records?from={log['latest'] + 1}").json()["records"] == []


def test_a_read_waits_for_what_is_not_there_yet(host: Host) -> None:
    latest = get(f"{host.ns}/logs/out").json()["latest"]
    urls = [
        f"{host.ns}/logs/out/records/{latest + 1}?wait_ms=60000",
        f"{host.ns}/logs/out/records/latest?above={latest}&wait_ms=60000",
        f"{host.ns}/logs/out/records?from={latest + 1}&wait_ms=60000",
    ]
    answers: dict[str, requests.Response] = {}
    threads = [threading.Thread(target=lambda url=url: answers.update({url: get(url)})) for url in urls]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    assert not answers
    host.append("out", b"awaited")
    for thread in threads:
        thread.join(PATIENCE_S)
    assert [answers[url].status_code for url in urls] == [200, 200, 200]
    assert answers[urls[0]].content == b"awaited"
    assert answers[urls[2]].json()["records"][0]["data"] == "awaited"
    latest = get(f"{host.ns}/logs/out").json()["latest"]
    # A wait that was in vain is no failure.
    for path in ["999999?wait_ms=10", f"latest?above={latest}&wait_ms=10", f"latest?above={latest}"]:
        waited = get(f"{host.ns}/logs/out/records/{path}")
        assert (waited.status_code, waited.content) == (204, b""), path
    page = get(f"{host.ns}/logs/out/records?from={latest + 1}&wait_ms=10")
    assert (page.status_code, page.json()["records"]) == (200, [])
    missing = get(f"{host.ns}/logs/out/records/999999")
    assert (missing.status_code, error_of(missing)["code"]) == (404, "MR2105")


def test_a_log_may_have_plain_slashes_in_a_path(host: Host) -> None:
    log = f"{host.ns}/logs/plain/one"
    assert requests.put(log, json={"history": 9}, timeout=PATIENCE_S).json()["log"] == "plain/one"
    appended = requests.post(f"{log}/records", data=b"x", timeout=PATIENCE_S)
    assert (appended.status_code, appended.json()["seqno"]) == (201, 1)
    assert get(host.url + appended.headers["location"]).content == b"x"
    for path in ["plain/one", "plain%2Fone"]:
        assert get(f"{host.ns}/logs/{path}").json()["latest"] == 1
        assert get(f"{host.ns}/logs/{path}/records").json()["log"] == "plain/one"
        assert get(f"{host.ns}/logs/{path}/records/latest").content == b"x"
    assert get(f"{host.ns}/why/plain/one").json()["target"] == "log 'plain/one'"


def test_durability_is_asked_for_in_one_way_everywhere(host: Host) -> None:
    log = f"{host.ns}/logs/out/records"
    calls: list[tuple[str, str]] = [("POST", log), ("GET", f"{log}/latest"), ("GET", log), ("POST", f"{host.ns}/batch")]
    for method, url in calls:
        batch = url.endswith("batch")
        body: dict[str, Any] = {"json": [{"log": "out", "text": "x"}]} if batch else {"data": b"x" if method == "POST" else None}
        ok = 201 if method == "POST" else 200
        for query, header, status in [
            ("?durability=disk", None, ok),
            ("", "memory", ok),
            ("?durability=disk", "disk", ok),
            ("?durability=disk", "memory", 400),
            ("?durability=paper", None, 400),
        ]:
            headers = {"Millrace-Durability": header} if header else {}
            answer = requests.request(method, url + query, headers=headers, timeout=PATIENCE_S, **body)
            assert answer.status_code == status, (method, url, query, header)


def test_the_type_of_a_batch_may_be_written_in_capitals(host: Host) -> None:
    headers = {"Content-Type": "Application/VND.Millrace.Records+JSON; charset=utf-8"}
    url = f"{host.ns}/logs/out/records"
    answer = requests.post(url, data=b'[{"text": "a"}, {"text": "b"}]', headers=headers, timeout=PATIENCE_S)
    assert len(answer.json()["records"]) == 2, answer.text


def test_lists_come_in_parts_and_say_where_to_go_on(host: Host) -> None:
    for n in range(5):
        requests.put(f"{host.ns}/logs/many%2F{n}", timeout=PATIENCE_S)
    names, after = [], ""
    while after is not None:
        part = get(f"{host.ns}/logs?prefix=many/&limit=2&after={after}").json()
        assert len(part["logs"]) <= 2 and all(log["last_append"] is None for log in part["logs"])
        names += [log["name"] for log in part["logs"]]
        after = part["next"]
    assert names == [f"many/{n}" for n in range(5)]
    host.append("out", b"x")
    newest = get(f"{host.ns}/logs?newest=true").json()
    assert newest["next"] is None and any(log["last_append"] for log in newest["logs"])
    assert get(f"{host.ns}/functions?limit=1").json()["next"] is None
    assert get(f"{host.ns}/links?after=zzz").json() == {"links": [], "next": None}
    for n in range(3):
        host.append("raw/kitchen", b"%d" % n)
    host.idle()
    first = get(f"{host.ns}/runs?limit=2").json()
    rest = get(f"{host.ns}/runs?limit=2&before={first['next']}").json()
    ids = [run["id"] for run in first["runs"] + rest["runs"]]
    assert len(first["runs"]) == 2 and len(set(ids)) == len(ids) and ids == sorted(ids, reverse=True)


def test_repairs_come_in_parts(own_host: Host) -> None:
    host = own_host
    host.append("out", b"wrong")
    url = f"{host.ns}/repairs"
    numbers = []
    for _ in range(3):
        correction = {"do": "open", "log": "out", "corrections": [{"seqno": 1, "data": "corrected"}]}
        numbers.append(requests.post(url, json=correction, timeout=PATIENCE_S).json()["repair"])
        requests.post(url, json={"do": "abandon", "repair": numbers[-1]}, timeout=PATIENCE_S).raise_for_status()
    first = get(f"{url}?limit=2").json()
    rest = get(f"{url}?limit=2&after={first['next']}").json()
    assert [[repair["repair"] for repair in part["repairs"]] for part in (first, rest)] == [numbers[:2], numbers[2:]]
    assert first["next"] == numbers[1] and rest["next"] is None
    assert get(f"{url}?limit=0").status_code == 400


def test_the_journal_shows_clocks_as_text_long_payloads_in_part_and_no_keys(host: Host) -> None:
    url = f"{host.ns}/logs/out/records"
    requests.post(url, data="é".encode() * 40_000, headers={"Idempotency-Key": "a-secret"}, timeout=PATIENCE_S)
    answer = get(f"{host.ns}/journal?last=2")
    entries = answer.json()["entries"]
    assert all(isinstance(entry["hlc"], str) and int(entry["hlc"]) > 0 for entry in entries)
    long, key = entries
    assert (long["bytes"], long["cut"], len(long["data"])) == (80_000, True, 32_768)
    assert key["subject"] == "_keys" and key["bytes"] > 0 and "data" not in key and "a-secret" not in answer.text
    for path in ["_keys/records", "_keys/records/latest", "_keys/tail"]:
        refused = get(f"{host.ns}/logs/{path}")
        assert (refused.status_code, error_of(refused)["code"]) == (403, "MR6022"), path


def test_functions_and_runs_are_told(host: Host) -> None:
    host.append(KITCHEN, b"21.5")
    host.append(KITCHEN, b"poison")
    host.idle()
    function = get(f"{host.ns}/functions/copy").json()
    assert function["on"] == ["raw/kitchen"] and function["pending"] == 0
    assert get(f"{host.ns}/functions").json()["functions"] == [function]
    done = get(f"{host.ns}/runs?function=copy&state=done&limit=1").json()["runs"]
    assert len(done) == 1 and done[0]["appends"][0]["log"] == "out"
    assert get(f"{host.ns}/runs/{done[0]['id']}").json() == done[0]
    dead = get(f"{host.ns}/runs/latest").json()
    assert (dead["state"], dead["log"]) == ("dead", "raw/kitchen") and dead["error"]["code"].startswith("MR3")
    why = get(f"{host.ns}/why/{KITCHEN}").json()
    assert why["target"] == "log 'raw/kitchen'" and all(reason["text"] for reason in why["reasons"])
    entries = get(f"{host.ns}/journal?last=5").json()
    assert len(entries["entries"]) == 5 and entries["entries"][-1]["kind"] == "DONE"
    assert entries["next"] == entries["tail"]
    first = get(f"{host.ns}/journal?count=2").json()
    second = get(f"{host.ns}/journal?count=1&from={first['next']}").json()
    assert second["entries"][0]["position"] > first["entries"][-1]["position"]


def test_what_a_person_types(host: Host) -> None:
    assert "/v1/namespaces" in get(host.url + "/").text
    names = [one["name"] for one in get(f"{host.url}/v1/namespaces").json()["namespaces"]]
    assert names == ["farm"]
    logs = get(f"{host.ns}/logs?prefix=raw").json()["logs"]
    assert [log["name"] for log in logs] == ["raw/kitchen"] and logs[0]["functions"] == ["copy"]
    status = get(f"{host.ns}/status").json()
    assert status["healthy"] and not status["draining"] and status["host"]["failure"] is None
    for path in ["healthz", "readyz"]:
        answer = get(f"{host.url}/{path}")
        assert (answer.status_code, answer.json()["status"]) == (200, "ok")


def test_metrics_are_what_prometheus_reads(host: Host) -> None:
    before = samples(host)
    for _ in range(3):
        host.append("out", b"counted")
    error_of(get(host.url + "/nowhere"))
    after = samples(host)
    out = ("millrace_log_records_total", (("log", "out"), ("namespace", "farm")))
    assert after[out] == before[out] + 3
    requests_ = ("millrace_requests_total", (("protocol", "http"),))
    assert after[requests_] >= before[requests_] + 4
    failures = ("millrace_failures_total", ())
    assert after[failures] >= before[failures] + 1
    assert after[("millrace_host_running", (("namespace", "farm"),))] == 1
    pending = ("millrace_function_pending", (("function", "copy"), ("namespace", "farm")))
    assert after[pending] == 0
    # Each histogram: cumulative buckets up to all, a count and a sum.
    labels = (("namespace", "farm"),)
    for name in ("append", "flush"):
        count = after[(f"millrace_{name}_duration_seconds_count", labels)]
        assert count >= 1 and after[(f"millrace_{name}_duration_seconds_bucket", (("le", "+Inf"), *labels))] == count
        assert after[(f"millrace_{name}_duration_seconds_sum", labels)] > 0
        bounds = sorted(
            (float(dict(told)["le"]), value)
            for (metric, told), value in after.items()
            if metric == f"millrace_{name}_duration_seconds_bucket"
        )
        assert len(bounds) == 17 and [value for _, value in bounds] == sorted(value for _, value in bounds)
    appended = ("millrace_append_duration_seconds_count", labels)
    assert after[appended] == before[appended] + 3


def test_how_long_runs_take_and_wait_is_measured(host: Host) -> None:
    host.append("raw/kitchen".replace("/", "%2F"), b"timed")
    host.idle()
    after = samples(host)
    for name in ("millrace_run_duration_seconds", "millrace_run_wait_seconds"):
        assert after[(f"{name}_count", (("function", "copy"), ("namespace", "farm")))] >= 1


def samples(host: Host) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    answer = get(host.url + "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = list(text_string_to_metric_families(answer.text))
    assert len(families) > 15 and all(family.documentation and family.type in ("counter", "gauge", "histogram") for family in families)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_what_waits_for_the_disk_is_there_after_a_kill(tmp_path: object) -> None:
    import signal
    from pathlib import Path

    host = Host(Path(str(tmp_path)), durability="disk")
    try:
        receipts = [host.append("out", b"%d" % n) for n in range(20)]
        host.stop(signal.SIGKILL)
        host.start()
        read = get(f"{host.ns}/logs/out/records?from={receipts[0]['seqno']}").json()["records"]
        assert [(record["seqno"], record["id"]) for record in read] == [(one["seqno"], one["id"]) for one in receipts]
    finally:
        host.stop(signal.SIGKILL)


def test_links_are_told_and_counted(host: Host) -> None:
    assert get(f"{host.ns}/links").json() == {"links": [], "next": None}
    # Nobody listens at port 1, so the link stays behind.
    host.run("relay", "add", "out", "mr://127.0.0.1:1/far/out", "--name", "away")
    host.append("out", b"to be carried")
    (link,) = get(f"{host.ns}/links").json()["links"]
    assert (link["kind"], link["name"], link["from"]) == ("relay", "away", "out") and link["lag_records"] >= 1
    lag = ("millrace_link_lag_records", (("kind", "relay"), ("link", "away"), ("namespace", "farm")))
    assert samples(host)[lag] >= 1
    host.run("relay", "rm", "away", "--force")
