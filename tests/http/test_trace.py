"""What an event caused, and what it came from."""

from __future__ import annotations

from typing import Any

import requests
from conftest import PATIENCE_S, Host, error_of


def trace(host: Host, event: str, **query: Any) -> dict[str, Any]:
    answer = requests.get(f"{host.ns}/trace/{event}", params=query, timeout=PATIENCE_S)
    assert answer.status_code == 200, answer.text
    return answer.json()


def names(found: dict[str, Any]) -> list[str]:
    return [f"{it['record']['log']}@{it['record']['seqno']}" if "record" in it else it["run"]["function"] for it in found["branches"]]


def test_effects_and_causes_are_the_same_tree_from_both_ends(host: Host) -> None:
    appended = host.append("raw/kitchen", b"21.5")
    host.idle()
    seqno = appended["seqno"]
    effects = trace(host, appended["id"])
    assert effects["direction"] == "effects" and effects["event"] == appended["id"]
    record, run, effect = effects["branches"]
    assert (record["link"], run["link"], effect["link"]) == (None, "triggered", "appended")
    assert (record["above"], run["above"], effect["above"]) == (None, 0, 1)
    assert record["record"] == {"log": "raw/kitchen", "seqno": seqno, "bytes": 4, "data": "21.5"}
    assert run["run"]["function"] == "copy" and run["run"]["state"] == "done" and run["run"]["attempts"] == 1
    assert run["time"] <= run["run"]["began"] <= run["run"]["ended"]
    assert effect["record"]["log"] == "out" and effect["record"]["data"] == "21.5"
    assert (effects["records"], effects["runs"], effects["unknown"], effects["next"]) == (2, 1, 0, None)
    causes = trace(host, f"out@{effect['record']['seqno']}", direction="causes")
    assert [it["id"] for it in causes["branches"]] == [it["id"] for it in reversed(effects["branches"])]
    # A run and a record with the slash escaped are events, too.
    assert names(trace(host, run["id"])) == ["copy", f"out@{effect['record']['seqno']}"]
    assert names(trace(host, f"raw%2Fkitchen@{seqno}")) == names(effects)


def test_a_failed_run_says_why(host: Host) -> None:
    appended = host.append("raw/kitchen", b"poison")
    host.idle()
    run = trace(host, appended["id"])["branches"][1]
    assert run["run"]["state"] == "dead" and run["run"]["code"].startswith("MR3")


def test_a_tree_is_cut_and_says_so(host: Host) -> None:
    appended = host.append("raw/kitchen", b"x" * 5000)
    host.idle()
    found = trace(host, appended["id"], depth=1)
    assert len(found["branches"]) == 2 and found["branches"][1]["more"] == 1
    assert (found["records"], found["runs"]) == (2, 1)
    record = found["branches"][0]["record"]
    assert (len(record["data"]), record["cut"], record["bytes"]) == (4096, True, 5000)
    found = trace(host, appended["id"], limit=1)
    assert len(found["branches"]) == 1 and found["branches"][0]["more"] == 2


def test_effects_go_on_behind_the_entries_that_were_read(own_host: Host) -> None:
    first = own_host.append("raw/kitchen", b"first")
    own_host.idle()
    whole = trace(own_host, first["id"])
    later = trace(own_host, first["id"], after=0)
    assert names(later) == names(whole), "a position before the event is the event"
    behind = requests.get(f"{own_host.ns}/journal?last=1", timeout=PATIENCE_S).json()["tail"]
    at_end = trace(own_host, first["id"], after=behind)
    assert names(at_end) == names(whole)[:1] and at_end["next"] is None


def test_what_is_asked_wrongly_is_refused(host: Host) -> None:
    appended = host.append("raw/kitchen", b"1")
    for query in ["direction=sideways", "depth=0", "width=1001", "direction=causes&after=16", "x=1"]:
        answer = requests.get(f"{host.ns}/trace/{appended['id']}?{query}", timeout=PATIENCE_S)
        assert (answer.status_code, error_of(answer)["code"]) == (400, "MR6047"), query
    for event, status in [("nonsense", 404), ("raw/kitchen@99999", 404), ("raw/kitchen@0", 400), ("nolog@1", 404), ("000000000001-1-7", 404)]:
        answer = requests.get(f"{host.ns}/trace/{event}", timeout=PATIENCE_S)
        assert answer.status_code == status, (event, answer.text)
        error_of(answer)
