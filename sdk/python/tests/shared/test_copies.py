"""Objects of user classes that three hosts keep together, while hosts are killed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE_S, Site, cluster, eventually

import millrace
import millrace.aio

pytest.importorskip("cloudpickle")


@pytest.fixture(scope="module")
def sites(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Site]]:
    """Three hosts of one cluster, of which all vote."""
    with cluster(binary, tmp_path_factory.mktemp("copies")) as started:
        millrace.register_module(sys.modules[__name__])
        yield started


def reach(sites: list[Site], first: int = 0) -> millrace.Connection:
    """Reaches all of them, and asks this one first."""
    return millrace.connect([site.directory for site in sites[first:] + sites[:first]])


def leading(sites: list[Site]) -> int:
    """Which of them leads the objects, as one that runs says."""
    ids = {}
    for number, site in enumerate(sites):
        if site.process is not None:
            hosts = json.loads(site.run("--json", "cluster", "ls"))["hosts"]
            ids.update({host["host"]: number for host in hosts if host.get("here")})

    def look() -> list[int]:
        runs = next(site for site in sites if site.process is not None)
        groups = [group for group in runs.rows("cluster", "groups") if group["group"] == "objects"]
        found = [ids[group["leader"]] for group in groups if group.get("leader") in ids]
        return [number for number in found if sites[number].process is not None]

    return int(eventually("a host leads the objects", look)[0])


@millrace.shared(persistent=True, rf=2)
class Account:
    """Keeps what was put into it, and by whom."""

    def __init__(self, owner: str) -> None:
        self.owner, self.entries = owner, [("made", 0)]
        self.host = 0

    def put(self, who: str, number: int) -> int:
        self.entries = [*self.entries, (who, number)]
        self.host = os.getppid()
        return len(self.entries)

    def put_counted(self, who: str, number: int, counter: Any) -> tuple[int, int]:
        # The counter counts once, also if another host runs the method again.
        counted = counter.add()
        return counted, self.put(who, number)

    @millrace.readonly
    def all(self) -> list[tuple[str, int]]:
        return self.entries

    def refuse(self) -> None:
        self.owner = "nobody"
        raise LookupError("it is refused")

    def add_to(self, local: Any) -> int:
        return int(local.add())

    def ask(self, other: Any, me: Any) -> Any:
        return other.ask_back(me)

    def ask_back(self, other: Any) -> Any:
        return other.all()

    def large(self, size: int) -> None:
        self.entries = [("x" * size, 0)]


def test_calls_of_a_user_class_are_neither_lost_nor_doubled_when_the_leading_host_is_killed(sites: list[Site]) -> None:
    callers, ending = 3, threading.Event()
    done: dict[str, list[int]] = {f"caller {number}": [] for number in range(callers)}
    failed: list[BaseException] = []
    with reach(sites) as farm:
        account = farm.shared(Account)("main", "ada")
        assert account.all() == [("made", 0)]
        counter = farm.AtomicInt("puts", persistent=True, rf=2)
        counter.set(0)
        # The workers of every host have started once.
        account.put("warm", 0)

        def call(who: str, first: int) -> None:
            try:
                with reach(sites, first) as own:
                    mine = own.shared(Account)("main")
                    counts = own.AtomicInt("puts", persistent=True, rf=2)
                    while not ending.is_set():
                        done[who].append(mine.put_counted(who, len(done[who]), counts)[1])
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=call, args=(who, number)) for number, who in enumerate(done)]
        for thread in threads:
            thread.start()

        def go_on() -> None:
            before = [len(answers) for answers in done.values()]
            eventually("every caller goes on", lambda: failed or all(len(now) > was + 1 for now, was in zip(done.values(), before)))
            assert not failed, failed

        for _ in range(2):
            go_on()
            lost = leading(sites)
            sites[lost].kill()
            go_on()
            sites[lost].start()
        ending.set()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert not failed, failed
        entries = account.all()
        total = sum(map(len, done.values()))
        assert len(entries) == 2 + total
        for who, answers in done.items():
            # In their order, each once, and each where its answer says.
            assert [number for by, number in entries if by == who] == list(range(len(answers)))
            assert [entries[at - 1] for at in answers] == [(who, number) for number in range(len(answers))]
        assert counter.get() == total
        # The constructor has run once, with the arguments of the first call.
        assert farm.shared(Account)("main").all() == entries


def test_all_hosts_have_the_fields_after_they_start_again(sites: list[Site]) -> None:
    with reach(sites) as farm:
        account = farm.shared(Account)("kept", "ada")
        assert account.put("one", 1) == 2
    for site in sites:
        site.kill()
    for site in sites:
        site.start()
    with reach(sites, 1) as farm:
        assert farm.shared(Account)("kept").all() == [("made", 0), ("one", 1)]
        assert all(row["rf"] == 2 for row in sites[2].rows("entity", "ls") if row["key"] == "kept")


def test_errors_of_methods_that_any_host_may_run(sites: list[Site]) -> None:
    with reach(sites) as farm:
        one, other = farm.shared(Account)("one", "ada"), farm.shared(Account)("other", "eve")
        with pytest.raises(LookupError, match="it is refused"):
            one.refuse()
        with pytest.raises(millrace.Error, match="MR7122"):
            one.add_to(farm.AtomicInt("local"))
        with pytest.raises(millrace.Error, match="MR7118"):
            one.ask(other, one)
        with pytest.raises(millrace.Error, match="MR7108"):
            one.large(20 << 20)
        # Nothing of these is left.
        assert one.all() == [("made", 0)]


def test_a_newer_class_migrates_the_fields_and_an_older_one_is_refused(sites: list[Site]) -> None:
    def of(version: int) -> type:
        @millrace.shared(version=version, persistent=True, rf=2)
        class Meter:
            def __init__(self) -> None:
                self.value = 5

            @classmethod
            def __migrate__(cls, fields: dict[str, Any], older: int) -> dict[str, Any]:
                return {"value": fields["value"] * 100 + older}

            def get(self) -> int:
                return self.value

        return Meter

    with reach(sites) as farm:
        first = farm.shared(of(1))("meter")
        assert first.get() == 5
        second = farm.shared(of(2))("meter")
        assert second.get() == 501
        with pytest.raises(millrace.Error, match="MR7120"):
            first.get()
        sites[leading(sites)].kill()
        assert second.get() == 501
        for site in sites:
            if site.process is None:
                site.start()


def test_a_host_without_the_pool_says_so(sites: list[Site]) -> None:
    @millrace.shared(persistent=True, rf=2)
    class Elsewhere:
        def get(self) -> int:
            return 1

    leads = leading(sites)
    other = sites[(leads + 1) % 3]
    with millrace.connect(other.directory) as farm, farm.Executor(workers=7) as executor:
        with pytest.raises(millrace.Error, match="MR7124"):
            farm.shared(Elsewhere, executor=executor)("elsewhere").get()


def leave_a_thread(jobs: Any, waits: Any) -> None:
    def take() -> None:
        waits.set()
        jobs.get()

    threading.Thread(target=take, daemon=True).start()
    waits.wait()
    # The call comes after the event.
    time.sleep(1)


def test_a_thread_that_a_finished_task_leaves_behind_takes_no_item(sites: list[Site]) -> None:
    with reach(sites) as farm, farm.Executor(workers=1) as executor:
        jobs = farm.Queue("left jobs", persistent=True, rf=2)
        waits = farm.Event("a thread waits", persistent=True, rf=2)
        for item in range(3):
            waits.clear()
            executor.submit(leave_a_thread, jobs, waits).result()
            # Faster than the session of the task ends.
            jobs.put(item)
            assert jobs.get(timeout=60) == item
        farm.delete(jobs)
        farm.delete(waits)


def test_asyncio_goes_on_at_another_host(sites: list[Site]) -> None:
    async def run() -> None:
        async with millrace.aio.connect([site.directory for site in sites]) as farm:
            hits = farm.AtomicInt("async hits", persistent=True, rf=2)
            await hits.set(0)
            first, sums = await asyncio.gather(hits.add(), hits.add()), []
            assert sorted(first) == [1, 2]
            # The host that is asked is the first one.
            await asyncio.to_thread(sites[0].kill)
            for _ in range(5):
                sums.append(await hits.add())
            assert sums == [3, 4, 5, 6, 7]
            await asyncio.to_thread(sites[0].start)

    asyncio.run(run())
