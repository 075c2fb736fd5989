"""The dashboards of Grafana and the alerts of Prometheus: what they ask for is what a real host answers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from conftest import PATIENCE_S, ROOT, run

GRAFANA = ROOT / "deploy/grafana"
ALERTS = ROOT / "deploy/prometheus/alerts.yml"
# What Prometheus adds to the samples of a host, and what belongs to histograms.
ADDED = {"instance", "job", "le"}
# A host has it if its certificate expires: `certificate_until_s` in the gateway.
OF_CERTIFICATES = "millrace_certificate_expiry_timestamp_seconds"
APPLICATION = """
[logs."raw/kitchen"]
[logs.out]
[functions.copy]
runtime = "oneshot"
code = "copy.sh"
command = ["./copy.sh"]
on = ["raw/kitchen"]
retries = 0
"""
COPY = """#!/bin/sh
record=$(cat)
[ "$record" != poison ] || exit 1
printf 'out\\t%s\\n' "$record" >&"$MILLRACE_APPEND_FD"
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a host of two namespaces: with runs, dead letters, a relay and a copy of a topic."""
    millrace = os.environ.get("MILLRACE") or ROOT / "target/debug/millrace"
    place = tmp_path_factory.mktemp("monitored")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MILLRACE")}
    environment["XDG_CONFIG_HOME"] = str(place / "config")
    farm, cloud = place / "farm", place / "cloud"

    def do(*words: str | Path, where: Path = place) -> str:
        return run(millrace, *words, cwd=where, env=environment).stdout

    for namespace in (farm, cloud):
        namespace.mkdir()
    (farm / "millrace.toml").write_text(APPLICATION)
    (farm / "copy.sh").write_text(COPY)
    (farm / "copy.sh").chmod(0o755)
    do("up", where=farm)
    do("cluster", "init", where=farm)
    do("init", "--bare", where=cloud)
    do("log", "create", "in", where=cloud)
    command = [str(millrace), "serve", f"farm={farm}", f"cloud={cloud}", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout
        said = ""
        while not (found := re.search(r"http://(127\.0\.0\.1:\d+)", said)):
            line = process.stdout.readline()
            assert line, said
            said += line
        remote = ["-n", f"mr://{found[1]}/farm"]
        for record in ['{"t": 1}', '{"t": 2.5}', "poison"]:
            do(*remote, "log", "append", "raw/kitchen", record)
        do(*remote, "relay", "add", "raw/kitchen", f"mr://{found[1]}/cloud/in")
        do(*remote, "topic", "create", "news")
        do(*remote, "topic", "mirror", "news", "--to", "copy-of-news")
        do(*remote, "run", "wait", "--idle", "--timeout", f"{PATIENCE_S}s")
        yield found[0]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


def get(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
        return answer.read()


@pytest.fixture(scope="module")
def samples(host: str) -> dict[str, set[str]]:
    """The names of all samples of the host, each with the names of its labels."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(get(f"{host}/metrics").decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def dashboard(name: str) -> dict[str, Any]:
    return json.loads((GRAFANA / name).read_text())


def targets(of: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(panel["title"], target) for panel in of["panels"] for target in panel.get("targets", [])]


def asks_for_what_is_there(expression: str, legend: str, samples: dict[str, set[str]]) -> set[str]:
    """The names of the metrics in an expression, which all exist and have the labels that it uses."""
    names = set(re.findall(r"\bmillrace_\w+", expression))
    assert names, expression
    used = set(re.findall(r"(\w+)\s*[=!]~?\"", expression)) | set(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", legend))
    used |= {label.strip() for found in re.findall(r"\bby \(([^)]*)\)", expression) for label in found.split(",")}
    for name in names - {OF_CERTIFICATES}:
        assert name in samples, f"no metric {name}: {expression}"
        assert used <= samples[name] | ADDED, f"{name} has no label {used - samples[name] - ADDED}: {expression} {legend}"
    return names


def test_the_queries_of_the_dashboard_find_metrics(samples: dict[str, set[str]]) -> None:
    hosts = dashboard("hosts.json")
    found = [asks_for_what_is_there(target["expr"], target["legendFormat"], samples) for _, target in targets(hosts)]
    assert len(found) > 30
    for variable in hosts["templating"]["list"][1:]:
        match = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"])
        assert match and match[2] in samples[match[1].partition("{")[0]] | ADDED, variable


def test_the_queries_of_the_alerts_find_metrics(samples: dict[str, set[str]]) -> None:
    rules = ALERTS.read_text().split("- alert: ")[1:]
    assert len(rules) > 5
    for rule in rules:
        (expression,) = re.findall(r"^ +expr: (.+)$", rule, re.M)
        (summary,) = re.findall(r'^ +summary: "(.+)"$', rule, re.M)
        asks_for_what_is_there(expression, summary, samples)
        assert re.search(r"^ +severity|labels: \{ severity: (critical|warning) \}", rule, re.M), rule


def test_a_dashboard_is_one_that_grafana_can_provision() -> None:
    for path in sorted(GRAFANA.glob("*.json")):
        one = dashboard(path.name)
        assert one["uid"] and one["title"].startswith("Millrace: ") and "id" not in one and one["schemaVersion"] >= 36
        identifiers = [panel["id"] for panel in one["panels"]]
        assert len(identifiers) == len(set(identifiers))
        taken: set[tuple[int, int]] = set()
        for panel in one["panels"]:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            assert at["x"] + at["w"] <= 24 and not cells & taken, panel["title"]
            taken |= cells
        # Each data source is a variable: no identifier of one installation is in the file.
        variables = {variable["name"]: variable for variable in one["templating"]["list"]}
        for title, target in targets(one):
            uid = target["datasource"]["uid"].removeprefix("${").removesuffix("}")
            assert variables[uid]["type"] == "datasource" and variables[uid]["query"] == target["datasource"]["type"], title
        used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(one["panels"])))
        assert used <= set(variables), used - set(variables)


def test_infinity_finds_the_columns_that_it_asks_for(host: str) -> None:
    """What the data source does: it requests the address, selects the rows, and reads the columns."""
    log = dashboard("log.json")
    values = {"namespace": "farm", "log:percentencode": "raw%2Fkitchen", "field": "/t", "__from:date:iso": "2020-01-01T00:00:00.000Z",
              "__to:date:iso": "2100-01-01T00:00:00.000Z"}

    def filled(text: str) -> str:
        return re.sub(r"\$\{([^}]+)\}", lambda match: values[match[1]], text)

    rows_of = {}
    for title, target in targets(log):
        assert (target["parser"], target["source"], target["url_options"]["method"]) == ("backend", "url", "GET")
        query = urllib.parse.urlencode({filled(part["key"]): filled(part["value"]) for part in target["url_options"]["params"]})
        rows = json.loads(get(f"{host}{filled(target['url'])}?{query}"))[target["root_selector"]]
        kinds = {"number": (int, float), "timestamp": str, "string": str}
        for row in rows:
            for column in target["columns"]:
                assert isinstance(row[column["selector"]], kinds[column["type"]]), (title, column, row)
        rows_of[title] = rows
    numbers, records = rows_of.values()
    assert numbers[0]["min"] == 1 and numbers[-1]["max"] == 2.5
    assert [row["data"] for row in records] == ['{"t": 1}', '{"t": 2.5}', "poison"]
