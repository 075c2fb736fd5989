"""A function is invoked from Python and answers with what it returns."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Host, PATIENCE_S

import millrace

Start = Callable[..., Host]

CODE = """
from __future__ import annotations
import time
import millrace

@millrace.function(retries=0)
def answer(record: millrace.Record, ctx: millrace.Context) -> object:
    order = record.json()
    if order == "fail":
        raise KeyError("no such order")
    return {"bytes": b"\\xff\\x00", "text": "\\u00e9", "odd": object(), "large": "x" * (2 << 20), "run": ctx.idempotency_key}.get(
        order if isinstance(order, str) else "", order)

@millrace.function(timeout=3600)
def sleep(record: millrace.Record, ctx: millrace.Context) -> None:
    time.sleep(3600)
"""


@pytest.fixture
def deployed(ns: millrace.Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[millrace.Namespace]:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "answering.py").write_text(CODE)
    importlib.invalidate_caches()
    module = importlib.import_module("answering")
    ns.deploy(module.answer)
    ns.deploy(module.sleep)
    yield ns
    sys.modules.pop("answering", None)


VALUES: list[Any] = [None, 7, [1, 2.5, None], {"a": {"b": []}}, True]


def ask(place: millrace.Namespace, value: object, **how: Any) -> Any:
    return place.invoke("answer", value, wait=PATIENCE_S, **how)


@pytest.mark.parametrize("way", ["files", "host", "socket"])
def test_what_a_function_returns_is_returned(way: str, deployed: millrace.Namespace, host: Start) -> None:
    running = host(deployed)
    where = {"host": running.address, "socket": running.socket}
    place = deployed if way == "files" else millrace.open(where[way])
    assert [ask(place, value) for value in VALUES] == VALUES
    assert (ask(place, '"bytes"'), ask(place, b'"text"')) == (b"\xff\x00", "é")
    for value, code in (('"fail"', "MR3110"), ('"odd"', "MR3150"), ('"large"', "MR3150")):
        with pytest.raises(millrace.Error) as raised:
            ask(place, value)
        assert raised.value.code == code
        run = place.run(raised.value.run)  # type: ignore[attr-defined]
        assert (run.function, run.result) == ("answer", None)
    first = ask(place, '"run"', key="k1")
    assert place.run(first).result == first and ask(place, '"run"', key="k1") == first
    with pytest.raises(millrace.Error, match="MR6023"):
        ask(place, '"text"', key="k1")
    with pytest.raises(millrace.NotFound, match="no function 'anser'; did you mean 'answer'"):
        place.invoke("anser", b"x")
    with pytest.raises(millrace.TimedOut) as late:
        place.invoke("sleep", b"x", wait=0.05)
    run = place.run(late.value.run)  # type: ignore[attr-defined]
    assert run.ended is None and run.state in ("pending", "started")
    place.cancel_run(run.id)
    assert ask(place, 1, log="raw") == 1 and place.latest("raw") == 1


@pytest.mark.parametrize("way", ["files", "host"])
def test_an_event_loop_waits_for_many_at_once(way: str, deployed: millrace.Namespace, host: Start) -> None:
    address = host(deployed).address

    async def many() -> None:
        async with millrace.aopen(deployed.address if way == "files" else address) as place:
            calls = [place.invoke("answer", n, wait=PATIENCE_S) for n in range(100)]
            assert await asyncio.gather(*calls) == list(range(100))
            with pytest.raises(millrace.Error, match="MR3110"):
                await place.invoke("answer", '"fail"', wait=PATIENCE_S)
            with pytest.raises(millrace.TimedOut):
                await place.invoke("sleep", b"", wait=0.05)
            first = await place.invoke("answer", '"run"', wait=PATIENCE_S, key="k1")
            assert (await place.run(first)).result == first
            assert await place.invoke("answer", '"run"', wait=PATIENCE_S, key="k1") == first

    asyncio.run(many())
