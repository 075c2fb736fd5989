"""spec/conformance.json: the script that every client runs, on files, through a host, and with asyncio."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, Optional

import pytest
from conftest import ROOT, Host

import millrace

SCRIPTS = json.loads((ROOT / "spec/conformance.json").read_text())["scripts"]
Step = dict[str, Any]


def data_of(value: dict[str, Any]) -> bytes:
    if "text" in value:
        return str(value["text"]).encode()
    return bytes.fromhex(value["hex"]) if "hex" in value else bytes([value["fill"]]) * value["count"]


def told(record: millrace.StoredRecord) -> Step:
    return {"seqno": record.seqno, "id": record.id, "cause": record.cause or "-", "data": record.data}


class Client:
    """What the steps do, by a namespace's methods."""

    def __init__(self, ns: millrace.Namespace) -> None:
        self.ns = ns

    def create_log(self, log: str, history: int) -> None:
        self.ns.create_log(log, history)

    def set_history(self, log: str, history: int) -> None:
        self.ns.set_history(log, history)

    def cancel_run(self, run: str) -> None:
        self.ns.cancel_run(run)

    def remove_log(self, log: str) -> None:
        self.ns.remove_log(log)

    def append(self, log: str, data: Step, **options: Any) -> Step:
        seqno = self.ns.append(log, data_of(data), **options)
        return {"seqno": seqno, "id": self.ns.get(log, seqno).id}

    def append_many(self, records: list[Step], key: Optional[str] = None) -> Step:
        pairs = [(record["log"], data_of(record["data"])) for record in records]
        seqnos = self.ns.append_many(pairs, key=key)
        return {"records": [{"seqno": n, "id": self.ns.get(log, n).id} for (log, _), n in zip(pairs, seqnos)]}

    def get(self, log: str, seqno: int, wait_ms: int = 0) -> Step:
        return told(self.ns.get(log, seqno or None, wait=wait_ms / 1000))

    def range(self, log: str, start: int, count: int) -> Step:
        records = self.ns.range(log, start, start + count)
        return {"records": [told(record) for record in records], "next": records.next}

    def latest(self, log: str, above: Optional[int] = None, wait_ms: int = 0) -> Step:
        if above is not None:
            try:
                self.ns.get(log, above + 1, wait=wait_ms / 1000)
            except millrace.NotFound as error:
                assert error.code == "MR2105"
        return {"seqno": self.ns.latest(log)}

    def tail(self, log: str, start: int, take: int, incarnation: int = 0) -> Step:
        tail = self.ns.tail(log, start or None, timeout=100, incarnation=incarnation)
        records = [told(record) for record in islice(tail, take)]
        return {"records": records, "next": tail.next, "incarnation": tail.incarnation}

    def show(self, path: str) -> None:
        json.loads(self.ns.show(path))


class AsyncClient(Client):
    """The same, where asyncio has a way of its own."""

    def append(self, log: str, data: Step, **options: Any) -> Step:
        async def append(ns: millrace.AsyncNamespace) -> Step:
            seqno = await ns.append(log, data_of(data), **options)
            return {"seqno": seqno, "id": (await ns.get(log, seqno)).id}

        return self.run(append)

    def get(self, log: str, seqno: int, wait_ms: int = 0) -> Step:
        async def get(ns: millrace.AsyncNamespace) -> Step:
            return told(await ns.get(log, seqno or None, wait=wait_ms / 1000))

        return self.run(get)

    def run(self, do: Callable[[millrace.AsyncNamespace], Any]) -> Step:
        async def main() -> Any:
            async with millrace.aopen(self.ns.address) as ns:
                return await do(ns)

        result: Step = asyncio.run(main())
        return result


def meant(value: Any, kept: Step) -> Any:
    """The value, or that of the variable it names."""
    return kept[value[1:]] if isinstance(value, str) and value[:1] == "$" else value


def call(client: Client, step: Step, kept: Step) -> Any:
    own = {"do", "gives", "fails", "keep", "where", "needs", "meanwhile"}
    arguments = {key: meant(value, kept) for key, value in step.items() if key not in own}
    if "from" in arguments:
        arguments["start"] = arguments.pop("from")
    return getattr(client, step["do"])(**arguments)


def same(wanted: Any, got: Any, kept: Step) -> bool:
    """Whether what came back has what the step says."""
    if isinstance(wanted, list):
        return len(wanted) == len(got) and all(same(one, other, kept) for one, other in zip(wanted, got))
    if isinstance(got, bytes):
        return data_of(wanted) == got
    if isinstance(wanted, dict):
        return all(same(value, got[key], kept) for key, value in wanted.items())
    return bool(meant(wanted, kept) == got)


def take(client: Client, step: Step, kept: Step) -> None:
    later: Optional[threading.Timer] = None
    if "meanwhile" in step:
        later = threading.Timer(0.2, call, (client, step["meanwhile"], kept))
        later.start()
    try:
        got = call(client, step, kept)
    except millrace.Error as error:
        assert error.code == step.get("fails"), (step, error)
        return
    finally:
        if later is not None:
            later.join()
    assert "fails" not in step, (step, got)
    assert same(step.get("gives", {}), got, kept), (step, got)
    kept.update({name: got[member] for name, member in step.get("keep", {}).items()})


@pytest.mark.parametrize("way", ["files", "tcp", "unix", "asyncio", "asyncio files"])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: str(script["name"]))
def test_conformance(script: Step, way: str, tmp_path: Path, host: Callable[..., Host]) -> None:
    with millrace.create(tmp_path / "ns", durability="memory", segment_bytes=1 << 20) as files:
        place = files.address
        if "files" not in way:
            running = host(files)
            place = running.socket if way == "unix" else running.address
        kept: Step = {}
        with millrace.open(place) as ns:
            client = AsyncClient(ns) if "asyncio" in way else Client(ns)
            for step in script["steps"]:
                if "files" in way and step.get("where") == "host":
                    continue
                take(client, step, kept)
