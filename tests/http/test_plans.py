"""Plans of repairs, which a host makes in the background; and codes of links, which it gives to its user."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import requests
from conftest import PATIENCE_S, Host, error_of


def post(host: Host, path: str, body: Any, **headers: str) -> requests.Response:
    return requests.post(f"{host.ns}/{path}", json=body, headers=headers, timeout=PATIENCE_S)


def planned(host: Host, log: str, *corrections: dict[str, Any]) -> dict[str, Any]:
    """A plan once it is made."""
    answer = post(host, "repairs", {"do": "plan", "log": log, "corrections": list(corrections)})
    assert answer.status_code == 200, answer.text
    return made(host, answer.json()["plan"])


def made(host: Host, number: int) -> dict[str, Any]:
    waits = threading.Event()
    while True:
        plan = requests.get(f"{host.ns}/plans/{number}", timeout=PATIENCE_S).json()
        if plan["state"] != "running":
            return plan
        waits.wait(0.02)


def test_a_plan_says_what_a_correction_reaches_and_changes_nothing(own_host: Host) -> None:
    for value in [b"1", b"2", b"3"]:
        own_host.append("raw/kitchen", value)
    own_host.idle()
    plan = planned(own_host, "raw/kitchen", {"seqno": 2, "data": "20"}, {"seqno": 3, "data": "3"})
    assert (plan["state"], plan["corrections"], plan["error"]) == ("done", 2, None)
    assert plan["read_bytes"] == plan["of_bytes"] > 0
    found = plan["found"]
    corrects = found["corrects"]
    assert {**corrects, "from": 0, "to": 0} == {"log": "raw/kitchen", "records": 1, "equal": 1, "range": [2, 2], "from": 0, "to": 0}
    second = requests.get(f"{own_host.ns}/logs/raw%2Fkitchen/records?from=2&count=1", timeout=PATIENCE_S).json()
    assert corrects["from"] == corrects["to"] == second["records"][0]["time"]
    [replayed] = found["replays"]
    assert replayed.pop("took_us") > 0
    assert replayed == {"function": "copy", "runs": 1, "reason": "record-corrected", "log": "raw/kitchen", "range": [2, 2]}
    assert (found["overwrites"], found["unknown_readers"], found["horizon"], found["damaged"]) == ([], False, None, 0)
    assert [(log["log"], log["records"], log["range"]) for log in found["rewrites"]] == [("out", 1, [2, 2])]
    assert (found["stops"], found["complete"], found["not_run"]) == (False, True, [])
    assert requests.get(f"{own_host.ns}/repairs", timeout=PATIENCE_S).json()["repairs"] == []
    # The command finds the same in the files.
    own = json.loads(own_host.run("repair", "plan", "raw/kitchen", "--at", "2", "--json"))
    assert [(it["function"], it["runs"], it["reason"], it["range"]) for it in own["replays"]] == [("copy", 1, "record-corrected", [2, 2])]
    assert own["rewrites"] == found["rewrites"]
    assert {key: own["estimate"][key] for key in ("bytes", "workers")} | {"bytes": 0} == {
        "workers": found["estimate"]["workers"], "bytes": 0,
    }


def test_what_cannot_be_corrected_is_said(own_host: Host) -> None:
    own_host.append("out", b"1")
    plan = planned(own_host, "out", {"seqno": 9, "data": "x"})
    assert (plan["state"], plan["error"]["code"], plan["found"]) == ("failed", "MR2005", None) or plan["state"] == "failed"
    assert planned(own_host, "nothing", {"seqno": 1, "data": "x"})["state"] == "failed"
    removed = planned(own_host, "out", {"seqno": 1, "void": True})["found"]
    assert (removed["corrects"]["records"], removed["replays"]) == (1, [])


def test_the_newest_plans_are_kept(own_host: Host) -> None:
    own_host.append("out", b"1")
    numbers = [planned(own_host, "out", {"seqno": 1, "data": str(value)})["plan"] for value in range(10)]
    assert numbers == list(range(1, 11))
    plans = requests.get(f"{own_host.ns}/plans", timeout=PATIENCE_S).json()["plans"]
    assert [plan["plan"] for plan in plans] == numbers[2:] and all(plan["found"] is None for plan in plans)
    for path in ["plans/1", "plans/99", "plans/x"]:
        answer = requests.get(f"{own_host.ns}/{path}", timeout=PATIENCE_S)
        assert (answer.status_code, error_of(answer)["code"]) == (404, "MR6198"), path
    # One that is complete stays as it is.
    assert post(own_host, "repairs", {"do": "cancel-plan", "plan": 10}).json()["state"] == "done"


def test_a_plan_with_an_unknown_function_is_refused(own_host: Host) -> None:
    own_host.append("out", b"1")
    ask = {"do": "plan", "log": "out", "corrections": [{"seqno": 1, "data": "x"}], "run_external": ["nobody"]}
    answer = post(own_host, "repairs", ask)
    assert (answer.status_code, error_of(answer)["code"]) == (404, "MR3001"), answer.text


def test_a_plan_needs_the_rights_to_correct_and_to_observe(own_host: Host, tmp_path: Path) -> None:
    own_host.append("out", b"1")
    ask = {"do": "plan", "log": "out", "corrections": [{"seqno": 1, "data": "x"}]}
    for name, rights, status in [("a", ["--allow", "repair=out"], 403), ("b", ["--allow", "observe=namespace"], 403),
                                 ("c", ["--allow", "repair=out", "--allow", "observe=namespace"], 200)]:
        own_host.run("cap", "issue", *rights, "--out", str(tmp_path / name))
        headers = {"authorization": f"Bearer {(tmp_path / name).read_text().strip()}"}
        answer = post(own_host, "repairs", ask, **headers)
        assert answer.status_code == status, (name, answer.text)
    made(own_host, answer.json()["plan"])


def test_a_code_is_exchanged_once_for_a_capability(own_host: Host) -> None:
    code = post(own_host, "login", {}).json()["code"]
    assert re.fullmatch("[0-9a-f]{32}", code)
    token = post(own_host, "login", {"code": code}).json()
    assert token["expires_s"] == 12 * 3600
    headers = {"authorization": f"Bearer {token['capability']}"}
    assert requests.get(f"{own_host.ns}/status", headers=headers, timeout=PATIENCE_S).status_code == 200
    # Its holder is not the user who runs the host, and gets no code.
    refused = post(own_host, "login", {}, **headers)
    assert (refused.status_code, error_of(refused)["code"]) == (403, "MR6132")
    for wrong in [code, "0" * 32, "", "x" * 64]:
        answer = post(own_host, "login", {"code": wrong})
        assert (answer.status_code, error_of(answer)["code"]) == (401, "MR6084"), wrong
    for body in ['{"code": 1}', '{"other": "x"}', "[]", "x"]:
        answer = requests.post(f"{own_host.ns}/login", data=body, headers={"content-type": "application/json"}, timeout=PATIENCE_S)
        assert answer.status_code == 400, body
    assert requests.get(f"{own_host.ns}/login", timeout=PATIENCE_S).status_code == 405
    # The command gets one at the socket of the namespace.
    link = own_host.run("dashboard", "--code").strip()
    assert post(own_host, "login", {"code": link.rsplit("=", 1)[1]}).status_code == 200


def test_capabilities_are_issued_listed_and_revoked(own_host: Host) -> None:
    assert requests.get(f"{own_host.ns}/capabilities", timeout=PATIENCE_S).json() == {"capabilities": []}
    ask = {"do": "issue", "allow": [{"rights": ["read"], "on": "out"}], "expires_s": 3600, "label": "reader <b>"}
    made = post(own_host, "capabilities", ask).json()
    headers = {"authorization": f"Bearer {made['capability']}"}
    assert requests.get(f"{own_host.ns}/logs/out/records", headers=headers, timeout=PATIENCE_S).status_code == 200
    assert requests.get(f"{own_host.ns}/logs/raw%2Fkitchen/records", headers=headers, timeout=PATIENCE_S).status_code == 403
    [listed] = requests.get(f"{own_host.ns}/capabilities", timeout=PATIENCE_S).json()["capabilities"]
    assert (listed["ids"], listed["about"], listed["act"], listed["revoked"]) == (made["ids"], "reader <b>", "cap.issue", False)
    assert made["capability"] not in json.dumps(listed)
    # Who holds one issues none, lists none and revokes none without the right to.
    revoke = {"do": "revoke", "ids": made["ids"]}
    for answer in [post(own_host, "capabilities", ask, **headers), post(own_host, "capabilities", revoke, **headers),
                   requests.get(f"{own_host.ns}/capabilities", headers=headers, timeout=PATIENCE_S)]:
        assert (answer.status_code, error_of(answer)["code"]) == (403, "MR6132")
    wide = post(own_host, "capabilities", {"do": "issue", "allow": [{"rights": ["grant", "admin"], "on": "namespace"}]}).json()
    answer = post(own_host, "capabilities", ask, authorization=f"Bearer {wide['capability']}")
    assert answer.status_code == 403, "a capability that a holder issued would outlive the holder's own"
    assert post(own_host, "capabilities", revoke, authorization=f"Bearer {wide['capability']}").json() == {"revoked": 1}
    assert requests.get(f"{own_host.ns}/logs/out/records", headers=headers, timeout=PATIENCE_S).status_code in (401, 403)
    listed = requests.get(f"{own_host.ns}/capabilities", timeout=PATIENCE_S).json()["capabilities"]
    assert [it["revoked"] for it in listed] == [False, True]
    allow = [{"rights": ["read"], "on": "out"}]
    for wrong in [{"allow": []}, {"allow": [{"rights": ["fly"], "on": "out"}]}, {"allow": [{"rights": ["read"], "on": "_keys"}]},
                  {"allow": allow, "expires_s": 0}, {"do": "revoke", "ids": []}, {"do": "revoke", "ids": ["x"]}, {"do": "x"}]:
        assert post(own_host, "capabilities", {"do": "issue", **wrong}).status_code == 400, wrong
