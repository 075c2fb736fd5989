#!/usr/bin/env python3
"""Three hosts predict the temperature outside from a sensor on the board, while their leaders are killed.

The campus has the sensors, the lab smooths, the farm trains a model, and the campus predicts with it; each result is a topic, which all
three have. Whenever a quarter of the predictions is there, the leader is killed, three times. The six topics are then compared, byte by
byte, with those of a single host that runs all functions undisturbed. Draws the predictions, and how the topics grew.

With `--engine nats`, a NATS cluster of three servers keeps the topics of the three hosts, and one of its servers is killed with each leader.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import itertools
import json
import shutil
import sys
import time
from pathlib import Path

import chart
import millrace
import nats
from cluster import EXAMPLE, PATIENCE_S, REPOSITORY, Cluster, Failed, eventually

DATA = EXAMPLE.parent / "thermometer" / "data"
SENSORS = {"cpu": "lga", "env": "ewr"}  # the readings of two airports stand in for the two sensors
TOPICS = ["cpu_raw", "env_raw", "cpu_smooth", "env_smooth", "model", "prediction"]
HOSTS = ["campus", "lab", "farm"]
FILES = {name: [EXAMPLE / "hosts" / f"{name}.toml"] for name in HOSTS}
KILLS = 3
QUIET_S = 2.0

Records = dict[str, list[bytes]]


def main() -> int:
    options = parse_options()
    try:
        return demonstrate(options)
    except (Failed, millrace.Error) as error:
        print(error, file=sys.stderr)
        return 1


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--days", type=int, default=60, help="days of hourly readings [60]")
    add("--kills", type=int, default=KILLS, help="how many leaders are killed [3]")
    engines = ["builtin", "nats"]
    add("--engine", choices=engines, default=engines[0], help="what keeps the topics of the three hosts [builtin]")
    add("--out", type=Path, default=REPOSITORY / "demo-out", metavar="DIR", help="where the picture goes [demo-out]")
    return parser.parse_args()


def demonstrate(options: argparse.Namespace) -> int:
    work = options.out.resolve() / "cluster"
    shutil.rmtree(work, ignore_errors=True)  # what an earlier demonstration left
    readings = {sensor: read(DATA / f"{file}.csv", options.days) for sensor, file in SENSORS.items()}
    alone = {"alone": list(itertools.chain.from_iterable(FILES.values()))}
    with Cluster(work / "one", ["alone"], alone) as cluster:
        began = time.monotonic()
        feed(cluster, readings)
        expected = quiet(cluster)
        print(f"one host: {counts(expected)} in {time.monotonic() - began:.1f} s", flush=True)
    with contextlib.ExitStack() as stack:
        servers, files = None, FILES
        if options.engine == "nats":
            servers = stack.enter_context(nats.Servers(work / "nats"))
            files = on_nats(work / "application")
        addresses = servers.addresses() if servers else None
        cluster = stack.enter_context(Cluster(work / "three", HOSTS, files, addresses))
        began, kills = time.time(), []
        feed(cluster, readings)
        for number in range(options.kills):
            share = len(expected["prediction"]) * (number + 1) // (options.kills + 1)
            eventually("predictions are made", lambda share=share: predictions(cluster) >= share)
            if servers:
                eventually("every stream has all its copies", servers.are_current)
                servers.kill(number % nats.SERVERS)
            kills.append(kill_leader(cluster))
            if servers:
                servers.start(number % nats.SERVERS)
        wait_for(cluster, {topic: len(records) for topic, records in expected.items()})
        found, times = read_topics(cluster.hosts["lab"].address())
        print(f"three hosts: {counts(found)} in {time.time() - began:.1f} s, {len(kills)} leaders killed", flush=True)
        for host in HOSTS:
            check(expected, read_topics(cluster.hosts[host].address())[0], host)
    kept = ", with their records in NATS" if options.engine == "nats" else ""
    print(f"all six topics are the same on all three hosts as on one{kept}, to the last byte")
    figures = report(found, times, kills)
    (options.out / "cluster.json").write_text(json.dumps(figures, indent=2) + "\n")
    print(
        f"mean error of {figures['predictions']} predictions: {figures['prediction']:.2f} °F; "
        f"of the processor's temperature as the prediction: {figures['sensor']:.2f} °F"
    )
    print(f"picture: {chart.draw(found, times, kills, options.out / 'cluster.png')}")
    return 0


def on_nats(directory: Path) -> dict[str, list[Path]]:
    """The application with one more line for each topic."""
    shutil.copytree(EXAMPLE / "functions", directory / "functions")
    (directory / "hosts").mkdir()
    files = {}
    for name, (file,) in FILES.items():
        lines = file.read_text(encoding="utf-8").splitlines()
        more = ((line, 'engine = "nats"') if line.startswith("[topics.") else (line,) for line in lines)
        changed = directory / "hosts" / file.name
        changed.write_text("\n".join(itertools.chain.from_iterable(more)) + "\n", encoding="utf-8")
        files[name] = [changed]
    return files


def read(path: Path, days: int) -> list[bytes]:
    """The readings of the first days, each as the record that the sensor appends."""
    with open(path, encoding="utf-8") as file:
        rows = [row for row in csv.reader(file) if row[0].isdigit() and row[1]]
    until = int(rows[0][0]) + days * 86_400
    samples = ({"t": int(t), "v": round(float(v), 4)} for t, v in rows if int(t) < until)
    return [json.dumps(sample, separators=(",", ":")).encode() for sample in samples]


def feed(cluster: Cluster, readings: dict[str, list[bytes]]) -> None:
    """The sensors append to logs of the first host, which feed the topics: also while its host is down."""
    first = next(iter(cluster.hosts.values()))
    named = ([(f"{name}_raw", data) for data in all] for name, all in readings.items())
    with millrace.open(first.directory) as ns:
        ns.append_many(record for pair in itertools.zip_longest(*named) for record in pair if record)


def latest(cluster: Cluster) -> dict[str, int] | None:
    """How many records each topic has, through a host that runs."""
    host = next(host for host in cluster.hosts.values() if host.process)
    try:
        with millrace.open(host.address()) as ns:
            return {topic: ns.topic(topic).latest for topic in TOPICS}
    except millrace.Unavailable:
        return None


def quiet(cluster: Cluster) -> Records:
    """Waits until all functions have run and the topics have stopped growing."""
    host = next(iter(cluster.hosts.values()))
    seen, since = None, time.monotonic()
    deadline = since + PATIENCE_S
    while time.monotonic() - since < QUIET_S:
        host.call("run", "wait", "--idle", "--timeout", f"{PATIENCE_S}s")
        now = latest(cluster)
        if now != seen or now is None or now["prediction"] == 0:
            seen, since = now, time.monotonic()
        if time.monotonic() > deadline:
            raise Failed(f"the topics did not come to an end: {now}")
        time.sleep(0.1)
    return read_topics(host.address())[0]


def predictions(cluster: Cluster) -> int:
    return (latest(cluster) or {"prediction": -1})["prediction"]


def kill_leader(cluster: Cluster) -> tuple[str, float, float]:
    """Kills the leader, and starts it again once another host leads."""
    made = predictions(cluster)
    host = eventually("a host leads", cluster.leader)
    host.kill()
    killed = time.time()
    eventually("another host leads", cluster.leader)
    host.start()
    print(f"killed {host.name}, the leader, after {made} predictions; it was down for {time.time() - killed:.1f} s")
    return host.name, killed, time.time()


def wait_for(cluster: Cluster, expected: dict[str, int]) -> None:
    def reached() -> bool:
        now = latest(cluster)
        return now is not None and all(now[topic] >= count for topic, count in expected.items())

    try:
        eventually("all records are there", reached)
    except Failed as failed:
        why = "\n".join(host.call("why") + host.call("cluster", "why") for host in cluster.hosts.values())
        raise Failed(f"{failed}: {latest(cluster)} of {expected}\n{why}") from None
    # A record that is there twice would come now.
    for host in cluster.hosts.values():
        host.call("run", "wait", "--idle", "--timeout", f"{PATIENCE_S}s")
    time.sleep(QUIET_S)


def read_topics(address: str) -> tuple[Records, dict[str, list[float]]]:
    """The records of all topics, and when this host had each."""
    with millrace.open(address) as ns:
        entries = {topic: list(ns.topic(topic).range()) for topic in TOPICS}
    records = {topic: [entry.value for entry in all] for topic, all in entries.items()}
    return records, {topic: [entry.time.timestamp() for entry in all] for topic, all in entries.items()}


def check(expected: Records, found: Records, host: str) -> None:
    for topic in TOPICS:
        if found[topic] != expected[topic]:
            pairs = enumerate(itertools.zip_longest(expected[topic], found[topic]), 1)
            index, (one, three) = next((n, pair) for n, pair in pairs if pair[0] != pair[1])
            raise Failed(f"record {index} of topic {topic} at {host} is {three!r}, and on one host {one!r}")


def counts(records: Records) -> str:
    return ", ".join(f"{len(records[topic])} {topic}" for topic in TOPICS)


def report(found: Records, times: dict[str, list[float]], kills: list[tuple[str, float, float]]) -> dict[str, object]:
    """The mean errors of the predictions, and of the sensor as it is."""
    truth, sensor, prediction = (values(found[topic]) for topic in ("env_smooth", "cpu_smooth", "prediction"))
    common = [t for t in prediction if t in truth]
    error = {
        name: sum(abs(series[t] - truth[t]) for t in common) / max(len(common), 1)
        for name, series in (("prediction", prediction), ("sensor", sensor))
    }
    return {
        "predictions": len(found["prediction"]),
        **{name: round(mean, 3) for name, mean in error.items()},
        "kills": [host for host, _, _ in kills],
        "seconds": round(max(map(max, times.values())) - min(map(min, times.values())), 1),
    }


def values(records: list[bytes]) -> dict[int, float]:
    return {sample["t"]: sample["v"] for sample in map(json.loads, records)}


if __name__ == "__main__":
    sys.exit(main())
