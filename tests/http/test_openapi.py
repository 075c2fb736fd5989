"""Tests the description: requests that follow it, and requests that violate it, get the answers that it defines."""

from __future__ import annotations

import json

import requests
import schemathesis
from conftest import PATIENCE_S, ROOT, Host
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

DESCRIPTION = json.loads((ROOT / "spec/openapi.json").read_text())
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# A tail has no end; test_tail.py, test_live.py and test_work.py follow them.
schema = schemathesis.openapi.from_dict(DESCRIPTION).exclude(path_regex="/(tail|live|output)$")
schema.config.generation.update(modes=list(schemathesis.GenerationMode))
WAIT_MS = 20


def tame(case: schemathesis.Case) -> None:
    """Shortens waits, and often uses names of existing objects."""
    if isinstance(case.query, dict) and str(case.query.get("wait_ms", "")).isdigit():
        case.query["wait_ms"] = min(int(case.query["wait_ms"]), WAIT_MS)
    if case.method == "POST" and case.path.endswith("/functions/{function}"):
        # A record of several lines makes the function of this host fail, which is the answer 500.
        case.body = b"21.5"
    if isinstance(case.body, dict) and isinstance(case.body.get("history"), int):
        case.body["history"] = min(case.body["history"], 100_000)
    pick = sum(map(ord, str(case.path_parameters) + str(case.query)))
    if isinstance(case.path_parameters, dict) and pick % 4:
        names = {"namespace": "farm", "log": "out", "topic": "news", "function": "copy", "run": "latest", "target": "copy"}
        for name, value in names.items():
            if name in case.path_parameters:
                case.path_parameters[name] = value


@schema.parametrize()
@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
def test_answers_are_as_described(case: schemathesis.Case, host: Host) -> None:
    tame(case)
    # The log and the topic that most requests use must not be removed.
    if case.method == "DELETE" and isinstance(case.path_parameters, dict):
        for name in ("log", "topic"):
            if name in case.path_parameters:
                case.path_parameters[name] = "nowhere"
    case.call_and_validate(base_url=host.url, checks=CHECKS, timeout=PATIENCE_S)


def test_the_requests_were_many_and_many_were_refused(host: Host) -> None:
    """Those above, that is: a generator that makes nothing finds nothing."""
    counted = dict(
        line.rsplit(" ", 1)
        for line in requests.get(host.url + "/metrics", timeout=PATIENCE_S).text.splitlines()
        if not line.startswith("#")
    )
    answered = float(counted['millrace_requests_total{protocol="http"}'])
    refused = float(counted["millrace_failures_total"])
    assert answered > 500 and answered / 10 < refused < answered * 0.9, (answered, refused)


def test_the_host_serves_the_description(host: Host) -> None:
    assert requests.get(host.url + "/openapi.json", timeout=PATIENCE_S).json() == DESCRIPTION


def test_it_describes_everything_that_is_told(own_host: Host) -> None:
    """Every field of an answer is described, so that nothing is told by accident."""
    host = own_host  # Requests made at random may have changed what the logs of the other one keep.
    host.append("raw%2Fkitchen", b"x")
    host.append("raw%2Fkitchen", b"poison")
    host.idle()
    requests.put(f"{host.ns}/topics/news", timeout=PATIENCE_S).raise_for_status()
    requests.post(f"{host.ns}/topics/news/records", data=b"first", timeout=PATIENCE_S).raise_for_status()
    requests.put(f"{host.ns}/tables/grades", timeout=PATIENCE_S).raise_for_status()
    requests.put(f"{host.ns}/tables/grades/keys/alice", data=b"7", timeout=PATIENCE_S).raise_for_status()
    repairs = host.url + "/v1/namespaces/farm/repairs"
    correction = {"do": "open", "log": "out", "corrections": [{"seqno": 1, "data": "corrected"}]}
    repair = requests.post(repairs, json=correction, timeout=PATIENCE_S).json()["repair"]
    plan = requests.post(repairs, json={**correction, "do": "plan"}, timeout=PATIENCE_S).json()["plan"]
    checked = 0
    for path, item in DESCRIPTION["paths"].items():
        if "get" not in item or path.endswith(("/tail", "/live")):
            continue
        content = item["get"]["responses"]["200"].get("content", {})
        schema_of = content.get("application/json", {}).get("schema", {})
        names = {"namespace": "farm", "log": "out", "seqno": "1", "function": "copy", "run": "latest", "target": "copy"}
        names |= {"repair": str(repair), "topic": "news", "index": "1", "event": "out@1", "plan": str(plan)}
        names |= {"table": "grades"} | ({"key": "alice"} if "/tables/" in path else {})
        for name, value in names.items():
            path = path.replace("{%s}" % name, value)
        if path.endswith("/objects/{key}"):  # Only clients of the wire protocol create objects.
            assert requests.get(f"{host.ns}/objects/nothing", timeout=PATIENCE_S).status_code == 404
            continue
        if "{device}" in path:  # Here is none: tests of devices compare their documents with those of the command.
            assert requests.get(host.url + path.replace("{device}", "kitchen"), timeout=PATIENCE_S).status_code == 404
            continue
        headers = {"accept": "application/json"}
        answer = requests.get(host.url + path, headers=headers, timeout=PATIENCE_S)
        assert answer.status_code == 200, (path, answer.text)
        if "$ref" in schema_of:
            described(schema_of, answer.json(), path)
            checked += 1
    assert checked >= 20
    requests.post(repairs, json={"do": "abandon", "repair": repair}, timeout=PATIENCE_S).raise_for_status()


def described(part: dict[str, object], value: object, where: str) -> None:
    if "$ref" in part:
        name = str(part["$ref"]).rsplit("/", 1)[1]
        return described(DESCRIPTION["components"]["schemas"][name], value, where)
    if isinstance(part.get("anyOf"), list):
        fits = [one for one in part["anyOf"] if fits_shape(one, value)]  # type: ignore[attr-defined]
        assert fits, (where, value)
        return described(fits[0], value, where)
    if isinstance(value, dict) and "properties" in part:
        for key, inner in value.items():
            if key not in part["properties"] and "additionalProperties" in part:  # type: ignore[operator]
                continue
            assert key in part["properties"], f"{where}: '{key}' is not described"  # type: ignore[operator]
            described(part["properties"][key], inner, f"{where}.{key}")  # type: ignore[index]
    if isinstance(value, list) and isinstance(part.get("items"), dict):
        for inner in value:
            described(part["items"], inner, where + "[]")  # type: ignore[arg-type]


def fits_shape(part: dict[str, object], value: object) -> bool:
    if "$ref" in part:
        name = str(part["$ref"]).rsplit("/", 1)[1]
        return fits_shape(DESCRIPTION["components"]["schemas"][name], value)
    kinds = {"object": dict, "string": str, "null": type(None), "array": list}
    required = part.get("required", [])
    whole = not isinstance(value, dict) or all(key in value for key in required)  # type: ignore[attr-defined]
    return isinstance(value, kinds.get(str(part.get("type")), object)) and whole
