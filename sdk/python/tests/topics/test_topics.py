"""Topics from Python, on three real hosts."""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Optional, TypeVar

import pytest

import millrace

R = TypeVar("R")
PATIENCE_S = 120
KEEP = """import millrace

@millrace.function(on="topic:env/raw")
def keep(record, ctx):
    assert record.topic == "env/raw", record.log
    ctx.append("kept", record.data)
"""


def eventually(what: str, attempt: Callable[[], Optional[R]]) -> R:
    """What an attempt returns once it returns something; `Unavailable` counts as nothing."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            if found := attempt():
                return found
        except millrace.Unavailable as error:
            failed: object = error
        else:
            failed = None
        assert time.monotonic() < until, f"{what}: {failed}"
        time.sleep(0.05)


class Site:
    """A host of a cluster, on a port that it keeps."""

    def __init__(self, binary: Path, directory: Path) -> None:
        self.binary, self.directory = binary, directory
        self.process: Optional[subprocess.Popen[str]] = None
        self.reserved = socket.socket()
        self.reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.reserved.bind(("127.0.0.1", 0))
        self.address = f"mr://127.0.0.1:{self.reserved.getsockname()[1]}/site"
        self.run("init", "--bare", "--segment-size", "1MiB")

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [str(self.binary), "--json", "-n", str(self.directory), *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def serve(self, join: Optional[Site] = None) -> None:
        listen = self.address.removeprefix("mr://").partition("/")[0]
        command = [str(self.binary), "--json", "serve", "-n", str(self.directory), "--name", "site", "--listen", listen]
        command += ["--election", "500ms"]
        if join is not None:
            command += ["--join", join.address, "--cluster-secret", str(join.directory.parent / "secret")]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline(), "the host did not start"

    def cluster(self) -> Any:
        return json.loads(self.run("cluster", "ls"))

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.communicate()
        self.process = None

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                self.kill()
        self.reserved.close()


@pytest.fixture(scope="module")
def sites(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Site]]:
    """Three hosts of a cluster, of which all vote."""
    directory = tmp_path_factory.mktemp("cluster")
    three = [Site(binary, directory / name) for name in "abc"]
    try:
        three[0].run("cluster", "init")
        three[0].run("cluster", "secret", "--out", str(directory / "secret"))
        three[0].serve()
        for site in three[1:]:
            site.serve(join=three[0])
        eventually("all vote", lambda: sum(host["role"] != "learner" for host in three[0].cluster()["hosts"]) == 3)
        yield three
    finally:
        for site in three:
            site.stop()


def test_an_index_out_of_range_is_refused() -> None:
    topics: Any = importlib.import_module("millrace.topics").Topics("mr://nowhere/a", None)
    for index in (-1, 0, 1 << 64):
        with pytest.raises(millrace.Invalid, match=f"MR1003: {index} is not the index of a record"):
            topics.tail("env/raw", index)


def test_a_topic_is_a_sequence_of_values_through_every_host(sites: list[Site]) -> None:
    a, b, c = (millrace.open(site.address) for site in sites)
    with a, b, c:
        a.create_topic("values", 100)
        a.create_topic("values", 100)
        with pytest.raises(millrace.Conflict):
            b.create_topic("values", 5)
        with pytest.raises(millrace.NotFound):
            b.topic("nothing")
        topic = b.topic("values", codec=millrace.codecs.Json())
        assert len(topic) == 0 and topic.latest == 0 and list(topic) == []
        with pytest.raises(millrace.NotFound):
            topic.get()
        assert [topic.publish({"n": n}) for n in range(1, 4)] == [1, 2, 3]
        assert topic.publish({"n": 4}, key="four") == topic.publish({"n": 4}, key="four") == 4
        elsewhere = c.topic("values", millrace.codecs.Json())
        assert [value["n"] for value in elsewhere] == [1, 2, 3, 4]
        assert (elsewhere[2]["n"], elsewhere[-1]["n"], elsewhere.latest, elsewhere.history) == (2, 4, 4, 100)
        assert [value["n"] for value in elsewhere[2:4]] == [2, 3]
        assert elsewhere.get(1).time <= elsewhere.get().time
        assert list(elsewhere.to_pandas()["n"]) == [1, 2, 3, 4] if _has("pandas") else True
        assert "records 1 to 4" in repr(elsewhere) and "topic values" in elsewhere._repr_html_()
        # With the durability of the leader the index may not be known yet.
        assert topic.publish({"n": 5}, durability="leader") in (0, 5)
        assert elsewhere.get(5, wait=PATIENCE_S).value == {"n": 5}
        with pytest.raises(millrace.Invalid):
            topic.publish({"n": 6}, durability="disk")
        [stat] = [stat for stat in c.topics() if stat.name == "values"]
        assert (stat.history, stat.durability, stat.earliest, stat.latest, stat.group) == (100, "quorum", 1, 5, "main")
        a.create_topic("short", 2)
        short = a.topic("short")
        for n in range(5):
            short.publish(str(n).encode())
        assert list(short) == [b"3", b"4"] and (short.earliest, len(short)) == (4, 2)
        with pytest.raises(millrace.Gone):
            short[1]
    with pytest.raises(millrace.Invalid):
        a.topic("values")


def test_a_removed_topic_is_gone_and_its_name_can_be_used_again(sites: list[Site]) -> None:
    with millrace.open(sites[0].address) as a, millrace.open(sites[1].address) as b:
        a.create_topic("brief")
        brief = b.topic("brief")
        assert [brief.publish(b"old") for _ in range(3)] == [1, 2, 3]
        tail = b._hosted().tail("brief", 1)
        assert [record.data for record in tail.batch(3)] == [b"old"] * 3
        a.remove_topic("brief")
        with pytest.raises(millrace.NotFound):
            a.remove_topic("brief")
        with pytest.raises(millrace.NotFound):
            brief.publish(b"x")
        with pytest.raises(millrace.NotFound):
            next(tail)
        a.create_topic("brief", 7)
        assert (brief.publish(b"new"), list(brief), brief.history) == (1, [b"new"], 7)
        # A tail of the removed topic says that this is another one.
        with pytest.raises(millrace.Conflict) as recreated:
            next(tail)
        assert recreated.value.code == "MR7223"

    async def removed() -> None:
        async with millrace.aopen(sites[2].address) as ns:
            await ns.remove_topic("brief")
            assert "brief" not in [stat.name for stat in await ns.topics()]

    asyncio.run(removed())


def test_a_function_runs_for_a_topic_through_the_files_and_their_host(
    sites: list[Site], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keep_topic.py").write_text(KEEP)
    monkeypatch.syspath_prepend(str(tmp_path))
    keep = importlib.import_module("keep_topic").keep
    with millrace.open(sites[2].directory) as ns, millrace.open(sites[0].address) as other:
        ns.create_log("kept")
        with pytest.raises(millrace.NotFound):
            ns.deploy(keep)
        assert ns.functions() == []
        ns.create_topic("env/raw")
        ns.deploy(keep)
        topic = ns.topic("env/raw")
        for n in range(5):
            other.topic("env/raw").publish(b"%d" % n)
        assert ns.get("kept", 5, wait=PATIENCE_S).data == b"4"
        assert [record.data for record in ns.range("kept")] == [b"0", b"1", b"2", b"3", b"4"]
        [subscription] = topic.stat().subscriptions
        assert (subscription.function, subscription.missed) == ("keep", 0)
        topic.unsubscribe("keep")
        assert topic.stat().subscriptions == ()
        with pytest.raises(millrace.NotFound):
            topic.unsubscribe("keep")
        # What functions append goes on to another topic.
        ns.create_topic("env/kept")
        kept = ns.topic("env/kept")
        kept.feed("kept")
        ns.append("kept", b"5")
        assert other.topic("env/kept").get(1, wait=PATIENCE_S).value == b"5"
        assert [feed.log for feed in kept.stat().feeds] == ["kept"]
        kept.unfeed("kept")


def test_a_tail_resumes_while_the_leader_is_killed(sites: list[Site]) -> None:
    leader = eventually("a host leads", lambda: next((s for s in sites if s.cluster()["role"] == "leader"), None))
    left = [site for site in sites if site is not leader]
    with millrace.open(left[0].address) as ns, millrace.open(left[1].address) as reader:
        eventually("the topic is created", lambda: ns.create_topic("tailed") or True)
        topic = ns.topic("tailed")
        seen: list[bytes] = []

        def follow() -> None:
            for entry in reader.topic("tailed").tail(1, timeout=PATIENCE_S):
                seen.append(entry.value)
                if len(seen) == 20:
                    return

        thread = threading.Thread(target=follow)
        thread.start()
        for n in range(20):
            if n == 5:
                leader.kill()
            data = b"%d" % n
            eventually("it is acknowledged", functools.partial(topic.publish, data, key=f"tailed {n}"))
        thread.join(PATIENCE_S)
        assert seen == [b"%d" % n for n in range(20)]
        tail = reader._hosted().tail("tailed", 3)
        assert next(tail).data == b"2" and tail.next == 4
        assert [record.data for record in tail.batch(2)] == [b"3", b"4"]
        assert [entry.seqno for entry in reader.topic("tailed").tail(19, timeout=0.1)] == [19, 20]
    leader.serve()


def test_topics_of_asyncio(sites: list[Site]) -> None:
    async def main() -> None:
        async with millrace.aopen(sites[0].address) as ns, millrace.aopen(sites[1].directory) as other:
            await ns.create_topic("async")
            topic = await ns.topic("async", codec=millrace.codecs.Json())
            numbers = await asyncio.gather(*(topic.publish(n, key=f"async {n}") for n in range(20)))
            assert sorted(numbers) == list(range(1, 21))
            elsewhere = await other.topic("async", millrace.codecs.Json())
            assert sorted([entry.value async for entry in elsewhere.range()]) == list(range(20))
            assert (await elsewhere.latest(), (await elsewhere.get(20)).seqno) == (20, 20)

            async def follow() -> list[int]:
                return [entry.seqno async for entry in elsewhere.tail(timeout=2)]

            following = asyncio.create_task(follow())
            await asyncio.sleep(0.2)
            await topic.publish("late")
            # The tail may have begun behind the record on a slow machine.
            assert await following in ([21], [])
            assert "async" in [stat.name for stat in await ns.topics()]
            assert (await topic.stat()).latest == 21

    asyncio.run(main())


def test_without_a_host_or_a_cluster_there_are_no_topics(
    ns: millrace.Namespace, host: Callable[..., Any]
) -> None:
    with pytest.raises(millrace.Unavailable) as refused:
        ns.topic("t")
    assert refused.value.code == "MR5009"
    host(ns)
    with pytest.raises(millrace.Conflict) as refused_there:
        ns.create_topic("t")
    assert refused_there.value.code == "MR7209"


def _has(package: str) -> bool:
    try:
        __import__(package)
    except ImportError:
        return False
    return True


def test_a_topic_is_created_beside_another_one_near_a_label_or_at_a_site(sites: list[Site]) -> None:
    first = sites[0].cluster()["hosts"]
    site = next(host["site"] for host in first if host["here"])
    sites[0].run("cluster", "group", "create", "own", "--here", "--count", "1")
    with millrace.open(sites[0].address) as ns:
        assert ns.create_topic("placed/plain") == "main"
        assert ns.create_topic("placed/named", group="own") == "own"
        assert ns.create_topic("placed/beside", beside="placed/named") == "own"
        assert ns.create_topic("placed/here", here=True) in ("main", "own")
        assert ns.create_topic("placed/site", site=site) in ("main", "own")
        assert ns.create_topic("placed/spread", spread=True) in ("main", "own")
        with pytest.raises(millrace.NotFound, match="zone=mill"):
            ns.create_topic("placed/near", near="zone=mill")
        with pytest.raises(millrace.NotFound, match="nothing"):
            ns.create_topic("placed/near", beside="nothing")
        for wrong in ({"near": "barn"}, {"here": True, "group": "own"}, {"site": site, "spread": True}):
            with pytest.raises(millrace.Invalid):
                ns.create_topic("placed/near", **wrong)

    async def create() -> str:
        async with millrace.aopen(sites[1].address) as ns:
            return await ns.create_topic("placed/async", beside="placed/named")

    assert asyncio.run(create()) == "own"
